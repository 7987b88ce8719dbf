"""A driver killed or paused at any point: `bitfleet resume` goes on to the same bits, as one chain."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import bitfleet as bf
import pytest
from bitfleet.storage.clean import clean_run
from bitfleet.storage.faults import POINTS
from bitfleet.storage.objects import LocalObjects
from bitfleet.storage.rounds import read_chain
from bitfleet.storage.verify import verify_run
from chaos_cases import METHODS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path


def check_finished(run: Path, data: Path, expected: tuple[str, str]) -> None:
    """The run ends in the undisturbed bits, verifies clean and leaves nothing behind after cleaning."""
    assert bf.load(run).digest == expected[0]
    assert bf.encode(run, data, run.parent / "codes.zarr").digest == expected[1]
    assert verify_run(run) == []
    clean_run(run, grace_seconds=0)
    assert verify_run(run) == []
    chain = read_chain(LocalObjects(run))
    assert [m.round for m in chain] == list(range(len(chain)))
    named = {record.path for m in chain for record in m.objects}
    there = {p.relative_to(run).as_posix() for p in (run / "objects").rglob("*") if p.is_file()}
    assert there <= named
    top = {p.name for p in run.iterdir()}
    assert top <= {"config.json", "events.jsonl", "manifests", "model.zarr", "objects"}


# the others in the long tests: storage/test_crashes.py kills at all of them, with a smaller driver
SOME = ("commit.between_objects", "commit.before_manifest", "create.after_link", "retention.before_delete")


@pytest.mark.parametrize(
    "point", [point if point in SOME else pytest.param(point, marks=pytest.mark.long) for point in POINTS]
)
def test_killed_at_every_point_of_a_commit(cli, driver, data, undisturbed, tmp_path, point):
    run = tmp_path / "run"
    process = driver(run, "posh", point, 3, "kill")
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert verify_run(run) == []
    if point == "commit.before_manifest":
        assert cli("verify", run, "--json")["problems"] == []
        cli("resume", run, "--scheduler", "serial")
        cli("clean", run, "--grace", "0", "--json")
    else:  # in this process, which has everything loaded
        bf.resume(run, scheduler="serial")
    check_finished(run, data, undisturbed("posh"))


# one method for each shape of state; the others in the long tests, since each starts several processes
SHAPES = ("itq", "ssbc-sketch")


@pytest.mark.parametrize(
    "case",
    [
        case if case in SHAPES else pytest.param(case, marks=pytest.mark.long)
        for case in METHODS
        if case != "posh"
    ],
)
def test_every_method_survives_its_driver(driver, data, undisturbed, tmp_path, case):
    run = tmp_path / "run"
    process = driver(run, case, "commit.before_manifest", 1, "kill")
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    bf.resume(run, scheduler="serial")
    check_finished(run, data, undisturbed(case))


def test_killed_before_the_first_round(cli, driver, data, undisturbed, tmp_path):
    run = tmp_path / "run"
    process = driver(run, "itq", "commit.before_list", 0, "kill")
    process.communicate(timeout=120)
    assert bf.resume(run).digest == undisturbed("itq")[0]
    cli("resume", run)  # a finished run: nothing to do, no error
    check_finished(run, data, undisturbed("itq"))


def test_a_paused_driver_that_was_overtaken_is_refused(cli, driver, data, undisturbed, tmp_path):
    run = tmp_path / "run"
    paused = driver(run, "posh", "commit.before_manifest", 2, "stop")
    _wait_until(lambda: _state(paused.pid) == "T", paused)
    cli("resume", run, "--scheduler", "serial")  # goes on to the end and retires the old rounds
    os.kill(paused.pid, signal.SIGCONT)
    _, complaint = paused.communicate(timeout=60)
    assert paused.returncode == 4, complaint
    assert "committed by" in complaint
    check_finished(run, data, undisturbed("posh"))


def test_two_drivers_on_one_run(cli, data, undisturbed, tmp_path):
    run = tmp_path / "run"
    job = ("train", data, run, "--method", "posh", "--n-bits", 96, "--n-active", 6, "--set", "n_epochs=4",
           "--block-rows", 128, "--fan-in", 3, "--scheduler", "serial")  # fmt: skip
    both = [cli.start(*job) for _ in range(2)]
    ends = [(p.communicate(timeout=120)[1], p.returncode) for p in both]
    codes = sorted(code for _, code in ends)
    assert codes in ([0, 0], [0, 4]), ends  # (0, 0) where one came after the other had ended
    for complaint, code in ends:
        if code == 4:
            assert "committed by" in complaint
    check_finished(run, data, undisturbed("posh"))


@pytest.mark.long  # a driver paused and overtaken is above
def test_the_command_line_paused_anywhere_and_overtaken_is_refused(cli, data, tmp_path):
    run = tmp_path / "run"
    paused = cli.start(
        "train", data, run, "--method", "posh", "--n-bits", 96, "--n-active", 6, "--set", "n_epochs=40",
        "--block-rows", 128, "--scheduler", "serial", "--json",
    )  # fmt: skip
    _wait_until(lambda: (run / "manifests/00000003.json").exists(), paused)
    os.kill(paused.pid, signal.SIGSTOP)
    result = cli("resume", run, "--scheduler", "serial", "--json")
    os.kill(paused.pid, signal.SIGCONT)
    _, complaint = paused.communicate(timeout=60)
    assert paused.returncode == 4, complaint
    assert "committed by" in complaint
    chain = read_chain(LocalObjects(run))
    assert [manifest.round for manifest in chain] == list(range(42))
    assert len({manifest.driver["pid"] for manifest in chain}) == 2
    assert bf.load(run).digest == result["digest"]
    assert cli("verify", run, "--json")["problems"] == []


def _wait_until(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def _state(pid: int) -> str:
    """The process state of proc(5): T = stopped."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0]
