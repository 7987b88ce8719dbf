"""A real Slurm: a job file trains on workers that are Slurm jobs, one is cancelled, the bits are the same."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import bitfleet as bf
import pytest
from several_hosts import free_ports, need, result_of, search_path, start_job, wait_for_round, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

CONFIGURATION = """
ClusterName=bitfleet
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=3
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
SlurmdParameters=config_overrides
"""
CLUSTER = """
[cluster]
launcher = "slurm"
n_workers = 2
memory_limit = "700 MiB"
[cluster.slurm]
queue = "main"
walltime = "00:10:00"
host = "127.0.0.1"
log_folder = "{folder}/logs"
local_folder = "{folder}/scratch"
shared_folder = "{folder}/certificates"
"""


class Slurm:
    """A Slurm of one node in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Dask takes a worker for lost after a time that is longer than this test
        self.environment = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "1s",
        }
        self._started: list[subprocess.Popen] = []

    def start(self) -> None:
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)
        control, node = free_ports(2)
        text = CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], folder=self.folder, control=control, node=node
        )
        (self.folder / "slurm.conf").write_text(text)
        files = {"key-file": "key", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
        munge = {f"--{name}": self.folder / f"munge.{ending}" for name, ending in files.items()}
        munge["--socket"] = self.folder / "munge.socket"
        self._run("munged", "--foreground", "--force", *(f"{key}={value}" for key, value in munge.items()))
        wait_until((self.folder / "munge.socket").exists, "munged", 20)
        self._run("slurmctld", "-D")
        self._run("slurmd", "-D")
        wait_until(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T"), "an idle node", 30)

    def ask(self, *command: str) -> str:
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=30
        )
        return done.stdout

    def running(self) -> list[str]:
        return self.ask("squeue", "-h", "-t", "running", "-o", "%i").split()

    def stop(self) -> None:
        self.ask("scancel", "--full", "--user", "root")
        for process in reversed(self._started):
            process.terminate()
        for process in reversed(self._started):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _run(self, program: str, *arguments: str) -> None:
        found = shutil.which(program, path=search_path())
        assert found is not None
        with (self.folder / f"{program}.out").open("wb") as out:
            self._started.append(
                subprocess.Popen(
                    [found, *arguments], env={**os.environ, **self.environment}, stdout=out, stderr=out
                )
            )


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    need("slurmctld", "slurmd", "munged", "scancel", "squeue", package="slurm-wlm munge")
    folder = tmp_path / "slurm"
    folder.mkdir()
    slurm = Slurm(folder)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


def test_a_cancelled_worker_is_replaced_and_the_bits_are_the_same(slurm, job, alone, tmp_path):
    process = start_job(job(CLUSTER.format(folder=tmp_path)), slurm.environment)
    try:
        wait_for_round(tmp_path / "run", 3, process)
        first = slurm.running()
        assert len(first) == 2
        slurm.ask("scancel", first[0])
        assert result_of(process) == alone
    finally:
        process.kill()
        process.communicate()
    logs = {path.stem for path in (tmp_path / "logs").iterdir()}
    assert len(logs) > 2, f"no job took the place of the cancelled one: {logs}"
    assert not any((tmp_path / "certificates").iterdir())
    wait_until(lambda: not slurm.running(), "the jobs to end", 30)


def test_workers_end_with_a_driver_that_is_killed_and_the_run_is_resumed(slurm, job, alone, tmp_path):
    path = job(CLUSTER.format(folder=tmp_path))
    process = start_job(path, slurm.environment)
    wait_for_round(tmp_path / "run", 2, process)
    process.kill()
    process.communicate()
    wait_until(lambda: not slurm.running(), "workers without a scheduler to end", 100)
    assert result_of(start_job(path, slurm.environment)) == alone


@pytest.mark.timeout(600)
def test_a_driver_whose_time_is_over_goes_on_as_the_same_job(slurm, job, alone, root, tmp_path):
    """Slurm sends TERM before the end of a job's time; here it is sent in mid-run."""
    path = job("[cluster]\nlauncher = 'serial'")
    programs = os.pathsep.join([str(Path(sys.executable).parent), search_path()])
    done = subprocess.run(
        ["sbatch", "--parsable", "--mem=1G", f"--output={tmp_path}/driver.out",
         root / "cluster/deploy/job.sbatch", path],
        env={**os.environ, **slurm.environment, "PATH": programs}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    number, manifests = done.stdout.strip(), tmp_path / "run" / "manifests"
    wait_until((manifests / f"{3:08d}.json").exists, "round 3", 200)
    slurm.ask("scancel", "--batch", "--signal=TERM", number)
    wait_until(lambda: "Restarts=1" in slurm.ask("scontrol", "show", "job", number), "a second start", 60)
    assert "stopping after the current round" in (tmp_path / "driver.out").read_text()
    assert len(list(manifests.iterdir())) < 32
    # it waits for two minutes otherwise; in the second of its end Slurm would refuse to start it
    slurm.ask("scontrol", "update", f"JobId={number}", "StartTime=now+5")
    wait_until(lambda: not slurm.ask("squeue", "-h", "-j", number).strip(), "its end", 400)
    assert (bf.load(tmp_path / "run").digest, bf.open_codes(tmp_path / "codes.zarr").digest) == alone
    assert "going on after round" in (tmp_path / "driver.out").read_text()
