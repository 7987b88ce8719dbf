"""A small real data set, the methods on it, and what each gives when nobody disturbs it."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import bitfleet as bf
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # workers inherit it: chaos_cases and slow_reader are modules

from chaos_cases import BLOCK_ROWS, digits, method_of

DRIVER = Path(__file__).with_name("driver.py")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 digits of 61 pixels as a data set of 8 blocks."""
    folder = tmp_path_factory.mktemp("data")
    np.save(folder / "digits.npy", digits(1000))
    bf.ingest(folder / "digits.npy", folder / "digits.zarr")
    return folder / "digits.zarr"


@pytest.fixture(scope="session")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory):
    """Return a function: case -> digests of model and codes of a run left alone."""
    folder = tmp_path_factory.mktemp("undisturbed")

    @functools.cache
    def digests(case: str) -> tuple[str, str]:
        name, params = method_of(case)
        model = bf.train(data, folder / case, name, block_rows=BLOCK_ROWS, **params)
        return model.digest, bf.encode(model, data, folder / f"{case}.codes").digest

    return digests


class Cli:
    """The command line as a process."""

    def start(self, *arguments: object) -> subprocess.Popen:
        command = [sys.executable, "-m", "bitfleet.pipeline.cli", *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __call__(self, *arguments: object, code: int = 0) -> dict:
        """Run to the end, expect an exit code, return the JSON result (of a ``--json`` call)."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, f"exit {process.returncode}, expected {code}\n{out}\n{err}"
        return json.loads(out) if out.strip().startswith("{") else {"stderr": err}


@pytest.fixture
def cli() -> Cli:
    return Cli()


@pytest.fixture
def driver(data: Path):
    """Return a function that starts the driver with a fault; whatever still runs at the end is killed."""
    processes = []

    def start(run: Path, case: str, point: str, commit: int, action: str) -> subprocess.Popen:
        name, params = method_of(case)
        table = json.dumps({"name": name, **params})
        command = [sys.executable, str(DRIVER), str(data), str(run), table, point, str(commit), action]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
