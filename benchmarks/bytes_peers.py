"""Faiss's quantizers at exactly the bytes of a cell, with the training that is written here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import faiss
import numpy as np
from bytes_cells import DEPTH, measured, recalls

if TYPE_CHECKING:
    from bytes_cells import Cell, Split

PEERS = ("pq", "opq", "sq4", "sq8", "rabitq", "rq", "lsq")
ADDITIVE = ("rq", "lsq")
_SOME = 50  # of so many queries one is timed where Faiss decodes all rows anew for each of them
_OPQ_ROUNDS = 15  # of 4 iterations each; Faiss's own 50 take three times as long
_RQ_WIDTH = 128  # features up to which its clustering goes through progressive dimensions, which costs most
_RQ_BEAM = 16  # of encoding; Faiss's own is 5


def compute(cell: Cell, split: Split) -> dict[str, Any] | None:
    """Train, encode, search; None if the method has no code of this size.

    Beside Faiss's own distances, vectors that it decodes are compared by cosine where that is what is asked
    for: it costs no byte, and mostly finds more.
    """
    index = make_index(cell.row, cell.n_bytes, split.base.shape[1], split.seed)
    if index is None:
        return None
    values: dict[str, Any] = {}
    with measured(values, "train"):
        index.train(split.train)
    prepare_encoding(index)
    values["bytes"] = index.sa_code_size()
    with measured(values, "encode"):
        index.add(split.base)
    some = split.queries[:: _SOME if cell.row in ADDITIVE else 1]
    with measured(values, "search"):
        ids = index.search(some, DEPTH)[1]
    values["search seconds"] *= len(split.queries) / len(some)
    if len(some) < len(split.queries):
        ids = _by_distance(split, index.reconstruct_n(0, len(split.base)))
    values |= recalls(split, "asymmetric", ids)
    if split.cosine and cell.row != "rabitq":
        values |= recalls(
            split, "cosine of decoded", _by_cosine(split, index.reconstruct_n(0, len(split.base)))
        )
    return values


def make_index(row: str, n_bytes: int, width: int, seed: int) -> Any:
    """Return Faiss's index of codes of so many bytes, None if there is none."""
    if row in ("pq", "opq"):
        padded = -(-width // n_bytes) * n_bytes
        if padded > 2 * width:
            return None
        inner = faiss.IndexPQ(padded, n_bytes, 8)
        inner.pq.cp.seed = seed
        if row == "opq":
            rotation = faiss.OPQMatrix(width, n_bytes, padded)
            rotation.niter = _OPQ_ROUNDS
            return faiss.IndexPreTransform(rotation, inner)
        if padded == width:
            return inner
        rotation = faiss.RandomRotationMatrix(width, padded)  # zeros alone would leave the last parts idle
        rotation.init(seed)
        return faiss.IndexPreTransform(rotation, inner)
    if row in ("sq4", "sq8"):
        return _scalar(row, n_bytes, width)
    if row == "rabitq":
        return _rabitq(n_bytes, width)
    if row == "rq":
        index = faiss.IndexResidualQuantizer(width, n_bytes, 8)  # Faiss's own training, with a beam of 5
        if width > _RQ_WIDTH:
            index.rq.train_type = faiss.ResidualQuantizer.Train_default
        return index
    if row == "lsq":
        return faiss.IndexLocalSearchQuantizer(width, n_bytes, 8)
    raise ValueError(f"unknown row {row!r}")


def prepare_encoding(index: Any) -> None:
    """Let a residual quantizer search wider when it encodes than when it was trained."""
    if isinstance(index, faiss.IndexResidualQuantizer):
        index.rq.max_beam_size = _RQ_BEAM
        index.rq.use_beam_LUT = 1


def _scalar(row: str, n_bytes: int, width: int) -> Any:
    """As many principal components as fit, none if there are fewer than that many."""
    kind, per_byte = {
        "sq4": (faiss.ScalarQuantizer.QT_4bit, 2),
        "sq8": (faiss.ScalarQuantizer.QT_8bit, 1),
    }[row]
    kept = min(per_byte * n_bytes, width)
    if kept < per_byte * n_bytes:
        return None
    return faiss.IndexPreTransform(
        faiss.PCAMatrix(width, kept), faiss.IndexScalarQuantizer(kept, kind, faiss.METRIC_L2)
    )


def _rabitq(n_bytes: int, width: int) -> Any:
    """RaBitQ with the most bits a component that keeps all of them, else one bit of as many as fit."""
    for bits in range(9, 0, -1):
        inner = faiss.IndexRaBitQ(width, faiss.METRIC_L2, bits)
        if inner.code_size <= n_bytes:
            inner.qb = 8
            return faiss.IndexPreTransform(faiss.RandomRotationMatrix(width, width), inner)
    for kept in range(width - width % 8, 0, -8):
        inner = faiss.IndexRaBitQ(kept, faiss.METRIC_L2, 1)
        if inner.code_size <= n_bytes:
            inner.qb = 8
            return faiss.IndexPreTransform(faiss.PCAMatrix(width, kept, 0, True), inner)
    return None


def _by_distance(split: Split, decoded: np.ndarray) -> np.ndarray:
    index = faiss.IndexFlatL2(decoded.shape[1])
    index.add(decoded)
    return index.search(split.queries, DEPTH)[1]


def _by_cosine(split: Split, decoded: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(decoded, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(decoded.shape[1])
    index.add(decoded / np.where(lengths > 0, lengths, 1))
    return index.search(split.queries, DEPTH)[1]
