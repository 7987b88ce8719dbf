from __future__ import annotations

import os
import time

import pytest
from bitfleet.storage.clean import clean_run
from bitfleet.storage.errors import CorruptObject
from bitfleet.storage.events import Heartbeat
from bitfleet.storage.objects import LocalObjects
from bitfleet.storage.verify import verify_run

DEAD = "00000003-" + "a" * 32


@pytest.fixture
def run(driver, tmp_path):
    """A run of rounds 0 to 3, an unfinished attempt of round 3, and two unfinished writes."""
    driver.run(tmp_path, 3)
    (tmp_path / "objects" / DEAD / "w.zarr").mkdir(parents=True)
    (tmp_path / "objects" / DEAD / "w.zarr/zarr.json").write_text("{}")
    (tmp_path / "manifests/.tmp-1").write_text("{")
    (tmp_path / ".tmp-2").write_text("")
    return tmp_path


def grow_old(path, seconds):
    then = time.time() - seconds
    for folder, _, names in os.walk(path, topdown=False):
        for name in names:
            os.utime(os.path.join(folder, name), (then, then))
        os.utime(folder, (then, then))


DEBRIS = [".tmp-2", "manifests/.tmp-1", f"objects/{DEAD}"]


def test_debris_older_than_the_grace_time_is_removed(driver, run):
    assert clean_run(run) == []
    grow_old(run, 3601)
    assert clean_run(run, grace_seconds=3700) == []
    assert clean_run(run, dry_run=True) == DEBRIS
    assert (run / "objects" / DEAD).is_dir()
    assert clean_run(run) == DEBRIS
    assert clean_run(run) == []
    assert not any((run / name).exists() for name in DEBRIS)
    assert len(LocalObjects(run).list("objects")) == 2
    assert verify_run(run) == []


def test_a_young_file_protects_its_attempt(run):
    grow_old(run, 3601)
    (run / "objects" / DEAD / "w.zarr/zarr.json").write_text("{ }")
    assert f"objects/{DEAD}" not in clean_run(run)


def test_what_is_committed_or_not_ours_stays_however_old(driver, run):
    (run / "objects/notes").mkdir()
    (run / "report.html").write_text("")
    grow_old(run, 10**9)
    assert clean_run(run, grace_seconds=0) == DEBRIS
    assert (run / "objects/notes").is_dir()
    assert (run / "report.html").exists()
    assert verify_run(run) == []


def test_while_a_driver_lives_the_grace_time_is_a_minute(run):
    grow_old(run, 30)
    with Heartbeat(run):
        assert clean_run(run, grace_seconds=0) == []
    assert clean_run(run, grace_seconds=0) == DEBRIS


def test_retention_that_was_cut_short_is_finished(driver, run, tmp_path_factory):
    other = tmp_path_factory.mktemp("twin")
    driver.run(other, 0)
    first = LocalObjects(other).list("objects")[0]
    driver.run(other, 3, keep=9)
    driver.run(other, 4, keep=2)  # deletes rounds 0 to 2
    os.makedirs(other / "objects" / first / "weights.zarr")  # as if it had died within
    assert verify_run(other) == []
    assert clean_run(other) == [f"objects/{first}"]


def test_nothing_is_removed_from_a_damaged_run(run):
    (run / "manifests/00000001.json").unlink()
    with pytest.raises(CorruptObject, match=r"00000001.json is missing"):
        clean_run(run, grace_seconds=0)
    assert all((run / name).exists() for name in DEBRIS)


def test_a_negative_grace_time_is_refused(run):
    with pytest.raises(ValueError, match="grace_seconds >= 0"):
        clean_run(run, grace_seconds=-1)


def test_a_clock_that_was_set_back_keeps_no_debris_for_ever(run):
    grow_old(run, -7200)
    assert clean_run(run) == []
    assert clean_run(run, grace_seconds=0) == DEBRIS
