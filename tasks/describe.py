"""How codes use their bits: counts of ones and of pairs of ones, and what follows from them.

With n codes, ``p_j`` the share that has bit j and C the covariance of the bits,

- effective bits ``(Σ p)² / Σ p²``: so many evenly used bits concentrate the ones as much;
- participation ratio ``(tr C)² / ‖C‖²``: so many independent directions of equal variance.  Bits that fire
  together are used evenly and still say the same; this tells them apart;
- entropy ``Σ H(p_j)``, an upper bound of what a code can say, in bits;
- ``n Σ p_j²``, the codes in the lists of a query's ones, if queries are like the codes.

Covariances take ``n_bits²`` numbers; beyond `PAIRS_BITS` bits pairs are not counted.
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
PAIRS_BITS = 4096  # 128 MiB of counts


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
    """Accumulator of ``HᵀH``, or of its diagonal, and the number of codes.

    All whole numbers, so in any order the same.
    """

    def __init__(self, n_bits: int, n_active: int | None) -> None:
        self.n_bits, self.n_active = n_bits, n_active

    def init(self) -> dict[str, np.ndarray]:
        """Return the counts of no codes."""
        ones = {"ones": np.zeros(self.n_bits), "count": np.zeros((), np.int64)}
        return ones | ({"together": np.zeros((self.n_bits, self.n_bits))} if self._pairs else {})

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the codes of one block."""
        for start in range(0, len(block.vectors), _TILE_ROWS):
            packed = block.vectors[start : start + _TILE_ROWS]
            if not self._pairs:
                state["ones"] += unpack_bits(packed, self.n_bits).sum(axis=0, dtype=np.int64)
            elif self.n_active is None:
                bits = unpack_bits(packed, self.n_bits).astype(np.float32)
                state["together"] += np.triu(bits.T @ bits)  # exact: fewer than 2²⁴ rows
            else:
                count_pairs(list_active(packed, self.n_active), state["together"])
        state["count"] += len(block.vectors)
        return state

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return ``ones`` (b,), each bit's count, ``count``, and with pairs ``together`` (b, b) whole."""
        if not self._pairs:
            return state
        together = state["together"] + np.triu(state["together"], 1).T
        return {**state, "together": together, "ones": np.diagonal(together).copy()}

    @property
    def _pairs(self) -> bool:
        return self.n_bits <= PAIRS_BITS


def bit_statistics(counts: Arrays) -> dict[str, float | int | None]:
    """Return what the counts of at least one code say, by the names of the module."""
    n = int(counts["count"])
    uses = counts["ones"] / n
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
        "participation_ratio": _participation_ratio(counts),
        "postings_per_query": n * used,
    }


def covariance(counts: Arrays) -> np.ndarray:
    """Return the covariance of the bits, float64, shape (b, b), from counts of pairs."""
    n = int(counts["count"])
    uses = counts["ones"] / n
    return np.asarray(counts["together"] / n - np.outer(uses, uses))


def correlation(counts: Arrays) -> np.ndarray | None:
    """Return the correlation of the bits, float64, shape (b, b); 0 with a bit that never changes.

    None where pairs are not counted.
    """
    if "together" not in counts:
        return None
    cov = covariance(counts)
    deviation = np.sqrt(np.diagonal(cov))
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    cov *= scale[:, None]
    cov *= scale
    return cov


def _participation_ratio(counts: Arrays) -> float | None:
    if "together" not in counts:
        return None
    cov = covariance(counts)
    total, squares = float(np.trace(cov)), float(np.einsum("ij,ij->", cov, cov))
    return total**2 / squares if squares else 0.0
