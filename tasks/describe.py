"""How codes use their bits: counts of ones and of pairs of ones, and what follows from them.

With n codes, ``p_j`` the share that has bit j and C the covariance of the bits,

- effective bits ``(Σ p)² / Σ p²``: so many evenly used bits concentrate the ones as much;
- participation ratio ``(tr C)² / ‖C‖²``: so many independent directions of equal variance.  Bits that fire
  together are used evenly and still say the same; this tells them apart;
- entropy ``Σ H(p_j)``, an upper bound of what a code can say, in bits;
- ``n Σ p_j²``, the codes in the lists of a query's ones, if queries are like the codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .kernels.decoding import count_pairs
from .kernels.pack import list_active, unpack_bits
from .sums import Sums

if TYPE_CHECKING:
    from .protocols import Arrays, Block, RoundState

_TILE_ROWS = 4096


@dataclass(frozen=True)
class CountBits:
    """Count ones and pairs of ones in blocks of packed codes.

    Attributes
    ----------
    n_bits : int
    n_active : int or None
        Ones of every code, if they are sparse.
    """

    n_bits: int
    n_active: int | None = None

    def accumulator(self, state: RoundState) -> BitCounts:
        """Build the accumulator; the state says nothing."""
        return BitCounts(self.n_bits, self.n_active)


class BitCounts(Sums):
    """Accumulator of ``HᵀH`` and the number of codes; all whole numbers, so in any order the same."""

    def __init__(self, n_bits: int, n_active: int | None) -> None:
        self.n_bits, self.n_active = n_bits, n_active

    def init(self) -> dict[str, np.ndarray]:
        """Return the counts of no codes."""
        return {"together": np.zeros((self.n_bits, self.n_bits)), "count": np.zeros((), np.int64)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the codes of one block."""
        for start in range(0, len(block.vectors), _TILE_ROWS):
            packed = block.vectors[start : start + _TILE_ROWS]
            if self.n_active is None:
                bits = unpack_bits(packed, self.n_bits).astype(np.float32)
                state["together"] += np.triu(bits.T @ bits)  # exact: fewer than 2²⁴ rows
            else:
                count_pairs(list_active(packed, self.n_active), state["together"])
        state["count"] += len(block.vectors)
        return state

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return ``together`` (b, b) whole, with each bit's own count on the diagonal, and ``count``."""
        return {**state, "together": state["together"] + np.triu(state["together"], 1).T}


def bit_statistics(counts: Arrays) -> dict[str, float | int]:
    """Return what the counts of at least one code say, by the names of the module."""
    n = int(counts["count"])
    uses = np.diagonal(counts["together"]) / n
    cov = covariance(counts)
    total, squares = float(np.trace(cov)), float(np.square(cov).sum())
    varied = uses[(uses > 0) & (uses < 1)]
    entropy = (varied * -np.log2(varied) + (1 - varied) * -np.log2(1 - varied)).sum()
    used = float(np.square(uses).sum())
    return {
        "n_rows": n,
        "n_bits": len(uses),
        "n_live_bits": int(np.count_nonzero(uses)),
        "n_constant_bits": int(np.count_nonzero((uses == 0) | (uses == 1))),
        "effective_bits": float(uses.sum() ** 2 / used) if used else 0.0,
        "busiest_bit": float(uses.max(initial=0.0)),
        "entropy": float(entropy),
        "participation_ratio": total**2 / squares if squares else 0.0,
        "postings_per_query": n * used,
    }


def covariance(counts: Arrays) -> np.ndarray:
    """Return the covariance of the bits, float64, shape (b, b)."""
    n = int(counts["count"])
    uses = np.diagonal(counts["together"]) / n
    return np.asarray(counts["together"] / n - np.outer(uses, uses))


def correlation(counts: Arrays) -> np.ndarray:
    """Return the correlation of the bits, float64, shape (b, b); 0 with a bit that never changes."""
    cov = covariance(counts)
    deviation = np.sqrt(np.diagonal(cov))
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    return cov * scale[:, None] * scale
