from __future__ import annotations

import json
import os
import time

import pytest
from bitfleet.storage import requests
from bitfleet.storage.errors import CorruptObject, DestinationExists, IdentityMismatch
from bitfleet.storage.events import HEARTBEAT, Heartbeat
from bitfleet.storage.run import RunDirectory, status


def test_create_then_open(driver, home):
    created = RunDirectory.create(home / "runs/a", driver.CONFIG)
    opened = RunDirectory.open(home / "runs/a")
    assert opened == created
    assert opened.config == driver.CONFIG
    assert opened.path == home / "runs/a"
    assert RunDirectory.exists(home / "runs/a")
    assert not RunDirectory.exists(home / "runs")


def test_creating_twice_is_the_same_run_if_the_configuration_is(home):
    first = RunDirectory.create(home, {"a": (1, 2), "b": {"c": 0.1}})
    before = (home / "config.json").read_bytes()
    assert RunDirectory.create(home, {"b": {"c": 0.1}, "a": [1, 2]}) == first
    assert (home / "config.json").read_bytes() == before


def test_another_configuration_is_a_conflict_that_names_each_field(home):
    RunDirectory.create(home, {"method": {"name": "posh", "n_bits": 64}, "seed": 0})
    with pytest.raises(IdentityMismatch) as caught:
        RunDirectory.create(home, {"method": {"name": "posh", "n_bits": 32}, "seed": 1})
    assert "method.n_bits: stored 64, given 32" in str(caught.value)
    assert "seed: stored 0, given 1" in str(caught.value)
    assert "name" not in str(caught.value)
    assert RunDirectory.open(home).config["seed"] == 0


def test_what_is_no_run_is_an_error(tmp_path):
    with pytest.raises(CorruptObject, match="there is no run there"):
        RunDirectory.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DestinationExists, match="is a file"):
        RunDirectory.create(tmp_path / "file", {})


@pytest.mark.parametrize("config", [{"a": float("inf")}, {"a": {1, 2}}, {1: 2}])
def test_a_configuration_is_json(tmp_path, config):
    with pytest.raises((TypeError, ValueError)):
        RunDirectory.create(tmp_path / "run", config)
    assert not (tmp_path / "run").exists()


def test_references_do_not_depend_on_the_working_directory(driver, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reference = driver.run("run", 1).reference()
    monkeypatch.chdir("/")
    assert driver.same(reference.load(), driver.expected(1))


# --- status ---------------------------------------------------------------------------------------------


def test_the_status_of_a_run_through_its_life(driver, tmp_path):
    run = RunDirectory.create(tmp_path, driver.CONFIG)
    assert status(tmp_path)["state"] == "interrupted"
    assert status(tmp_path)["round"] is None
    with Heartbeat(tmp_path):
        run.events().append("run_started", rounds=3)
        driver.run(tmp_path, 2)
        found = status(tmp_path)
        assert (found["state"], found["round"], found["rounds"]) == ("running", 2, 3)
        assert found["metrics"] == {"loss": driver.expected(2).scalars["loss"]}
        assert found["rate"] is None or found["rate"] > 0
        past = time.time() - 61
        os.utime(tmp_path / HEARTBEAT, (past, past))
        assert status(tmp_path)["state"] == "interrupted"
    for kind, state in {
        "run_failed": "failed",
        "run_interrupted": "interrupted",
        "run_finished": "finished",
    }.items():
        run.events().append("run_started")
        run.events().append(kind, error="disk full")
        assert status(tmp_path)["state"] == state
        assert status(tmp_path)["error"] == ("disk full" if state == "failed" else None)


def test_a_run_that_is_part_of_a_job_ends_with_the_job(tmp_path):
    log = RunDirectory.create(tmp_path, {}).events()
    log.append("job_submitted", submission="a")
    assert status(tmp_path)["state"] == "interrupted"  # nobody gives a sign of life
    with Heartbeat(tmp_path):
        for kind, fields, state in [
            ("job_started", {}, "running"),
            ("stage", {"stage": "train"}, "running"),
            ("run_started", {"of_job": True}, "running"),
            ("run_finished", {}, "running"),
            ("stage", {"stage": "encode"}, "running"),
            ("job_interrupted", {"reason": "cancelled"}, "interrupted"),
            ("job_submitted", {}, "running"),
            ("job_started", {}, "running"),
            ("job_failed", {"error": "disk full"}, "failed"),
            ("job_started", {}, "running"),
            ("job_finished", {}, "finished"),
            ("run_started", {}, "running"),  # a resume of the training alone
            ("run_interrupted", {"reason": "asked"}, "interrupted"),
        ]:
            log.append(kind, **fields)
            found = status(tmp_path)
            assert found["state"] == state, kind
            assert found["error"] == fields.get("error")
            assert found["reason"] == fields.get("reason")
    assert found["stage"] == "encode"


def test_a_dead_driver_of_a_submitted_job_is_waited_for(tmp_path):
    log = RunDirectory.create(tmp_path, {}).events()
    with Heartbeat(tmp_path):
        beat = json.loads((tmp_path / HEARTBEAT).read_text())
        if beat["process"] is None:
            pytest.skip("this system does not tell which processes there were")
        dead = beat | {"process": beat["process"] + "1"}  # this number, started at another time
        (tmp_path / HEARTBEAT).write_text(json.dumps(dead))
        for kind, fields, state in [
            ("run_started", {}, "interrupted"),
            ("job_started", {}, "interrupted"),
            ("job_submitted", {"submission": "a"}, "running"),
            ("job_started", {"submission": "a"}, "running"),
        ]:
            log.append(kind, **fields)
            assert status(tmp_path)["state"] == state, kind
        past = time.time() - 61
        os.utime(tmp_path / HEARTBEAT, (past, past))
        assert status(tmp_path)["state"] == "interrupted"


def test_requests_to_stop_are_seen_and_taken_back(tmp_path):
    RunDirectory.create(tmp_path, {})
    assert requests.stop_asked(tmp_path) is None
    requests.ask_to_stop(tmp_path)
    assert f"by process {os.getpid()} on " in requests.stop_asked(tmp_path)
    requests.withdraw(tmp_path)
    requests.withdraw(tmp_path)
    assert requests.stop_asked(tmp_path) is None
    requests.ask_to_stop(tmp_path, "s")  # by name: nobody else stops, nor takes it back
    requests.withdraw(tmp_path)
    assert requests.stop_asked(tmp_path) is requests.stop_asked(tmp_path, "t") is None
    assert requests.stop_asked(tmp_path, "s") is not None
    requests.announce_driver(tmp_path, "s", 3, "d")
    found = requests.announced_driver(tmp_path)
    assert (found["submission"], found["generation"], found["driver"]) == ("s", 3, "d")
    assert not requests.replaced(tmp_path, "d")
    assert requests.replaced(tmp_path, "c")
    (tmp_path / "driver.json").write_text('{"generation": "x"}')
    (tmp_path / "cancel.json").write_text("{")
    assert requests.announced_driver(tmp_path) is requests.stop_asked(tmp_path) is None


def test_a_damaged_run_has_a_status(driver, tmp_path):
    driver.run(tmp_path, 3)
    (tmp_path / "manifests/00000003.json").write_text("{")
    (tmp_path / "config.json").unlink()
    (tmp_path / "events.jsonl").write_bytes(b"\0\xff")
    assert (status(tmp_path)["state"], status(tmp_path)["round"]) == ("interrupted", 2)
    assert status(tmp_path / "absent")["round"] is None


def test_a_run_without_its_configuration_is_a_damaged_run(tmp_path):
    (tmp_path / "manifests").mkdir()
    assert RunDirectory.exists(tmp_path)
    with pytest.raises(CorruptObject, match=r"config\.json is missing"):
        RunDirectory.open(tmp_path)
