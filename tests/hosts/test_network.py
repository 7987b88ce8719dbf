"""Three hosts on a network of their own: one is cut off and comes back; what a round sends is counted."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from bitfleet.cluster.security import temporary
from bitfleet.cluster.tree import depth
from several_hosts import need, result_of, start_job, wait_for_round, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.long

N_BITS, N_FEATURES = 1024, 784  # no PCA in front
CLUSTER = """
[cluster]
scheduler = "tls://10.213.7.1:8786"
[cluster.tls]
ca_file = "{ca_file}"
cert = "{cert}"
key = "{key}"
"""
WORKER = ["--nthreads", "1", "--memory-limit", "800 MiB", "--no-dashboard"]
# a worker that has lost its scheduler ends for good; what supervises it starts another
AGAIN_AND_AGAIN = ["sh", "-c", 'while true; do "$@"; sleep 1; done', "supervisor"]
# a cable that is cut is noticed when nothing is acknowledged for so long; Dask's own is 30 s
IMPATIENT = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s",
}


@dataclass
class Network:
    """Hosts 10.213.7.1, .2, .3 as network namespaces, joined by a bridge in a fourth one."""

    name: str
    processes: list[subprocess.Popen] = field(default_factory=list)

    def start(self) -> None:
        switch = f"{self.name}-switch"
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for host in (1, 2, 3):
            inside = f"{self.name}-{host}"
            ip("netns", "add", inside)
            ip(
                "-n",
                inside,
                "link",
                "add",
                "eth0",
                "type",
                "veth",
                "peer",
                "name",
                f"port{host}",
                "netns",
                switch,
            )
            ip("-n", switch, "link", "set", f"port{host}", "master", "bridge", "up")
            ip("-n", inside, "address", "add", f"10.213.7.{host}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                ip("-n", inside, "link", "set", link, "up")

    def run(self, host: int, *command: str, log: Path) -> subprocess.Popen:
        with log.open("wb") as out:
            process = subprocess.Popen(
                self.on(host, *command),
                stdout=out,
                stderr=out,
                env={**os.environ, **IMPATIENT},
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def on(self, host: int, *command: str) -> list[str]:
        return ["ip", "netns", "exec", f"{self.name}-{host}", *command]

    def cut(self, host: int) -> None:
        ip("-n", f"{self.name}-switch", "link", "set", f"port{host}", "down")

    def heal(self, host: int) -> None:
        ip("-n", f"{self.name}-switch", "link", "set", f"port{host}", "up")

    def sent(self) -> int:
        """Bytes that the three hosts have sent, frames and acknowledgements included."""
        counter = "/sys/class/net/eth0/statistics/tx_bytes"
        reads = [
            subprocess.run(self.on(host, "cat", counter), capture_output=True, text=True)
            for host in (1, 2, 3)
        ]
        return sum(int(read.stdout) for read in reads)

    def stop(self) -> None:
        for process in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for space in ("switch", 1, 2, 3):
            subprocess.run(["ip", "netns", "delete", f"{self.name}-{space}"], capture_output=True)


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[tuple[Network, str]]:
    """The hosts with a scheduler and two workers, and the cluster table that leads there."""
    need("ip", package="iproute2")
    network = Network(f"bitfleet-{secrets.token_hex(3)}")
    try:
        try:
            network.start()
        except AssertionError as error:
            pytest.skip(f"this machine does not let us make network namespaces: {error}")
        with temporary(tmp_path / "certificates") as (_security, files):
            tls = [f"--tls-{name.replace('_', '-')}={path}" for name, path in files.items()]
            dask = [sys.executable, "-m", "dask"]
            address = ["--protocol", "tls", "--host", "10.213.7.1", "--port", "8786"]
            command = [*dask, "scheduler", *address, "--no-dashboard", *tls]
            network.run(1, *command, log=tmp_path / "scheduler.log")
            for host in (2, 3):
                folder = str(tmp_path / f"scratch-{host}")
                command = [*dask, "worker", "tls://10.213.7.1:8786", "--host", f"10.213.7.{host}", *WORKER]
                command += ["--name", str(host), "--local-directory", folder, *tls]
                network.run(host, *AGAIN_AND_AGAIN, *command, log=tmp_path / f"worker-{host}.log")
            yield network, CLUSTER.format(**files)
    finally:
        network.stop()


def test_a_host_that_is_cut_off_and_comes_back(network, job, alone, tmp_path):
    hosts, cluster = network
    process = start_job(job(cluster), IMPATIENT, prefix=hosts.on(1))
    try:
        wait_for_round(tmp_path / "run", 3, process)
        hosts.cut(2)
        wait_for_round(tmp_path / "run", 5, process)  # the other one goes on alone
        process.send_signal(signal.SIGSTOP)  # it would be done before the host is back
        hosts.heal(2)
        log = tmp_path / "scheduler.log"
        wait_until(lambda: log.read_text().count("Register worker addr") == 3, "the host to come back")
        process.send_signal(signal.SIGCONT)
        assert result_of(process) == alone
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("block_rows", [256, 160])  # 40 and 63 blocks: two levels of merging both times
def test_what_a_round_sends(network, job, tmp_path, block_rows):
    """At most 1.2 x 8 D d (W + (W - 1)(f - 1) depth) bytes; the rows enter through the depth alone."""
    hosts, cluster = network
    process = start_job(job(cluster, block_rows, n_bits=N_BITS), prefix=hosts.on(1))
    try:
        wait_for_round(tmp_path / "run", 3, process)
        before, first = hosts.sent(), newest(tmp_path / "run")
        wait_for_round(tmp_path / "run", 13, process)
        after, last = hosts.sent(), newest(tmp_path / "run")
    finally:
        process.kill()
        process.communicate()
    n_workers, fan_in, n_leaves = 2, 8, -(-10_000 // block_rows)
    sums = n_workers + (n_workers - 1) * (fan_in - 1) * depth(n_leaves, fan_in)
    allowed = 8 * N_BITS * N_FEATURES * sums
    measured = (after - before) / (last - first)
    print(f"{measured / 2**20:.2f} MiB a round, allowed {allowed / 2**20:.2f} MiB x 1.2")
    assert measured <= 1.2 * allowed


def newest(run: Path) -> int:
    return max(int(path.stem) for path in (run / "manifests").iterdir())
