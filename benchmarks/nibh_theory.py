"""What the NIBH paper's two statements are about: gaps between neighbours, and sigmoids instead of signs.

Neighbours.  Let a query's Hamming distances h follow its distances c up to δ, ``|λ h - c| <= δ`` for all
rows.  If the k-order gap ``Δ_k = c_(k+1) - c_k`` is greater than 2 δ, then its k nearest rows have the k
nearest codes: ``λ h <= c_k + δ < c_(k+1) - δ <= λ h'`` for each of them and each other row.

Sigmoids.  For x with a density of at most p (normal: ``1 / (σ √(2π))``) and the step h and sigmoid s of
slope a,

    E |h(x) - s(a x)| = E 1 / (1 + e^(a |x|)) <= 2 p ∫_0^∞ dx / (1 + e^(a x)) = 2 p ln 2 / a,

so the gap closes as 1 / a, and with it that of the distances of b bits: ``E |‖s - s'‖² - h| <= 4 b`` times as
much.  Nothing follows for the greatest deviation over all pairs, which one bit near its threshold decides.
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import quad
from scipy.special import expit


def is_guaranteed(distances: np.ndarray, hamming: np.ndarray, scale: float, k: int) -> np.ndarray:
    """Return for which queries Δ_k is greater than 2 δ, δ being that of each query's own pairs.

    Parameters
    ----------
    distances, hamming : ndarray, shape (q, n)
        Of all rows that are not the query.
    scale : float
        λ.
    k : int
        Less than n.

    Returns
    -------
    ndarray of bool, shape (q,)
    """
    delta = np.abs(scale * hamming - distances).max(axis=1)
    edge = np.sort(distances, axis=1)[:, k - 1 : k + 1]
    return edge[:, 1] - edge[:, 0] > 2 * delta


def sigmoid_gap(slope: float, deviation: float = 1.0, mean: float = 0.0) -> float:
    """Return E |h(x) - s(slope x)| of a normal x by quadrature."""

    def density(x: float) -> float:
        z = (x - mean) / deviation
        return float(np.exp(-z * z / 2) / (deviation * np.sqrt(2 * np.pi)))

    far = 40 * deviation + abs(mean)
    near = min(far, 40 / slope)
    halves = [
        quad(lambda x, sign=sign: density(sign * x) * expit(-slope * x), a, b, limit=200)[0]
        for sign in (-1, 1)
        for a, b in ((0, near), (near, far))
    ]
    return float(sum(halves))


def sigmoid_gap_bound(slope: float, deviation: float = 1.0) -> float:
    """Return what it does not exceed, whatever the mean."""
    return float(np.sqrt(2 / np.pi) * np.log(2) / (deviation * slope))
