"""Cells of the table on sentence embeddings: one method at one size on one split, and what it finds.

A cell is computed once: its numbers are kept as a small JSON file, written whole or not at all, and read
again by the next run.
"""

from __future__ import annotations

import functools
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import faiss
import numpy as np
from bitfleet.pipeline.rescore import rescored
from bitfleet.tasks.random import stream
from mnist import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parent / "results" / "embeddings"
PLACES = tuple(
    folder / "wordnet_minilm384.npz" for folder in (ROOT.parent / "shared" / "data", ROOT / "benchmarks/data")
)
N_QUERIES, N_TRAIN, N_NEIGHBORS = 1_000, 20_000, 10
CUTOFFS = (10, 100)
FACTOR = 3  # candidates that the original vectors put in order, for each item wanted
N_BITS = 1024  # of sparse codes
N_BOSL = 2_000
_PLACE_BITS = (N_BITS - 1).bit_length()

#: row of the table: (estimator, its parameters)
DENSE: dict[str, tuple[str, dict[str, Any]]] = {
    "sign": ("Sign", {}),
    "lsh": ("LSH", {}),
    "itq": ("ITQ", {}),
    "knnh": ("KNNH", {}),
}
SPARSE: dict[str, tuple[str, dict[str, Any]]] = {
    "fruit_fly": ("FruitFly", {}),
    "biohash": ("BioHash", {}),
    "spherical_hash": ("SphericalHash", {}),
    "posh": ("POSH", {}),
    "bosl": ("BOSL", {}),
}
PEERS = ("faiss_pq", "faiss_opq", "faiss_rabitq")
ROWS = (*DENSE, *SPARSE, *PEERS)
#: rows whose training does not look at n_active: one model serves all sizes
SHARED = {"fruit_fly", "biohash", "spherical_hash"}


@dataclass(frozen=True)
class Cell:
    """One method at one size.

    Attributes
    ----------
    row : str
        Of `ROWS`.
    n_bytes : int
        What a code may take.
    split : int
        Draws queries and training rows, and the start of the method.
    """

    row: str
    n_bytes: int
    split: int

    @property
    def file(self) -> Path:
        """Where the cell's numbers are kept."""
        return FOLDER / "cells" / f"{self.row}-{self.n_bytes}-split{self.split}.json"

    @property
    def n_active(self) -> int:
        """Ones of a sparse code, each of which takes the bits of a place."""
        return 8 * self.n_bytes // _PLACE_BITS


@dataclass(frozen=True)
class Split:
    """Rows of length one: what is searched, what is asked, what is learned from; and the right answers."""

    base: np.ndarray
    queries: np.ndarray
    train: np.ndarray
    true: np.ndarray
    seed: int


def saved(cell: Cell) -> dict[str, Any] | None:
    """Return a cell's numbers, None if it was not computed yet."""
    try:
        return json.loads(cell.file.read_text())
    except FileNotFoundError:
        return None


def compute(cell: Cell) -> dict[str, Any]:
    """Train, search and keep: recalls in percent for each way to search, and the CPU seconds of training."""
    split = draw_split(cell.split)
    begun = time.process_time()
    values: dict[str, Any] = {}
    for way, ids in _peer(cell, split) if cell.row in PEERS else _ours(cell, split):
        if way == "bytes":  # comes first, as soon as training is done
            values = {"train_seconds": round(time.process_time() - begun, 1), "bytes": ids}
            continue
        values |= {f"{way}@{n}": _recall(split, ids[:, :n]) for n in CUTOFFS}
        for n in CUTOFFS:
            best = rescored(ids[:, : FACTOR * n], n, split.base, split.queries, None, metric="cosine")[1]
            values[f"{way} rescored@{n}"] = _recall(split, best)
    cell.file.parent.mkdir(parents=True, exist_ok=True)
    partial = cell.file.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(values))
    partial.replace(cell.file)
    return values


@functools.lru_cache(maxsize=1)
def draw_split(seed: int) -> Split:
    """Draw queries; the rest, in random order, is searched, and some of it learned from."""
    vectors = load_embeddings()
    order = stream(seed, "embeddings.split").permutation(len(vectors))
    base, queries = vectors[order[N_QUERIES:]], vectors[order[:N_QUERIES]]
    train = base[stream(seed, "embeddings.training").choice(len(base), N_TRAIN, replace=False)]
    similarity = queries.astype(np.float64) @ base.T.astype(np.float64)
    true = np.argpartition(-similarity, N_NEIGHBORS, axis=1)[:, :N_NEIGHBORS]
    return Split(base, queries, train, true, seed)


@functools.lru_cache(maxsize=1)
def load_embeddings() -> np.ndarray:
    """Return 50,000 sentence embeddings of length one, float32 of shape (50000, 384)."""
    found = next((place for place in PLACES if place.is_file()), None)
    if found is None:
        raise SystemExit(
            f"expected {PLACES[-1]} with X: 50,000 embeddings by all-MiniLM-L6-v2, shape (50000, 384)"
        )
    with np.load(found) as file:
        vectors = file["X"].astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def model_of(cell: Cell, split: Split) -> Any:
    """Return the trained estimator of a cell, or its model."""
    if cell.row in DENSE:
        name, params = DENSE[cell.row]
        params = {"n_bits": 8 * cell.n_bytes, "random_state": split.seed, **params}
        return getattr(bf, name)(**params).fit(split.train)
    name, params = SPARSE[cell.row]
    params = {"n_bits": N_BITS, "n_active": cell.n_active, "random_state": split.seed, **params}
    if cell.row not in SHARED:
        return getattr(bf, name)(**params).fit(split.train[:N_BOSL] if cell.row == "bosl" else split.train)
    state, info = _shared(cell.row, split.seed)
    estimator = getattr(bf, name)(**params)
    return bf.Model(estimator_method(estimator), state, info)


def estimator_method(estimator: Any) -> Any:
    """Return the method that an estimator's parameters make."""
    from bitfleet.pipeline.config import build_method

    params = estimator.get_params(deep=False)
    params.pop("random_state")
    return build_method(estimator._method, params)


@functools.lru_cache(maxsize=1)
def _shared(row: str, seed: int) -> tuple[Any, Any]:
    name, params = SPARSE[row]
    model = getattr(bf, name)(n_bits=N_BITS, n_active=32, random_state=seed, **params)
    fitted = model.fit(draw_split(seed).train).model_
    return fitted.state, fitted.info


def _ours(cell: Cell, split: Split) -> Iterator[tuple[str, Any]]:
    model = model_of(cell, split)
    depth = FACTOR * max(CUTOFFS)
    yield "bytes", cell.n_bytes if cell.row in DENSE else cell.n_active * _PLACE_BITS / 8
    packed = model.encode(split.base)
    if cell.row in DENSE:
        index = bf.CodeIndex(packed, n_bits=8 * cell.n_bytes)
        yield "symmetric", index.search(model.encode(split.queries), depth)[1]
        yield "asymmetric", index.search(bf.projections(model, split.queries), depth, asymmetric=True)[1]
        return
    index = bf.CodeIndex(packed, cell.n_active, n_bits=N_BITS)
    codes = model.encode(split.queries)
    yield "symmetric", index.search(codes, depth)[1]
    decoder = bf.fit_decoder(model, split.train).decoder
    everything = -(-len(split.base) // depth)  # all codes are candidates: by the decoder alone
    found = [
        index.search(
            codes[at : at + 50], depth, rescore=decoder, oversample=everything,
            query_vectors=split.queries[at : at + 50],
        )[1]
        for at in range(0, len(codes), 50)
    ]  # fmt: skip
    yield "asymmetric", np.concatenate(found)


def _peer(cell: Cell, split: Split) -> Iterator[tuple[str, Any]]:
    index = faiss_index(cell, split.base.shape[1])
    index.train(split.train)
    yield "bytes", index.sa_code_size()
    index.add(split.base)
    yield "asymmetric", index.search(split.queries, FACTOR * max(CUTOFFS))[1]


def faiss_index(cell: Cell, width: int) -> Any:
    """Return Faiss's index, with its own settings for training.

    PQ takes a byte for each part of the vector.  RaBitQ stores two floats beside its bits: as many principal
    components as fit, randomly rotated; where that is more than there are, two bits of each.
    """
    if cell.row == "faiss_pq":
        return faiss.IndexPQ(width, cell.n_bytes, 8)
    if cell.row == "faiss_opq":
        rotation = faiss.OPQMatrix(width, cell.n_bytes)
        return faiss.IndexPreTransform(rotation, faiss.IndexPQ(width, cell.n_bytes, 8))
    for bits in (2, 1):
        for kept in range(width, 0, -64):
            inner = faiss.IndexRaBitQ(kept, faiss.METRIC_L2, bits)
            if inner.code_size <= cell.n_bytes and not (bits == 2 and kept < width):
                inner.qb = 8  # bits of the query's numbers: more find no more
                return faiss.IndexPreTransform(faiss.PCAMatrix(width, kept, 0, True), inner)
    raise ValueError(f"RaBitQ has no code of {cell.n_bytes} bytes or less")


def _recall(split: Split, ids: np.ndarray) -> float:
    found = (split.true[:, :, None] == ids[:, None, :]).any(axis=2)
    return round(100 * float(found.mean()), 3)
