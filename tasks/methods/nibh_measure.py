"""How near Hamming distances h come to distances c: from their extremes and means for each h alone.

With ``lo_h`` and ``hi_h`` the least and the largest c among the pairs at Hamming distance h::

    through the origin   δ = inf_λ max |λ h - c|
                           = max( hi_0, max_{h1 >= 0, h2 >= 1} (h1 hi_h2 - h2 lo_h1) / (h1 + h2) )
    monotone             δ = inf_g max |g(h) - c| = ½ max_{h1 <= h2} (hi_h1 - lo_h2)
    constant             δ = ½ (max c - min c)

The minimising λ is ``(hi_h2 + lo_h1) / (h1 + h2)`` of the pair that attains the maximum; where ``hi_0``
does, it is the middle of the interval that keeps all others below it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression


class ByHamming(NamedTuple):
    """What the pairs at each Hamming distance 0 … b have in common, each an array of shape (b + 1,)."""

    least: np.ndarray  # of c, inf where there is no pair
    largest: np.ndarray  # -inf where there is no pair
    pairs: np.ndarray
    total: np.ndarray  # of c
    square: float  # the sum of c²

    @classmethod
    def of_pairs(cls, hamming: np.ndarray, distances: np.ndarray, n_bits: int) -> ByHamming:
        """Sort listed pairs by their Hamming distance."""
        distances = distances.astype(np.float64, copy=False)
        least, largest = np.full(n_bits + 1, np.inf), np.full(n_bits + 1, -np.inf)
        np.minimum.at(least, hamming, distances)
        np.maximum.at(largest, hamming, distances)
        count = np.bincount(hamming, minlength=n_bits + 1).astype(np.float64)
        total = np.bincount(hamming, distances, n_bits + 1)
        return cls(least, largest, count, total, float(distances @ distances))

    def joined(self, other: ByHamming) -> ByHamming:
        """Return what holds for the pairs of both."""
        least, largest = np.minimum(self.least, other.least), np.maximum(self.largest, other.largest)
        pairs, total = self.pairs + other.pairs, self.total + other.total
        return ByHamming(least, largest, pairs, total, self.square + other.square)

    def half_range(self) -> float:
        """Return the distortion of a constant; 0 without pairs."""
        present = self.pairs > 0
        if not present.any():
            return 0.0
        return float(self.largest[present].max() - self.least[present].min()) / 2

    def least_bits(self) -> float | None:
        """Return ``(mean c / sd c)²``; None where all distances are the same.

        Hamming distances of b bits vary by at least ``1 / sqrt(b)`` of their mean, whatever the code; with
        fewer bits than this they vary more than the distances do, and no code is near isometric through the
        origin.
        """
        pairs, total = float(self.pairs.sum()), float(self.total.sum())
        spread = self.square * pairs - total * total
        return total * total / spread if spread > 1e-12 * total * total else None


def through_origin(least: np.ndarray, largest: np.ndarray) -> tuple[float, float]:
    """Return δ and the minimising λ; both 0 without pairs."""
    present = np.isfinite(least)
    h, lo, hi = np.flatnonzero(present).astype(np.float64), least[present], largest[present]
    if not len(h):
        return 0.0, 0.0
    collided = float(hi[0]) if h[0] == 0 else 0.0
    some = h > 0
    if not some.any():
        return collided, 0.0
    h2, hi2 = h[some], hi[some]
    values = (h[:, None] * hi2 - h2 * lo[:, None]) / (h[:, None] + h2)
    i, j = np.unravel_index(int(values.argmax()), values.shape)
    if values[i, j] >= collided:
        return float(values[i, j]), float((hi2[j] + lo[i]) / (h[i] + h2[j]))
    below, above = ((hi2 - collided) / h2).max(), ((lo[some] + collided) / h2).min()
    return collided, float((max(below, 0.0) + above) / 2)


def monotone(least: np.ndarray, largest: np.ndarray) -> float:
    """Return the distortion of the best nondecreasing function of h; 0 without pairs."""
    present = np.isfinite(least)
    if not present.any():
        return 0.0
    return float((np.maximum.accumulate(largest[present]) - least[present]).max() / 2)


def calibration(pairs: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return g(h), the nondecreasing function of least squared error, shape (b + 1,); zeros without pairs.

    Between Hamming distances that occur it is linear, beyond them constant.
    """
    present = np.flatnonzero(pairs > 0)
    if not len(present):
        return np.zeros(len(pairs))
    fit = isotonic_regression(total[present] / pairs[present], weights=pairs[present]).x
    return np.interp(np.arange(len(pairs)), present, fit)
