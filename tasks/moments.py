"""Mean and covariance in one pass over blocks, and the principal components from them.

Two blocks merge by the rule of Chan, Golub and LeVeque (1983)::

    δ = mean_b - mean_a
    mean = mean_a + δ n_b / n
    S = S_a + S_b + δ δᵀ n_a n_b / n

with S the sum of outer products of deviations. Within a block deviations are taken from its first row
before they are summed, so that a constant feature has exactly its own value as mean and exactly zero
variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.linalg

if TYPE_CHECKING:
    from .protocols import Arrays, Block

_TILE_ROWS = 1024


@dataclass(frozen=True)
class Moments:
    """Accumulator of count, mean and, if wanted, covariance; all sums in float64.

    The summary has ``count`` (int64, shape ()), ``mean`` (d,) and with ``covariance=True`` the (d, d) matrix
    of second central moments, divided by the count (so that one row has covariance zero).
    """

    n_features: int
    covariance: bool = True
    sequential: ClassVar[bool] = False

    def init(self) -> dict[str, np.ndarray]:
        """Return the moments of no rows."""
        state = {"count": np.zeros((), np.int64), "mean": np.zeros(self.n_features)}
        if self.covariance:
            state["scatter"] = np.zeros((self.n_features, self.n_features))
        return state

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        return self.merge(state, self._of_block(block))

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Join two disjoint sets of rows."""
        if right["count"] == 0:
            return left
        if left["count"] == 0:
            return right
        n_left, n_right = int(left["count"]), int(right["count"])
        count = n_left + n_right
        with np.errstate(over="ignore", invalid="ignore"):  # finalize reports what is not finite
            delta = right["mean"] - left["mean"]
            merged = {
                "count": np.array(count, np.int64),
                "mean": left["mean"] + delta * (n_right / count),
            }
            if self.covariance:
                between = np.outer(delta, delta) * (n_left * (n_right / count))
                merged["scatter"] = left["scatter"] + right["scatter"] + between
        return merged

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the summary; refuse no rows and sums that are not finite."""
        if state["count"] == 0:
            raise ValueError("expected at least one row, got none")
        summary = {"count": state["count"], "mean": state["mean"]}
        if self.covariance:
            summary["covariance"] = state["scatter"] / float(state["count"])
        if not all(np.isfinite(array).all() for array in summary.values()):
            raise ValueError(
                "expected finite sums, but the covariance overflows float64; rescale the vectors"
            )
        return summary

    def _of_block(self, block: Block) -> dict[str, np.ndarray]:
        state, vectors = self.init(), block.vectors
        if len(vectors) == 0:
            return state
        shift = vectors[0].astype(np.float64)
        tiles = [slice(i, i + _TILE_ROWS) for i in range(0, len(vectors), _TILE_ROWS)]
        total = np.zeros(self.n_features)
        with np.errstate(over="ignore", invalid="ignore"):
            for tile in tiles:
                total += np.subtract(vectors[tile], shift, dtype=np.float64).sum(axis=0)
        mean = shift + total / len(vectors)
        if not np.isfinite(mean).all():
            raise ValueError(_complaint(block))
        if self.covariance:
            with np.errstate(over="ignore", invalid="ignore"):  # finalize reports what is not finite
                for tile in tiles:
                    deviations = np.subtract(vectors[tile], mean, dtype=np.float64)
                    state["scatter"] += deviations.T @ deviations
        state["count"] = np.array(len(vectors), np.int64)
        state["mean"] = mean
        return state


def pca(
    summary: Arrays, n_components: int | float, *, center: bool = True, at_most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the principal components of a `Moments` summary.

    Parameters
    ----------
    summary : mapping
        With ``mean`` and ``covariance``.
    n_components : int or float
        How many; or, as a float in (0, 1], the least number that explains this share of the variance.
    center : bool, default True
        False: components of the second moment about the origin, for rows from which no mean is subtracted.
    at_most : int, optional
        Upper limit of what a float may choose.

    Returns
    -------
    components : ndarray of float64, shape (d, r)
        Orthonormal columns by falling variance; the largest entry of each (the first among equals) is
        positive.
    variance : ndarray of float64, shape (r,)
        Variance along each, not negative.
    """
    moment = summary["covariance"]
    if not center:
        moment = moment + np.outer(summary["mean"], summary["mean"])
    scale = float(np.abs(np.diagonal(moment)).max(initial=0.0)) or 1.0
    values, vectors = scipy.linalg.eigh(moment / scale, driver="evr", check_finite=False)
    values, vectors = np.maximum(values[::-1], 0.0) * scale, vectors[:, ::-1]
    if isinstance(n_components, float):
        n_components = _share_to_count(values, n_components, len(values) if at_most is None else at_most)
    if not 1 <= n_components <= len(values):
        raise ValueError(f"expected 1 to {len(values)} components, got {n_components}")
    vectors = vectors[:, :n_components]
    leading = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[leading, np.arange(n_components)] < 0, -1.0, 1.0)
    return np.ascontiguousarray(vectors * signs), values[:n_components].copy()


def _complaint(block: Block) -> str:
    bad = block.rows[~np.isfinite(block.vectors).all(axis=1)]
    if len(bad) == 0:
        return "expected finite sums, but the vectors overflow float64; rescale them"
    return (
        f"expected finite vectors, but row {bad[0]} holds NaN or infinity ({len(bad)} such rows in its block)"
    )


def _share_to_count(values: np.ndarray, share: float, at_most: int) -> int:
    explained = np.cumsum(values)
    enough = int(np.searchsorted(explained, share * explained[-1] * (1 - 1e-12))) + 1
    return max(1, min(enough, at_most))
