"""What `max_distortion` returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv

from ..tasks.distortion import calibrate, constant_distortion, critical_bits, doubts, scale_bound

if TYPE_CHECKING:
    from ..tasks.protocols import RoundState


@dataclass(frozen=True, eq=False)
class Distortion:
    """The least possible greatest error of distances predicted from Hamming distances.

    Attributes
    ----------
    delta : float
        δ = max |g(h) - c| for the best g; of a sample, a lower bound of it.
    scale, offset : float or None
        λ and b of g(h) = λh + b; None for a monotone fit.
    calibration : ndarray of float64, shape (n_bits + 1,)
        g(h) for every Hamming distance h.
    n_pairs : int
        Pairs that were looked at.
    certified : bool
        Whether these are all pairs, so that δ is exact.
    fit, target : str
    n_bits, n_rows : int
    constant : float
        T = (c_max - c_min) / 2, the distortion of the best constant prediction.
    critical_bits : float
        M* = (E c / sd c)²: below so many bits, near-isometry through the origin is impossible.
    bound : float
        No codes of ``n_bits`` bits have a smaller δ with ``fit="scale"``; 0 where nothing is known.
    estimated : bool
        Whether ``critical_bits`` and ``bound`` are estimates from some rows.
    coverage : float
        Share of all pairs whose error is at most ``delta``; of a sample, at least this with ``confidence``.
    confidence : float
    low, high : ndarray of float64, shape (n_bits + 1,)
        Least and greatest c at each Hamming distance; inf and -inf where there is no pair.
    low_pair, high_pair : ndarray of int64, shape (n_bits + 1, 2)
        The rows that have them; -1 where there is no pair.
    """

    delta: float
    scale: float | None
    offset: float | None
    calibration: np.ndarray
    n_pairs: int
    certified: bool
    fit: str
    target: str
    n_bits: int
    n_rows: int
    constant: float
    critical_bits: float
    bound: float
    estimated: bool
    coverage: float
    confidence: float
    low: np.ndarray
    high: np.ndarray
    low_pair: np.ndarray
    high_pair: np.ndarray

    def refit(self, fit: str) -> Distortion:
        """Return the distortion of another kind of prediction; the same extremes decide all of them."""
        found = calibrate(self.low, self.high, fit)
        coverage = 1.0 if self.certified else covered(self.n_pairs, fit, self.n_bits, self.confidence)
        return replace(
            self, delta=found.delta, scale=found.scale, offset=found.offset, calibration=found.table, fit=fit,
            coverage=coverage,
        )  # fmt: skip

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes δ useless or unattainable, in sentences."""
        return doubts(self.delta, self.constant, self.n_bits, self.critical_bits, self.bound)

    def summary(self) -> dict[str, Any]:
        """Return what a person wants to read, JSON values."""
        finite = math.isfinite(self.critical_bits)
        return {
            "fit": self.fit, "target": self.target, "delta": self.delta, "scale": self.scale,
            "offset": self.offset, "n_pairs": self.n_pairs, "certified": self.certified,
            "coverage": self.coverage, "confidence": self.confidence, "n_bits": self.n_bits,
            "constant_T": self.constant, "critical_bits": self.critical_bits if finite else None,
            "lower_bound": self.bound, "estimated": self.estimated,
            "calibration": [float(value) for value in self.calibration], "warnings": list(self.warnings),
        }  # fmt: skip


def from_extremes(
    state: RoundState,
    n_bits: int,
    n_rows: int,
    fit: str,
    target: str,
    *,
    sampled: int | None = None,
    confidence: float = 1.0,
    n_moments: int = 2048,
) -> Distortion:
    """Return the result that extremes of squared distances mean."""
    arrays = state.arrays
    low, high = arrays["low"], arrays["high"]
    mean, mean_square = (float(value) for value in arrays["moments"])
    if target == "euclidean":
        low, high = np.sqrt(low), np.where(high >= 0, np.sqrt(np.maximum(high, 0.0)), -np.inf)
        critical, bound = critical_bits(mean, mean_square), scale_bound(n_bits, n_rows, mean, mean_square)
    else:
        critical, bound = math.nan, 0.0
    found = calibrate(low, high, fit)
    every = n_rows * (n_rows - 1) // 2
    return Distortion(
        delta=found.delta, scale=found.scale, offset=found.offset, calibration=found.table,
        n_pairs=every if sampled is None else sampled, certified=sampled is None, fit=fit, target=target,
        n_bits=n_bits, n_rows=n_rows, constant=constant_distortion(low, high), critical_bits=critical,
        bound=bound, estimated=sampled is not None or n_rows > n_moments,
        coverage=1.0 if sampled is None else covered(sampled, fit, n_bits, confidence),
        confidence=confidence, low=low, high=high,
        low_pair=arrays["low_pair"], high_pair=arrays["high_pair"],
    )  # fmt: skip


def covered(n_sampled: int, fit: str, n_bits: int, confidence: float) -> float:
    """Return the share of all pairs that a fit to sampled pairs holds for, with a confidence.

    A convex program with d variables and n random constraints leaves more than a share ε of all constraints
    violated with a probability of at most Σ_{i<d} C(n, i) ε^i (1 - ε)^{n-i} (Campi and Garatti, SIAM
    Journal on Optimization 19, 2008, theorem 1).  The variables are δ and those of the prediction.
    """
    variables = {"scale": 2, "affine": 3, "monotone": n_bits + 2}[fit]
    if variables >= n_sampled:
        return 0.0
    return float(1 - betaincinv(variables, n_sampled - variables + 1, confidence))
