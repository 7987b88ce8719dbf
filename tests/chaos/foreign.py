"""A scheduler and workers in processes of their own, as on a cluster that we have not launched.

An ordinary module, unlike test modules: ``conftest.py`` puts its folder on the path.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
QUICK = {  # as a user may have them; so that a test does not wait half a minute for a dead peer
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class Site:
    """Starts and kills the processes of a cluster; everything is gone after `close`.

    Attributes
    ----------
    address : str
        Of the scheduler.
    """

    def __init__(self, folder: Path, n_workers: int = 0, **options: str) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen] = []
        self._n_started = 0
        self.scheduler = self._start_scheduler(options)
        for _ in range(n_workers):
            self.start_worker()

    def start_worker(self, *arguments: str, nanny: bool = True) -> subprocess.Popen:
        """Start a worker of one thread; under a nanny it is replaced when it is killed."""
        self._n_started += 1
        own = ("--nthreads", "1", "--name", f"w{self._n_started}", "--host", "127.0.0.1")
        scratch = ("--local-directory", str(self.folder))
        watched = ("--nanny",) if nanny else ("--no-nanny",)
        return self._start("dask_worker", self.address, *own, *scratch, *watched, *arguments)

    def kill_scheduler(self) -> None:
        self.scheduler.kill()
        self.scheduler.wait()

    def worker_pids(self) -> list[int]:
        """Return the processes that compute: those that the nannies watch over; waits for one."""

        def found() -> list[int]:
            below = [child for process in self._processes for child in _children(process)]
            return [child.pid for child in below if _computes(child)]

        wait_until(found)
        return found()

    def close(self) -> None:
        """Kill all that is left."""
        for process in self._processes:
            for child in _children(process):
                child.kill()
            process.kill()
            process.wait()

    def left(self, seconds: float = 30) -> list[str]:
        """Wait until all processes have ended by themselves; return the commands of those that have not."""
        alive = [psutil.Process(p.pid) for p in self._processes if p.poll() is None]
        alive += [child for p in self._processes for child in _children(p)]
        _, alive = psutil.wait_procs(alive, timeout=seconds)
        return [" ".join(process.cmdline()) for process in alive]

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start_scheduler(self, options: dict[str, str]) -> subprocess.Popen:
        file = self.folder / f"scheduler-{time.monotonic_ns()}.json"
        started = self._start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file), **options
        )
        wait_until(file.exists)
        wait_until(lambda: file.read_text().strip().endswith("}"))
        self.address = json.loads(file.read_text())["address"]
        return started

    def _start(self, module: str, *arguments: str, **options: str) -> subprocess.Popen:
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        log = (self.folder / f"{module}-{len(self._processes)}.log").open("w")
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--no-dashboard"],
            env={**os.environ, **QUICK, "PYTHONPATH": path, **options},
            stdout=log,
            stderr=log,
        )
        log.close()
        self._processes.append(process)
        return process


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _children(process: subprocess.Popen) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _computes(process: psutil.Process) -> bool:
    """Tell a worker from the helpers that multiprocessing starts beside it."""
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
