"""Cells of the POSH paper's tables: one method at one length on one random split, and its measures.

A cell is computed once: its numbers are kept as a small JSON file, written whole or not at all, and read
again by the next run.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline.encode import encode_to
from bitfleet.pipeline.evaluate import evaluate
from bitfleet.pipeline.model import Model
from bitfleet.pipeline.preprocess import moments_of
from bitfleet.pipeline.train import train
from bitfleet.storage.datasets import ArrayReader
from bitfleet.storage.memory import MemoryCheckpoints
from bitfleet.tasks.leaves import plan_leaves
from bitfleet.tasks.protocols import DataInfo
from bitfleet.tasks.random import stream
from bitfleet.tasks.registry import get
from mnist import load_gist, load_mnist, load_mnist_gist

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bitfleet.storage.codes import Codes
    from bitfleet.tasks.protocols import Arrays, Method

FOLDER = Path(__file__).resolve().parent / "results" / "paper"
N_TRAIN = 5_000
QUERIES_PER_CLASS = {"mnist": 100, "mnist_gist": 700, "cifar10_gist": 600}
LOADERS = {"mnist": load_mnist, "mnist_gist": load_mnist_gist, "cifar10_gist": load_gist}

#: row of a table: (method, its parameters); "n_components: bits" stands for the code's length
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "lsh": ("lsh", {"n_components": "bits"}),
    "itq": ("itq", {}),
    "knnh": ("knnh", {}),
    "fruit_fly": ("fruit_fly", {}),
    "fruit_fly_orthogonal": ("fruit_fly", {"matrix": "orthogonal"}),
    "biohash": ("biohash", {}),
    "biohash_110_epochs": ("biohash", {"n_epochs": 110}),
    "biohash_200_epochs": ("biohash", {"n_epochs": 200}),
    "spherical_hash": ("spherical_hash", {}),
    "bosl": ("bosl", {}),
    "posh": ("posh", {}),
    "posh_paper_1_epoch": ("posh", {"schedule": "paper", "n_epochs": 1}),
    "posh_pca64": ("posh", {"n_components": 64}),
    "posh_pca64_20_epochs": ("posh", {"n_components": 64, "n_epochs": 20}),
    "posh_pca64_union": ("posh", {"n_components": 64, "schedule": "union"}),
    "posh_pca64_union_20_epochs": ("posh", {"n_components": 64, "schedule": "union", "n_epochs": 20}),
}
#: rows whose training does not look at n_active: one training serves all lengths
SHARED = {name for name, (method, _) in ROWS.items() if method in ("biohash", "spherical_hash", "fruit_fly")}


@dataclass(frozen=True)
class Cell:
    """One number of a table (or several that come from the same codes).

    Attributes
    ----------
    data : str
    row : str
        A key of `ROWS`.
    bits : int
        Code length of dense methods, ones per code of sparse ones.
    length : int
        Code length D of sparse methods.
    trial : int
        Draws the split, the training rows and the start.
    measure : {"1000", "full", "refined", "recall"}
        MAP@1000 and Precision@1000; MAP over all targets; MAP@100 with and without candidate refinement;
        how many of the 10 true neighbours are among the first 10 and 100.
    """

    data: str
    row: str
    bits: int
    length: int
    trial: int
    measure: str = "1000"

    @property
    def file(self) -> Path:
        """Where the cell's numbers are kept."""
        name = f"{self.row}-{self.bits}-of-{self.length}-{self.measure}-trial{self.trial}.json"
        return FOLDER / "cells" / self.data / name

    def method(self) -> Method:
        """Return the method with its parameters."""
        name, params = ROWS[self.row]
        cls = get(name)
        params = {key: self.bits if value == "bits" else value for key, value in params.items()}
        if cls.sparse:
            return cls(n_bits=self.length, n_active=self.bits, **params)
        return cls(n_bits=self.bits, **params)


@dataclass(frozen=True)
class Trial:
    """One random split, and what all methods share of it."""

    targets: tuple[np.ndarray, np.ndarray]
    queries: tuple[np.ndarray, np.ndarray]
    training: np.ndarray
    moments: Arrays
    seed: int


def saved(cell: Cell) -> dict[str, float] | None:
    """Return a cell's numbers, None if it was not computed yet."""
    try:
        return json.loads(cell.file.read_text())
    except FileNotFoundError:
        return None


def compute(cell: Cell) -> dict[str, float]:
    """Train, measure and keep; in percent, and the CPU seconds that it took."""
    begun = time.process_time()
    trial = draw_trial(cell.data, cell.trial)
    model = _trained(cell, trial)
    values = _measures(cell, trial, model)
    if "mean_length" in model.state.scalars:  # how far BioHash has come
        values["mean_length"] = float(model.state.scalars["mean_length"])
    values["cpu_seconds"] = round(time.process_time() - begun, 1)
    cell.file.parent.mkdir(parents=True, exist_ok=True)
    partial = cell.file.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(values))
    partial.replace(cell.file)
    return values


@functools.lru_cache(maxsize=1)
def draw_trial(data: str, seed: int) -> Trial:
    """Split the data: so many queries per class, the rest as targets, in random order."""
    vectors, labels = _loaded(data)
    order = stream(seed, "paper.split").permutation(len(labels))
    is_query = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        is_query[order[labels[order] == label][: QUERIES_PER_CLASS[data]]] = True
    targets, queries = order[~is_query[order]], order[is_query[order]]
    training = stream(seed, "paper.training").choice(targets, N_TRAIN, replace=False)
    reader = ArrayReader(vectors[targets])
    moments = moments_of(reader, SerialExecutor(), get("itq")(n_bits=16), fan_in=8)
    return Trial(
        (reader.vectors, labels[targets]),
        (vectors[queries], labels[queries]),
        vectors[training],
        moments,
        seed,
    )


@functools.lru_cache(maxsize=1)
def _loaded(data: str) -> tuple[np.ndarray, np.ndarray]:
    return LOADERS[data](None)


_LAST: dict[Cell, Model] = {}


def _trained(cell: Cell, trial: Trial) -> Model:
    """Return the cell's model; rows that do not look at n_active are trained once a trial."""
    shared = cell.row in SHARED and cell.length >= trial.training.shape[1]  # else n_active components
    key = dataclasses.replace(cell, measure="", bits=0 if shared else cell.bits)
    if key not in _LAST:
        _LAST.clear()
        _LAST[key] = fit(cell.method(), trial.training, trial.moments, trial.seed)
    model = _LAST[key]
    return Model(cell.method(), model.state, model.info)


def fit(method: Method, rows: np.ndarray, moments: Arrays, seed: int) -> Model:
    """Train in this process, mean and principal components from ``moments``."""
    reader = ArrayReader(rows)
    info = DataInfo(reader.n_rows, reader.n_features, reader.dtype)
    plan = plan_leaves(info.n_rows, info.n_features, min_leaves=method.min_leaves)
    state = train(method, reader, SerialExecutor(), MemoryCheckpoints(), plan, seed, moments=lambda: moments)
    return Model(method, state, info)


def _measures(cell: Cell, trial: Trial, model: Model) -> dict[str, float]:
    if cell.measure == "refined":
        return _refined(trial, model)
    if cell.measure == "full":
        with _codes(trial, model) as codes:
            return {"map": _values(trial, model, (f"map@{codes.n_rows}",), codes=codes)[0]}
    metrics = ("recall10@10", "recall10@100") if cell.measure == "recall" else ("map@1000", "precision@1000")
    return dict(zip(metrics, _values(trial, model, metrics), strict=True))


def _refined(trial: Trial, model: Model) -> dict[str, float]:
    """MAP@100 of the codes alone, and after candidate refinement by a decoder of the training rows."""
    from bitfleet.pipeline.refine import fit_decoder

    with_decoder = fit_decoder(model, trial.training)
    with _codes(trial, model) as codes:
        values = {"map@100": _values(trial, model, ("map@100",), codes=codes)[0]}
        for factor in (2, 5, 10):
            refined = _values(trial, with_decoder, ("map@100",), codes=codes, refine=factor)
            values[f"map@100 CR{factor}"] = refined[0]
    return values


def _values(trial: Trial, model: Model, metrics: tuple[str, ...], **options: Any) -> list[float]:
    """Measure, in percent."""
    result = evaluate(model, trial.targets, trial.queries, metrics, seed=trial.seed, **options)
    return [100 * float(value) for value in result["value"].values]


@contextmanager
def _codes(trial: Trial, model: Model) -> Iterator[Codes]:
    """Encode the targets once for measures that go over them several times."""
    with tempfile.TemporaryDirectory() as folder:
        reader = ArrayReader(trial.targets[0])
        yield encode_to(model, reader, "targets of a trial", Path(folder) / "codes.zarr", SerialExecutor())
