"""One cell of a sweep: a method of one code length and seed, trained, encoded and measured on one data set.

A finished cell is a JSON file named after everything that decides its numbers, written once and never over
another; so a sweep that was killed, or grew, computes only what is missing.  A cell that was killed in the
middle goes on from the last round of its run.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..storage.digest import json_digest
from ..storage.objects import LocalObjects
from ..storage.safe import parse_json
from ..tasks.metrics import parse_metrics
from . import runs
from .api import encode_into
from .arrays import as_dataset
from .config import build_method, method_table
from .errors import ConfigError
from .evaluate import evaluate
from .executors import SERIAL
from .results import as_record

if TYPE_CHECKING:
    from pathlib import Path

    from ..storage.dataset import Dataset
    from .config_sweep import Sweep

FORMAT = "bitfleet-sweep-cell"
FORMAT_VERSION = 1
CELLS, WORK = "cells", "work"
MAX_BYTES = 2**20


@dataclass(frozen=True)
class Cell:
    """Where a cell stands in the sweep, and all that its numbers depend on.

    Attributes
    ----------
    data, method : str
        Name and label.
    n_bits, seed : int
    table : dict
        The method's name and parameters.
    rows, queries, train : str
        Paths of data sets.
    digests : tuple of str
        Theirs.
    metrics : tuple of str
    block_rows : int or None
    """

    data: str
    method: str
    n_bits: int
    seed: int
    table: dict[str, Any]
    rows: str
    queries: str
    train: str
    digests: tuple[str, str, str]
    metrics: tuple[str, ...]
    block_rows: int | None

    @property
    def key(self) -> str:
        """A digest of everything that decides the cell's numbers."""
        decides = {
            "format_version": FORMAT_VERSION,
            "method": self.table,
            "data": list(self.digests),
            "seed": self.seed,
            "metrics": list(self.metrics),
            "block_rows": self.block_rows,
        }
        return json_digest(decides)[:32]

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.method}, {self.n_bits} bits, seed {self.seed}, {self.data}"


def cells_of(sweep: Sweep) -> list[Cell]:
    """Return all cells, in the order of the file; `ConfigError` if data do not fit each other or a metric."""
    stored: dict[str, Dataset] = {}

    def found(path: str) -> Dataset:
        if path not in stored:
            stored[path] = as_dataset(path)
        return stored[path]

    for data in sweep.data:
        _require_fitting(sweep, found(data.path), found(data.queries), found(data.train or data.path))
    return [
        Cell(
            data=data.name,
            method=method.label,
            n_bits=n_bits,
            seed=seed,
            table=method_table(method.build(n_bits)),
            rows=data.path,
            queries=data.queries,
            train=data.train or data.path,
            digests=(
                found(data.path).digest,
                found(data.queries).digest,
                found(data.train or data.path).digest,
            ),
            metrics=sweep.sweep.metrics,
            block_rows=sweep.sweep.block_rows,
        )
        for data in sweep.data
        for method in sweep.method
        for n_bits in method.n_bits
        for seed in sweep.sweep.seeds
    ]


def _require_fitting(sweep: Sweep, rows: Dataset, queries: Dataset, train: Dataset) -> None:
    """Raise `ConfigError` for what would only be found when a method has been trained."""
    for other in (queries, train):
        if other.n_features != rows.n_features:
            raise ConfigError(
                f"expected rows of the same features in path, queries and train, got {other.n_features} in "
                f"{other.path} and {rows.n_features} in {rows.path}; was one of them made of other vectors?"
            )
    wanting = [metric.name for metric in parse_metrics(sweep.sweep.metrics) if metric.needs_labels]
    for dataset in (rows, queries):
        if wanting and not dataset.has_labels:
            raise ConfigError(
                f"{wanting[0]} needs labels and {dataset.path} has none; give labels (ingest --labels), "
                "or ask for metrics without, such as recall10@100"
            )


def read_cell(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """Return a finished cell's record; None if it is to be computed (a damaged record is set aside)."""
    path = folder / CELLS / f"{cell.key}.json"
    if not path.exists():
        return None
    try:
        record = parse_json(path.read_bytes()[: MAX_BYTES + 1], str(path))
    except ValueError:
        record = {}
    stated = record.pop("sha256", None)
    if record.get("format") == FORMAT and stated == json_digest(record):
        return record
    path.replace(path.with_suffix(".damaged"))
    return None


def compute_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Compute a cell and keep its record, unless it is there; runs in a task."""
    done = read_cell(folder, cell)
    if done is not None:
        return done
    for path, digest in zip((cell.rows, cell.queries, cell.train), cell.digests, strict=True):
        if as_dataset(path).digest != digest:
            raise ConfigError(f"{path} has changed since the sweep began; give the same command again")
    params = dict(cell.table)
    method = build_method(params.pop("name"), params)
    work = folder / WORK / cell.key
    fresh, begun = not work.exists(), time.perf_counter()
    model = runs.start(
        cell.train, work / "run", method, where=SERIAL, seed=cell.seed, block_rows=cell.block_rows
    )
    trained = time.perf_counter()
    shutil.rmtree(work / "codes.zarr", ignore_errors=True)
    codes = encode_into(model, as_dataset(cell.rows), work / "codes.zarr", SERIAL)
    encoded = time.perf_counter()
    result = evaluate(model, cell.rows, cell.queries, cell.metrics, codes=codes, seed=cell.seed)
    record: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "cell": cell.name,
        "model": model.digest,
        "codes": codes.digest,
        "metrics": as_record(result)["metrics"],
        "bytes_per_vector": bytes_per_vector(cell.table),
        "train_seconds": trained - begun if fresh else None,  # of one that was interrupted nobody knows
        "encode_microseconds": 1e6 * (encoded - trained) / codes.n_rows,
    }
    record["sha256"] = json_digest(record)
    text = json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    LocalObjects(folder / CELLS).create(f"{cell.key}.json", text.encode("utf-8"))
    shutil.rmtree(work, ignore_errors=True)
    record.pop("sha256")
    return record


def bytes_per_vector(table: dict[str, Any]) -> int:
    """Return the bytes of one code: its bits packed, or if that is less the numbers of its ones."""
    packed = math.ceil(table["n_bits"] / 8)
    n_active = table.get("n_active")
    if n_active is None:
        return packed
    return min(packed, math.ceil(n_active * math.ceil(math.log2(max(table["n_bits"], 2))) / 8))
