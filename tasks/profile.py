"""How errors of predicted distances are spread over all pairs: their mean square and their quantiles.

What an executor adds up over pairs of blocks is how many pairs there are at each Hamming distance and
distance (in bins), with sums of the distances and of their squares.  Every distance is computed: a pass costs
a matrix product of all coordinates in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.optimize import isotonic_regression

from .kernels.screened_rows import hamming_matrix

if TYPE_CHECKING:
    from .extremes import ScreenedBlock
    from .protocols import Arrays, RoundState

State = dict[str, np.ndarray]

BINS = 2048
_TILE = 512
_STEPS = np.linspace(0.6, 1.6, 101)  # slopes tried for a quantile, in multiples of the least-squares slope


@dataclass(frozen=True)
class JointHistogram:
    """Count pairs by Hamming distance and distance.

    The state holds ``shift``, which is subtracted from the rows, and (a scalar) ``longest``, the greatest
    distance.  The summary holds ``joint`` int64 (M + 1, BINS), and ``sum`` and ``square`` float64 (M + 1,).
    """

    n_bits: int

    def accumulator(self, state: RoundState) -> JointHistogramAccumulator:
        """Build the accumulator."""
        longest = state.scalars["longest"]
        assert isinstance(longest, float)
        return JointHistogramAccumulator(self.n_bits, state.arrays["shift"], longest)


class JointHistogramAccumulator:
    """The monoid of counts and sums."""

    sequential: ClassVar[bool] = False

    def __init__(self, n_bits: int, shift: np.ndarray, longest: float) -> None:
        self._n_bits, self._shift = n_bits, shift
        self._per_unit = BINS / longest if longest > 0 else 0.0

    def init(self) -> State:
        """Return no pairs."""
        return {
            "joint": np.zeros((self._n_bits + 1, BINS), np.int64),
            "sum": np.zeros(self._n_bits + 1),
            "square": np.zeros(self._n_bits + 1),
        }

    def update(self, state: State, block: tuple[ScreenedBlock, ScreenedBlock]) -> State:
        """Add all pairs of a row on the left and one on the right."""
        left, right = block
        rows, columns = left.read() - self._shift, right.read() - self._shift
        same = bool((left.rows[:1] == right.rows[:1]).all())
        norms, other = (np.einsum("ij,ij->i", a, a) for a in (rows, columns))
        for a in range(0, len(rows), _TILE):
            for b in range(a if same else 0, len(columns), _TILE):
                some, others = slice(a, a + _TILE), slice(b, b + _TILE)
                squares = norms[some, None] + other[others] - 2 * (rows[some] @ columns[others].T)
                h = hamming_matrix(left.screened.words[:, some], right.screened.words[:, others])
                if same and a == b:
                    upper = np.triu_indices(len(squares), 1)
                    squares, h = squares[upper], h[upper]
                self._add(state, np.maximum(squares, 0.0).ravel(), h.ravel())
        return state

    def merge(self, left: State, right: State) -> State:
        """Add counts and sums."""
        return {name: left[name] + right[name] for name in left}

    def finalize(self, state: State) -> State:
        """Return counts and sums."""
        return state

    def _add(self, state: State, squares: np.ndarray, h: np.ndarray) -> None:
        distances, n = np.sqrt(squares), self._n_bits + 1
        bins = np.minimum((distances * self._per_unit).astype(np.int64), BINS - 1)
        state["joint"] += np.bincount(h * BINS + bins, minlength=n * BINS).reshape(n, BINS)
        state["sum"] += np.bincount(h, distances, minlength=n)
        state["square"] += np.bincount(h, squares, minlength=n)


def least_squares(summary: Arrays, fit: str) -> np.ndarray:
    """Return the prediction of one kind with the least mean square error, for every Hamming distance."""
    counts, sums = summary["joint"].sum(axis=1).astype(np.float64), summary["sum"]
    h = np.arange(len(counts), dtype=np.float64)
    n = counts.sum()
    if fit == "scale":
        return h * (h @ sums / max(h * h @ counts, 1e-300))
    if fit == "affine":
        mean_h, mean = h @ counts / n, sums.sum() / n
        spread = (h - mean_h) ** 2 @ counts
        rise = max((h - mean_h) @ sums / spread, 0.0) if spread > 0 else 0.0
        return mean + rise * (h - mean_h)
    some = np.flatnonzero(counts)
    found = isotonic_regression(sums[some] / counts[some], weights=counts[some]).x
    return np.interp(h, some, found)


def mean_square_error(summary: Arrays, table: np.ndarray) -> float:
    """Return the mean over pairs of (g(h) - c)², the paper's average distortion; ``table`` is g."""
    counts = summary["joint"].sum(axis=1)
    errors = summary["square"] - 2 * table * summary["sum"] + table * table * counts
    return float(max(errors.sum(), 0.0) / counts.sum())


def error_quantile(summary: Arrays, longest: float, table: np.ndarray, share: float) -> float:
    """Return what |g(h) - c| does not exceed for a share of the pairs, to half the width of a bin."""
    middles = (np.arange(BINS) + 0.5) * (longest / BINS)
    h, bins = np.nonzero(summary["joint"])
    errors = np.abs(table[h] - middles[bins])
    order = np.argsort(errors)
    reached = np.cumsum(summary["joint"][h, bins][order])
    return float(errors[order[np.searchsorted(reached, share * reached[-1])]])


def best_scale_quantile(summary: Arrays, longest: float, share: float) -> tuple[float, float]:
    """Return the least quantile of |λh - c| over λ near the least-squares one, and that λ."""
    table = least_squares(summary, "scale")
    found = [(error_quantile(summary, longest, step * table, share), step) for step in _STEPS]
    least, step = min(found)
    return least, float(step * table[1])
