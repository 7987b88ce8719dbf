"""Our methods at exactly the bytes of a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
from bitfleet.tasks.kernels.ranking import ranked_width
from bytes_cells import DEPTH, measured, recalls

if TYPE_CHECKING:
    from bytes_cells import Cell, Split

DENSE = {"itq": "ITQ", "sign": "Sign", "lsh": "LSH"}
SPARSE = {
    "sparse_coding": "SparseCoding",
    "sparse_coding_4096": "SparseCoding",
    "pursuit": "PursuitHash",
    "posh": "POSH",
}
OURS = (*SPARSE, *DENSE)
_ATOMS = (1024, 2048)  # the second where the first has not as many sets


def compute(cell: Cell, split: Split) -> dict[str, Any] | None:
    """Train, encode, search; None if the method has no code of this size."""
    return _dense(cell, split) if cell.row in DENSE else _sparse(cell, split)


def _dense(cell: Cell, split: Split) -> dict[str, Any] | None:
    n_bits, width = 8 * cell.n_bytes, split.base.shape[1]
    if n_bits > width and cell.row != "lsh":
        return None
    values: dict[str, Any] = {"bytes": cell.n_bytes}
    with measured(values, "train"):
        model = getattr(bf, DENSE[cell.row])(n_bits=n_bits, random_state=split.seed).fit(split.train)
    with measured(values, "encode"):
        packed = model.encode(split.base)
    index = bf.CodeIndex(packed, n_bits=n_bits)
    values |= recalls(split, "symmetric", index.search(model.encode(split.queries), DEPTH)[1])
    reals = bf.projections(model, split.queries)
    index.search(reals[:40], DEPTH, asymmetric=True)  # compiles
    with measured(values, "search"):
        ids = index.search(reals, DEPTH, asymmetric=True)[1]
    return values | recalls(split, "asymmetric", ids)


def _sparse(cell: Cell, split: Split) -> dict[str, Any] | None:
    """As many ones as fit; where neighbours are Euclidean, with a byte for the length.

    POSH and PursuitHash get a decoder from the same training rows.
    """
    room = cell.n_bytes - (not split.cosine)
    shape = code_shape(room, (4096,) if cell.row == "sparse_coding_4096" else _ATOMS)
    coding = cell.row.startswith("sparse_coding")
    if shape is None or not (coding or shape[0] == _ATOMS[0]):
        return None
    n_bits, n_active = shape
    params: dict[str, Any] = {"n_bits": n_bits, "n_active": n_active, "random_state": split.seed}
    if coding:
        params["center"] = not split.cosine
    estimator = getattr(bf, SPARSE[cell.row])(**params)
    estimator.fit(split.train[:2000]).encode(split.train[:100])  # compiles
    values: dict[str, Any] = {"n_bits": n_bits, "n_active": n_active}
    with measured(values, "train"):
        model = estimator.fit(split.train).model_
        if not coding:
            model = bf.fit_decoder(model, split.train)
    index = bf.ActiveIndex(model, metric="cosine" if split.cosine else "euclidean")
    with measured(values, "encode"):
        index.add(split.base)
    values["bytes"] = index.n_bytes
    if index.n_bytes > cell.n_bytes:
        raise AssertionError(f"{index.n_bytes} bytes where {cell.n_bytes} are allowed")
    index.search(split.queries[:40], 1)  # compiles
    with measured(values, "search"):
        ids = index.search(split.queries, DEPTH)[1]
    return values | recalls(split, "asymmetric", ids)


def code_shape(room: int, atoms: tuple[int, ...] = _ATOMS) -> tuple[int, int] | None:
    """Return the first number of atoms that fits, and the most ones of a code of at most so many bytes."""
    for n_bits in atoms:
        counts = np.arange(1, n_bits // 2)
        fits = [n for n in counts.tolist() if _bits(n_bits, n) <= 8 * room]
        most = max(fits, default=0)
        if 0 < most < n_bits // 2 - 1:
            while ranked_width(n_bits, most) > room:
                most -= 1
            return n_bits, most
    return None


def _bits(n_bits: int, n_active: int) -> float:
    """Return log2 of the binomial coefficient, nearly."""
    from math import lgamma, log

    return (lgamma(n_bits + 1) - lgamma(n_active + 1) - lgamma(n_bits - n_active + 1)) / log(2)
