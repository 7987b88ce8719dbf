"""Signs of weighted sums of numbers that are given, not computed again: a function of these alone."""

from __future__ import annotations

import numpy as np

from .kernels.exact import exact_scores, padded_width
from .kernels.pack import pack_bits


def weighted_signs(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the packed bits ``rows @ weights >= 0``, those near zero by sums in a fixed order.

    Parameters
    ----------
    rows : ndarray of float32, shape (n, m)
    weights : ndarray of float64, shape (m, b)

    Returns
    -------
    ndarray of uint8, shape (n, ceil(b / 8))

    Notes
    -----
    A product in float64 is wrong by at most ``γ_m ‖row‖ ‖column‖``, and so is the exact way.
    """
    m = len(weights)
    scores = rows.astype(np.float64) @ weights
    bits = scores >= 0
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)[:, None] * np.linalg.norm(weights, axis=0)
    unsure = np.abs(scores) <= 3 * (m + 8) * 2.0**-53 * lengths
    if unsure.any():
        numbers, columns = np.nonzero(unsure)
        left = np.zeros((len(rows), padded_width(m)))
        right = np.zeros((weights.shape[1], padded_width(m)))
        left[:, :m], right[:, :m] = rows, weights.T
        bits[numbers, columns] = exact_scores(left, right, numbers, columns) >= 0
    return pack_bits(bits)
