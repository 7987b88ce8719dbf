"""What PursuitHash adds up: the rows of each atom, what codes leave unexplained, or how often bits are on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernels.accumulate import add_rows
from ..kernels.decoding import sum_rows
from ..kernels.pack import list_active
from ..sums import Sums, refuse_infinite
from ..unit import unit_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..protocols import Block
    from ..pursuit import PursuitEncoder
    from .base import Front

_TILE_ROWS = 1024


class AtomRows(Sums):
    """Accumulator of each atom's rows, of length one, of their counts, and of the scores' moments.

    Parameters
    ----------
    front : Front
    atoms : ndarray of float64, shape (b, r)
    bias : ndarray of float64, shape (b,)
        Subtracted from the scores.
    dtype : type
        In which scores are computed.
    """

    def __init__(
        self, front: Front, atoms: np.ndarray, bias: np.ndarray, dtype: type[np.floating[Any]]
    ) -> None:
        self.front, self.dtype, self.shape = front, dtype, atoms.shape
        self.columns = np.ascontiguousarray(atoms.T, dtype=dtype)
        self.bias = bias.astype(dtype)

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        return {
            "total": np.zeros(self.shape),
            "uses": np.zeros(self.shape[0], np.int64),
            "scores": np.zeros(2),
            "count": np.zeros((), np.int64),
        }

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        for tile in self.front.tiles(block.vectors, np.float64):
            rows, nonzero = unit_rows(tile)
            rows = rows if nonzero.all() else rows[nonzero]
            scores = rows.astype(self.dtype, copy=False) @ self.columns
            state["scores"] += (scores.sum(dtype=np.float64), np.square(scores).sum(dtype=np.float64))
            scores -= self.bias
            best = scores.argmax(axis=1)
            add_rows(state["total"], best[:, None].astype(np.int32), rows)
            state["uses"] += np.bincount(best, minlength=self.shape[0])
        state["count"] += len(block.vectors)
        return state

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums; refuse what is not finite."""
        refuse_infinite(state, "total")
        return state


class Unexplained(Sums):
    """Accumulator of each bit's residuals ``Hᵀ R``, ``R = z - c H E``, of their squares and of the uses.

    Parameters
    ----------
    front : Front
    encoder : PursuitEncoder
        Makes H; its atoms are E.
    n_active : int
        Ones per code; c is the encoder's beta over it.
    """

    def __init__(self, front: Front, encoder: PursuitEncoder, n_active: int) -> None:
        self.front, self.encoder, self.n_active = front, encoder, n_active
        self.atoms = encoder.atoms * (encoder.beta / n_active)

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        return {
            "total": np.zeros(self.atoms.shape),
            "uses": np.zeros(len(self.atoms), np.int64),
            "square": np.zeros(()),
            "count": np.zeros((), np.int64),
        }

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        nothing = np.zeros(self.atoms.shape[1])
        for vectors in _tiles(block.vectors):
            rows, nonzero = unit_rows(np.concatenate(list(self.front.tiles(vectors, np.float64))))
            codes = self.encoder.encode(vectors)
            left = (rows - sum_rows(codes, self.atoms, nothing))[nonzero]
            active = list_active(codes, self.n_active)[nonzero]
            add_rows(state["total"], active, left)
            state["uses"] += np.bincount(active.ravel(), minlength=len(self.atoms))
            state["square"] += np.einsum("ij,ij->", left, left)
        state["count"] += len(block.vectors)
        return state

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums; refuse what is not finite."""
        refuse_infinite(state, "total", "square")
        return state


class BitUses(Sums):
    """Accumulator of how many rows have each bit.

    Parameters
    ----------
    encoder : PursuitEncoder
    """

    def __init__(self, encoder: PursuitEncoder) -> None:
        self.encoder = encoder

    def init(self) -> dict[str, np.ndarray]:
        """Return the counts of no rows."""
        return {"uses": np.zeros(self.encoder.n_bits, np.int64), "count": np.zeros((), np.int64)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        for vectors in _tiles(block.vectors):
            active = self.encoder.active(vectors)
            state["uses"] += np.bincount(active.ravel(), minlength=self.encoder.n_bits)
        state["count"] += len(block.vectors)
        return state

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the counts."""
        return state


def _tiles(vectors: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(vectors), _TILE_ROWS):
        yield vectors[start : start + _TILE_ROWS]
