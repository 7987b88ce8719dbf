"""How near Hamming distances h come to distances c, from their extremes and means for each h alone.

`bitfleet.tasks.distortion` has the formulas of the extremes; the means make a calibration g(h) of least
squares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from ..distortion import calibrate, constant_distortion, critical_bits, scale_bound


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
        return constant_distortion(self.least, self.largest) if self.pairs.any() else 0.0

    def least_bits(self) -> float | None:
        """Return how many bits a code needs at least to be near isometric; None where no number is enough.

        Of b bits Hamming distances vary by at least ``1 / sqrt(b)`` of their mean, whatever the code.
        """
        pairs = max(1.0, float(self.pairs.sum()))
        bits = critical_bits(float(self.total.sum()) / pairs, self.square / pairs)
        return bits if bits < 1e12 else None

    def bound(self) -> float:
        """Return what δ through the origin cannot be below, for any codes of the same rows."""
        pairs = max(1.0, float(self.pairs.sum()))
        n_rows = round((1 + np.sqrt(1 + 8 * pairs)) / 2)
        return scale_bound(len(self.pairs) - 1, n_rows, float(self.total.sum()) / pairs, self.square / pairs)

    def reported(self, unit: float = 1.0) -> dict[str, np.ndarray]:
        """Return what a finished model tells of its distortion, c being in so many units."""
        told = {
            "calibration": unit * calibration(self.pairs, self.total),
            "distortion_scale": np.array(unit * through_origin(self.least, self.largest)[1]),
            "distortion_monotone": np.array(unit * monotone(self.least, self.largest)),
            "distortion_constant": np.array(unit * self.half_range()),
            "distortion_bound": np.array(unit * self.bound()),
        }
        if (least_bits := self.least_bits()) is not None:
            told["least_bits"] = np.array(least_bits)
        return told


def through_origin(least: np.ndarray, largest: np.ndarray) -> tuple[float, float]:
    """Return δ and the minimising λ; both 0 without pairs."""
    if not np.isfinite(least).any():
        return 0.0, 0.0
    found = calibrate(least, largest, "scale")
    return found.delta, float(found.scale or 0.0)


def monotone(least: np.ndarray, largest: np.ndarray) -> float:
    """Return the distortion of the best nondecreasing function of h; 0 without pairs."""
    return calibrate(least, largest, "monotone").delta if np.isfinite(least).any() else 0.0


def calibration(pairs: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return g(h), the nondecreasing function of least squared error, shape (b + 1,); zeros without pairs.

    Between Hamming distances that occur it is linear, beyond them constant.
    """
    present = np.flatnonzero(pairs > 0)
    if not len(present):
        return np.zeros(len(pairs))
    fit = isotonic_regression(total[present] / pairs[present], weights=pairs[present]).x
    return np.interp(np.arange(len(pairs)), present, fit)
