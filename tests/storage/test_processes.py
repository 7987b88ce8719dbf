"""Whether a process has ended, by what the system says of real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bitfleet.storage.events import Heartbeat
from bitfleet.storage.processes import has_ended, this_process
from bitfleet.storage.run import RunDirectory, status

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

BEATING = """
import sys, time
from bitfleet.storage.events import Heartbeat
with Heartbeat(sys.argv[1]):
    print("beats", flush=True)
    time.sleep(60)
"""


def test_of_processes_that_live_here_alone() -> None:
    name = this_process()
    assert name is not None
    assert not has_ended(name)
    boot, numbers, pid, started = name.split("/")
    assert pid == str(os.getpid())
    assert has_ended(f"{boot}/{numbers}/{pid}/{int(started) + 1}")  # its number was another's before
    assert has_ended(f"{boot}/{numbers}/{2**22 + 1}/1")  # beyond all numbers
    for other in (f"x/{numbers}/{pid}/1", f"{boot}/1/{2**22 + 1}/1", "a/b/c/d", "", None, 7, {}):
        assert not has_ended(other)  # of another machine, another container, or nonsense


def test_a_killed_driver_is_known_to_be_gone_at_once(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, {}).events().append("run_started")
    driver = subprocess.Popen(
        [sys.executable, "-c", BEATING, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "beats\n"
        assert status(tmp_path)["state"] == "running"
        os.kill(driver.pid, signal.SIGKILL)
        limit = time.monotonic() + 10
        while status(tmp_path)["state"] == "running" and time.monotonic() < limit:
            time.sleep(0.01)  # not waited for: it stays as a zombie
        found = status(tmp_path)
        assert (found["state"], found["heartbeat_age"] < 60) == ("interrupted", True)
    finally:
        driver.kill()
        driver.communicate()
    with Heartbeat(tmp_path):
        assert status(tmp_path)["state"] == "running"  # resumed
