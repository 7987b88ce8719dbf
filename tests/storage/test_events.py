from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
from bitfleet.storage.events import HEARTBEAT, EventLog, Heartbeat, heartbeat_age


def kinds(log: EventLog) -> list[str]:
    return [event["kind"] for event in log.read()]


def test_events_are_read_in_order_with_time_and_fields(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    assert log.read() == []
    log.append("run_started", rounds=10)
    log.append("note", text="zwei\nZeilen", value=None)
    first, second = log.read()
    assert (first["kind"], first["rounds"]) == ("run_started", 10)
    assert first["time"].endswith("+00:00")
    assert (second["text"], second["value"]) == ("zwei\nZeilen", None)
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("keep", range(0, 40, 3))
def test_a_torn_last_line_costs_that_line_only(tmp_path, keep):
    log = EventLog(tmp_path / "events.jsonl")
    log.append("one")
    whole = log.path.read_bytes()
    log.append("two")
    log.path.write_bytes(log.path.read_bytes()[: len(whole) + keep])
    assert kinds(log) == ["one"]
    log.append("three")
    assert kinds(log) == ["one", "three"]


def test_lines_that_are_no_events_are_passed_over(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    log.path.write_bytes(b'\xff\xfe\n[]\n{"kind": 1}\n{}\n\n{"kind": "one"}\n')
    assert kinds(log) == ["one"]


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_neither_read_nor_written(tmp_path, put, caplog):
    log = EventLog(tmp_path / "events.jsonl")
    put(log.path)
    assert log.read() == []
    log.append("one")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_link_to_a_file_of_the_readers_is_not_written_to(tmp_path):
    (tmp_path / ".profile").write_text("mine\n")
    (tmp_path / "events.jsonl").symlink_to(tmp_path / ".profile")
    EventLog(tmp_path / "events.jsonl").append("error", error="$(true)")
    assert (tmp_path / ".profile").read_text() == "mine\n"


def test_lines_of_several_writers_do_not_mix(tmp_path):
    path = tmp_path / "events.jsonl"

    def write(number: int) -> None:
        for index in range(50):
            EventLog(path).append("event", writer=number, index=index, padding="x" * 300)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = EventLog(path).read()
    assert len(events) == 200
    for number in range(4):
        assert [e["index"] for e in events if e["writer"] == number] == list(range(50))


def test_failing_to_record_is_a_warning(tmp_path, caplog):
    EventLog(tmp_path / "absent" / "events.jsonl").append("one")
    assert "event 'one' is not recorded" in caplog.text


def test_values_that_are_no_json_are_the_callers_mistake(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        EventLog(tmp_path / "events.jsonl").append("one", loss=float("nan"))


def test_a_heartbeat_is_renewed_and_removed(tmp_path):
    assert heartbeat_age(tmp_path) is None
    with Heartbeat(tmp_path, interval=0.01):
        (tmp_path / HEARTBEAT).unlink()
        waiting = threading.Event()
        while not (tmp_path / HEARTBEAT).exists():  # the test's time limit is the deadline
            waiting.wait(0.01)
        assert set(json.loads((tmp_path / HEARTBEAT).read_text())) == {"id", "host", "pid", "process", "time"}
        assert heartbeat_age(tmp_path) < 60
    assert heartbeat_age(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_driver_does_not_stop_the_heart_of_another(tmp_path):
    with Heartbeat(tmp_path):
        with Heartbeat(tmp_path):
            (tmp_path / HEARTBEAT).write_text('{"id": "another"}')
        assert heartbeat_age(tmp_path) is not None


def test_a_heartbeat_from_the_future_is_no_sign_of_life(tmp_path):
    with Heartbeat(tmp_path):
        ahead = time.time() + 7200
        os.utime(tmp_path / HEARTBEAT, (ahead, ahead))
        assert 7100 < heartbeat_age(tmp_path) < 7300
