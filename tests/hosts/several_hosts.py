"""What the tests on several hosts share.

An ordinary module, unlike test modules: ``conftest.py`` puts its folder on the path.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

METHOD = {"name": "posh", "n_bits": 256, "n_active": 8, "n_epochs": 30}
BLOCK_ROWS = 256  # of 10,000 rows: 40 blocks


def need(*programs: str, package: str) -> None:
    """Skip the test unless this is root and all programs are there."""
    if os.geteuid() != 0:
        pytest.skip(f"needs root to start {programs[0]}")
    missing = [name for name in programs if shutil.which(name, path=search_path()) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)} (Debian: apt-get install {package})")


def search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start_job(
    path: Path, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> subprocess.Popen:
    command = [*prefix, sys.executable, "-m", "bitfleet.pipeline.cli", "run", str(path), "--json"]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def result_of(process: subprocess.Popen, seconds: float = 120) -> tuple[str, str]:
    """Digests of model and codes of a job that ends well."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, f"exit {process.returncode}\n{out}\n{err}"
    result = json.loads(out)
    return result["model"], result["codes"]


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.05)


def wait_for_round(run: Path, number: int, process: subprocess.Popen) -> None:
    """Wait until a round is committed while the job runs."""

    def reached() -> bool:
        assert process.poll() is None, process.communicate()
        return (run / f"manifests/{number:08d}.json").exists()

    wait_until(reached, f"round {number}", 200)
