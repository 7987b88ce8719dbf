"""Cells of the table of bytes: one method at one size on one split of one data set, and what it finds.

A cell is computed once: its numbers are kept as a small JSON file, written whole or not at all, and read
again by the next run.  What the page's tables were made of is kept with the code, in `measured/bytes.json`.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from bitfleet.tasks.random import stream
from mnist import load_gist
from pursuit import load_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parent / "results" / "bytes"
MEASURED = Path(__file__).resolve().parent / "measured" / "bytes.json"
GLOVE = Path(__file__).resolve().parent / "data" / "glove100.npz"
N_QUERIES, N_TRAIN, N_NEIGHBORS = 1_000, 20_000, 10
CUTOFFS = (10, 100)
FACTOR = 3  # candidates that the original vectors put in order, for each item wanted
DEPTH = FACTOR * max(CUTOFFS)
VALIDATION = 1000  # the split whose queries no other split draws: settings are chosen on it
#: data set: (its neighbours are by cosine, else Euclidean)
COSINE = {"sentences": True, "glove": True, "gist": False}


def load_glove() -> np.ndarray:
    """Return the GloVe vectors of the 60,000 most frequent words, float32 of shape (60000, 100)."""
    if not GLOVE.is_file():
        raise SystemExit(f"expected {GLOVE}; make it with: python benchmarks/make_glove.py")
    with np.load(GLOVE) as file:
        return file["X"]


@dataclass(frozen=True)
class Cell:
    """One method at one size.

    Attributes
    ----------
    data : str
        Of `COSINE`.
    row : str
        The method.
    n_bytes : int
        What a code may take.
    split : int
        Draws queries and training rows, and the start of the method.
    """

    data: str
    row: str
    n_bytes: int
    split: int

    @property
    def file(self) -> Path:
        """Where the cell's numbers are kept."""
        return FOLDER / f"{self.data}-{self.row}-{self.n_bytes}-split{self.split}.json"


@dataclass(frozen=True)
class Split:
    """What is searched, what is asked, what is learned from; and the right answers."""

    base: np.ndarray
    queries: np.ndarray
    train: np.ndarray
    true: np.ndarray
    seed: int
    cosine: bool


@functools.lru_cache(maxsize=2)
def draw_split(data: str, seed: int) -> Split:
    """Draw queries, and training rows among the others; the queries of the validation are nobody else's."""
    vectors = {
        "sentences": lambda: load_sentences()[0],
        "glove": load_glove,
        "gist": lambda: load_gist(None)[0],
    }
    rows = vectors[data]()
    if COSINE[data]:
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    order = stream(VALIDATION, "bytes.split").permutation(len(rows))
    held, rest = order[:N_QUERIES], order[N_QUERIES:]
    if seed == VALIDATION:
        queries, base = held, rest
    else:
        shuffled = stream(seed, "bytes.split").permutation(rest)
        queries, base = shuffled[:N_QUERIES], np.concatenate([shuffled[N_QUERIES:], held])
    train = stream(seed, "bytes.training").choice(base, N_TRAIN, replace=False)
    found = Split(rows[base], rows[queries], rows[train], np.empty(0), seed, COSINE[data])
    kept = FOLDER / f"true-{data}-split{seed}.npy"
    if not kept.is_file():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with kept.with_suffix(f".{os.getpid()}.partial").open("xb") as file:
            np.save(file, nearest(found, N_NEIGHBORS))
        Path(file.name).replace(kept)
    true = np.load(kept)
    return Split(found.base, found.queries, found.train, true, seed, COSINE[data])


def nearest(split: Split, k: int) -> np.ndarray:
    """Return the k nearest rows of the base by the vectors themselves, equal ones by id."""
    base = split.base.astype(np.float64)
    squares = np.einsum("ij,ij->i", base, base)
    found = []
    for at in range(0, len(split.queries), 100):
        distances = squares - 2 * (split.queries[at : at + 100].astype(np.float64) @ base.T)
        close = np.argpartition(distances, 4 * k, axis=1)[:, : 4 * k]
        close.sort(axis=1)
        order = np.argsort(np.take_along_axis(distances, close, axis=1), axis=1, kind="stable")[:, :k]
        found.append(np.take_along_axis(close, order, axis=1))
    return np.concatenate(found)


def saved(cell: Cell) -> dict[str, Any] | None:
    """Return a cell's numbers, None if it was not computed yet or only its rounded ones are left."""
    try:
        values = json.loads(cell.file.read_text())
    except FileNotFoundError:
        values = _measured().get(cell.file.stem)
    return None if values is None or values.get("former") else values


@functools.cache
def _measured() -> dict[str, dict[str, Any]]:
    return json.loads(MEASURED.read_text()) if MEASURED.is_file() else {}


def all_saved() -> dict[str, dict[str, Any]]:
    """Return the numbers of all cells there are, by the names of their files, in order."""
    found = _measured() | {file.stem: json.loads(file.read_text()) for file in FOLDER.glob("*.json")}
    return dict(sorted(found.items()))


def keep_measured() -> None:
    """Write all cells there are to the file that is kept with the code, a line for each."""
    lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in all_saved().items()]
    MEASURED.parent.mkdir(exist_ok=True)
    MEASURED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def keep(cell: Cell, values: dict[str, Any]) -> dict[str, Any]:
    """Write a cell's numbers, whole or not at all, and return them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    partial = cell.file.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(values))
    partial.replace(cell.file)
    return values


def recalls(split: Split, way: str, ids: np.ndarray) -> dict[str, float]:
    """Return recall10@10 and @100 in percent of lists of `DEPTH` ids, as found and rescored."""
    values = {}
    for n in CUTOFFS:
        values[f"{way}@{n}"] = _share(split, ids[:, :n])
        values[f"{way} rescored@{n}"] = _share(split, ids[:, : FACTOR * n])  # true ones come first of these
    return values


def _share(split: Split, ids: np.ndarray) -> float:
    found = (split.true[:, :, None] == ids[:, None, :]).any(axis=2)
    return round(100 * float(found.mean()), 3)


@contextmanager
def measured(values: dict[str, Any], what: str) -> Iterator[None]:
    """Note the CPU seconds of this thread, and the memory that was needed above what there was before."""
    before = _peak(reset=True)
    begun = time.thread_time()
    yield
    values[f"{what} seconds"] = round(time.thread_time() - begun, 3)
    values[f"{what} MB"] = round((_peak() - before) / 1e6, 1)


def _peak(*, reset: bool = False) -> int:
    """Return the greatest resident size since the last reset in bytes (the present one after a reset)."""
    if reset:
        ctypes.CDLL(None).malloc_trim(0)  # else what former cells have freed would serve this one unseen
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
