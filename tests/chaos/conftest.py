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

from chaos_cases import DTYPES, PLAN, digits, labels, method_of

DRIVER = Path(__file__).with_name("driver.py")


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """1,000 digits of 61 pixels by their type in memory, as data sets of 8 blocks."""
    folder = tmp_path_factory.mktemp("data")
    for dtype in DTYPES:
        np.savez(folder / f"{dtype}.npz", X=digits(1000, dtype), y=labels(1000))
        bf.ingest(folder / f"{dtype}.npz", folder / f"{dtype}.zarr")
    return {dtype: folder / f"{dtype}.zarr" for dtype in DTYPES}


@pytest.fixture(scope="session")
def data(datasets) -> Path:
    """The digits as they are."""
    return datasets["float32"]


@pytest.fixture(scope="session")
def rechunked(datasets, tmp_path_factory: pytest.TempPathFactory):
    """Return a function: the same data from three files, in chunks of so many rows."""
    folder = tmp_path_factory.mktemp("rechunked")

    @functools.cache
    def ingested(chunk_rows: int, dtype: str) -> Path:
        files = [folder / f"{chunk_rows}-{dtype}-{i}.npz" for i in range(3)]
        parts = zip(np.array_split(digits(1000, dtype), 3), np.array_split(labels(1000), 3), strict=True)
        for file, (X, y) in zip(files, parts, strict=True):
            np.savez(file, X=X, y=y)
        again = bf.ingest(files, folder / f"{chunk_rows}-{dtype}.zarr", chunk_rows=chunk_rows)
        assert again.chunk_rows == chunk_rows
        assert again.digest == bf.open_dataset(datasets[dtype]).digest
        return Path(again.path)

    return ingested


@pytest.fixture(scope="session")
def undisturbed(datasets, tmp_path_factory: pytest.TempPathFactory):
    """Return a function: case, type -> digests of model and codes of a run left alone, in this process."""
    folder = tmp_path_factory.mktemp("undisturbed")

    @functools.cache
    def digests(case: str, dtype: str) -> tuple[str, str]:
        name, params = method_of(case)
        path = folder / f"{case}-{dtype}"
        model = bf.train(datasets[dtype], path, name, **PLAN, **params)
        assert model.info.dtype == dtype
        return model.digest, bf.encode(model, datasets[dtype], path.with_suffix(".codes")).digest

    return lambda case, dtype="float32": digests(case, dtype)


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
