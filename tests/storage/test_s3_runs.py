"""A run in an object store: what is written there, damaged there, and told about it."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from bitfleet.storage.clean import clean_run
from bitfleet.storage.errors import CorruptObject, IdentityMismatch, ManifestConflict, UnsafeObject
from bitfleet.storage.events import HEARTBEAT, Heartbeat, ObjectEvents, heartbeat_age
from bitfleet.storage.rounds import read_chain
from bitfleet.storage.run import RunDirectory, status
from bitfleet.storage.s3_objects import objects_at
from bitfleet.storage.verify import verify_run

DRIVER = Path(__file__).with_name("run_driver.py")
DEAD = "00000003-" + "a" * 32


@pytest.fixture
def run(s3):
    return s3 / "runs/a run, with α"


def latest(driver, run):
    return RunDirectory.open(run).checkpoints(driver.IDENTITY).latest()


def test_a_run_in_a_bucket_is_the_run_in_a_folder(driver, run, tmp_path):
    driver.run(run, 4)
    driver.run(tmp_path, 4)
    assert driver.same(latest(driver, run), latest(driver, tmp_path))
    ours, theirs = (read_chain(objects_at(path)) for path in (run, tmp_path))
    for left, right in zip(ours, theirs, strict=True):
        assert [(r.path.split("/")[2:], r.size, r.sha256) for r in left.objects] == [
            (r.path.split("/")[2:], r.size, r.sha256) for r in right.objects
        ]
    names = {item["path"] for item in run.walk()}
    named = {record.path for manifest in ours[-2:] for record in manifest.objects}
    assert names == named | {f"manifests/{n:08d}.json" for n in range(5)} | {"config.json"}
    assert verify_run(run) == []
    assert b"AKIA" not in pickle.dumps(RunDirectory.open(run))


DAMAGES = {
    "truncate": lambda data, _: data[: len(data) // 2],
    "append": lambda data, _: data + b"\n",
    "flip": lambda data, _: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "another": lambda _, other: other,
}


@pytest.mark.long  # of a local run in test_corruption.py
def test_damage_to_any_object_is_a_named_error(driver, run):
    driver.run(run, 3)
    newest = json.loads((run / "manifests/00000003.json").read_bytes())
    before = json.loads((run / "manifests/00000002.json").read_bytes())
    pairs = {"config.json": "manifests/00000000.json", "manifests/00000003.json": "manifests/00000002.json"}
    pairs |= {
        item["path"]: item["path"].replace(newest["attempt"], before["attempt"]) for item in newest["objects"]
    }
    for name, other in pairs.items():
        path, sound, stale = run / name, (run / name).read_bytes(), (run / other).read_bytes()
        for damage, change in DAMAGES.items():
            path.put(change(sound, stale))
            with pytest.raises((CorruptObject, IdentityMismatch, UnsafeObject), match=path.name):
                latest(driver, run)
            if damage == "flip":
                assert name in {problem.path for problem in verify_run(run)}
        path.unlink()
        if name != "manifests/00000003.json":
            with pytest.raises(CorruptObject, match="is missing"):
                latest(driver, run)
        path.put(sound)
    assert latest(driver, run).round == 3


def test_of_two_drivers_in_two_threads_one_chain_comes(driver, run):
    """Both go for the same rounds at once; whoever loses one stops, and may start again."""
    driver.run(run, 0)
    losses, barrier = [], threading.Barrier(2)

    def drive() -> None:
        barrier.wait()
        while True:
            try:
                driver.run(run, 6)
                return
            except ManifestConflict as conflict:
                losses.append(str(conflict))

    threads = [threading.Thread(target=drive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert losses
    assert all("was committed by process" in loss for loss in losses)
    chain = read_chain(objects_at(run))
    assert [manifest.round for manifest in chain] == list(range(7))
    assert driver.same(latest(driver, run), driver.expected(6))
    assert verify_run(run) == []
    assert clean_run(run, grace_seconds=0) == []


@pytest.mark.parametrize(
    "point", ["commit.before_manifest", pytest.param("create.after_link", marks=pytest.mark.long)]
)
def test_a_driver_killed_in_a_commit_resumes_to_the_same_bits(driver, run, point):
    command = [sys.executable, str(DRIVER), str(run), "6", point, "kill", "3"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert verify_run(run) == []
    assert latest(driver, run).round == (3 if point == "create.after_link" else 2)
    driver.run(run, 6)
    assert driver.same(latest(driver, run), driver.expected(6))
    assert len(clean_run(run, grace_seconds=0)) == (point == "commit.before_manifest")
    assert verify_run(run) == []


@pytest.mark.long
def test_a_paused_driver_that_was_overtaken_is_refused(driver, run):
    command = [sys.executable, str(DRIVER), str(run), "12", "commit.before_manifest", "stop", "3"]
    sleeper = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert os.WIFSTOPPED(os.waitpid(sleeper.pid, os.WUNTRACED)[1])
        driver.run(run, 6)
    finally:
        sleeper.send_signal(signal.SIGCONT)
    _, complaint = sleeper.communicate(timeout=60)
    assert sleeper.returncode == 4, complaint
    assert f"was committed by process {os.getpid()} on " in complaint
    assert verify_run(run) == []


def test_only_debris_is_cleaned_and_only_when_it_is_old(driver, run):
    driver.run(run, 3)
    (run / "objects" / DEAD / "w.zarr/zarr.json").put(b"{}")
    (run / "objects/notes/mine").put(b"")
    assert clean_run(run) == []
    with Heartbeat(run):
        assert clean_run(run, grace_seconds=0) == []
    assert clean_run(run, grace_seconds=0, dry_run=True) == [f"objects/{DEAD}"]
    assert clean_run(run, grace_seconds=0) == [f"objects/{DEAD}"]
    assert clean_run(run, grace_seconds=0) == []
    assert (run / "objects/notes/mine").is_file()


def test_events_are_objects_that_are_made_once_and_read_in_order(run):
    log = ObjectEvents(run / "events")
    assert log.read() == []
    for number in range(5):
        log.append("round", number=number, text="zwei\nZeilen")
    (run / "events/notes.txt").put(b"\xff not an event")
    assert [event["number"] for event in log.read()] == list(range(5))
    assert {item["path"].count("/") for item in (run / "events").walk()} == {0}
    with pytest.raises(ValueError, match="JSON"):
        log.append("one", loss=float("nan"))


def test_an_event_that_cannot_be_recorded_is_a_warning(s3, caplog):
    ObjectEvents(type(s3)("no-such-bucket", "run/events")).append("one")
    assert "event 'one' is not recorded in s3://no-such-bucket/run/events" in caplog.text


def test_the_status_and_the_heartbeat_of_a_run(driver, run):
    assert heartbeat_age(run) is None
    directory = RunDirectory.create(run, driver.CONFIG)
    with Heartbeat(run, interval=0.02):
        (run / HEARTBEAT).unlink()
        while not (run / HEARTBEAT).exists():  # the test's time limit is the deadline
            time.sleep(0.02)
        directory.events().append("run_started", rounds=3)
        driver.run(run, 2)
        found = status(run)
        assert (found["state"], found["round"], found["rounds"]) == ("running", 2, 3)
        assert found["metrics"] == {"loss": driver.expected(2).scalars["loss"]}
    assert heartbeat_age(run) is None
    assert status(run)["state"] == "interrupted"
    directory.events().append("run_finished")
    assert status(run)["state"] == "finished"
    assert status(run / "absent")["round"] is None
