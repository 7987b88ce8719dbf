"""Drivers killed, paused and racing: what they leave behind resumes to the same bits, as one chain."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bitfleet.storage.clean import clean_run
from bitfleet.storage.faults import POINTS
from bitfleet.storage.objects import LocalObjects
from bitfleet.storage.rounds import read_chain
from bitfleet.storage.run import RunDirectory
from bitfleet.storage.verify import verify_run

DRIVER = Path(__file__).with_name("run_driver.py")
COMMITTED = POINTS[POINTS.index("create.after_link") :]
LAST = 6


def launch(*arguments) -> subprocess.Popen:
    command = [sys.executable, str(DRIVER), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def latest(driver, path):
    return RunDirectory.open(path).checkpoints(driver.IDENTITY).latest()


def files(path: Path) -> set[str]:
    return {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}


def check_finished(driver, path: Path, *, debris: bool) -> None:
    """The run is whole and ends in the right bits; cleaning leaves just what the manifests name."""
    assert driver.same(latest(driver, path), driver.expected(LAST))
    chain = read_chain(LocalObjects(path))
    assert [manifest.round for manifest in chain] == list(range(LAST + 1))
    assert verify_run(path) == []
    removed = clean_run(path, grace_seconds=0)
    assert debris or removed == []
    named = {record.path for manifest in chain[-2:] for record in manifest.objects}
    manifests = {f"manifests/{number:08d}.json" for number in range(LAST + 1)}
    assert files(path) == named | manifests | {"config.json"}
    assert verify_run(path) == []


# --- killed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "point"),
    [
        pytest.param(number, point, marks=pytest.mark.long if number == 0 else ())
        for number in (0, 3)
        for point in POINTS
    ],
)
def test_a_driver_killed_at_any_point_of_a_commit_resumes_to_the_same_bits(driver, tmp_path, point, number):
    if point == "retention.before_delete" and number == 0:
        number = 2  # the first round that supersedes another
    path = tmp_path / "run"
    process = launch(path, LAST, point, "kill", number)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, complaint
    assert verify_run(path) == []
    found = latest(driver, path)
    reached = number if point in COMMITTED else number - 1
    assert (-1 if found is None else found.round) == reached
    assert found is None or driver.same(found, driver.expected(reached))

    driver.run(path, LAST)
    check_finished(driver, path, debris=True)


@pytest.mark.long
def test_a_driver_killed_twenty_times_at_random_resumes_to_the_same_bits(driver, tmp_path):
    path, rounds, delays = tmp_path / "run", 400, random.Random(5)
    driver.run(path, 0)
    for _ in range(20):
        process = launch(path, rounds, "commit.after_retention", "kill", rounds + 1)
        time.sleep(delays.uniform(0.4, 1.2))
        process.kill()
        process.communicate(timeout=60)
        assert verify_run(path) == []
    driver.run(path, rounds)
    assert driver.same(latest(driver, path), driver.expected(rounds))
    clean_run(path, grace_seconds=0)
    assert len(LocalObjects(path).list("objects")) == 2
    assert verify_run(path) == []


# --- racing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["commit.before_list", "commit.before_manifest", "create.before_link"])
def test_of_two_drivers_one_goes_on_and_the_other_is_told_who(driver, tmp_path, point):
    path = tmp_path / "run"
    driver.run(path, 1)
    rivals = [launch(path, LAST, point, "wait", 2, tmp_path) for _ in range(2)]
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("ready-*"))) < 2:
        assert time.monotonic() < deadline, "the drivers did not come to the point"
        time.sleep(0.01)
    (tmp_path / "go").touch()
    complaints = {rival: rival.communicate(timeout=60)[1] for rival in rivals}
    winner, loser = sorted(rivals, key=lambda rival: rival.returncode)
    assert (winner.returncode, loser.returncode) == (0, 4), complaints
    assert f"was committed by process {winner.pid} on " in complaints[loser]
    writers = {manifest.driver["pid"] for manifest in read_chain(LocalObjects(path))[2:]}
    assert writers == {winner.pid}
    check_finished(driver, path, debris=False)


# --- paused ---------------------------------------------------------------------------------------------


SOME = ("commit.before_objects", "commit.before_manifest", "create.before_link", "create.after_link")


@pytest.mark.parametrize(
    "point", [point if point in SOME else pytest.param(point, marks=pytest.mark.long) for point in POINTS]
)
def test_a_paused_driver_that_was_overtaken_is_refused(driver, tmp_path, point):
    path, number = tmp_path / "run", 3
    sleeper = launch(path, 2 * LAST, point, "stop", number)
    try:
        _, status = os.waitpid(sleeper.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        driver.run(path, LAST)  # goes on and retires the rounds that the sleeper knows
        before = files(path)
    finally:
        sleeper.send_signal(signal.SIGCONT)
    _, complaint = sleeper.communicate(timeout=60)
    assert sleeper.returncode == 4, complaint
    assert f"was committed by process {os.getpid()} on " in complaint
    assert files(path) <= before
    check_finished(driver, path, debris=False)


def test_a_paused_driver_whose_attempt_was_cleaned_is_refused(driver, tmp_path):
    path = tmp_path / "run"
    sleeper = launch(path, LAST, "commit.before_manifest", "stop", 3)
    try:
        _, status = os.waitpid(sleeper.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        removed = clean_run(path, grace_seconds=0)
        assert [name[:17] for name in removed] == ["objects/00000003-"]
    finally:
        sleeper.send_signal(signal.SIGCONT)
    _, complaint = sleeper.communicate(timeout=60)
    assert sleeper.returncode == 1
    assert "was removed before round 3 was committed" in complaint
    driver.run(path, LAST)
    check_finished(driver, path, debris=False)
