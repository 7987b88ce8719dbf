"""Winner-take-all: the ``n_active`` largest scores of each row.

The threshold between the winners and the others is found by counting: each probe is one vectorised pass
over a row that lies in cache, and a handful of probes suffice.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from ._numba import loops


def top_active(scores: np.ndarray, n_active: int) -> np.ndarray:
    """Return the indices of the ``n_active`` largest scores of each row.

    Parameters
    ----------
    scores : ndarray of float32 or float64, shape (m, b), C-contiguous, finite
    n_active : int
        1 <= n_active <= b.

    Returns
    -------
    ndarray of int32, shape (m, n_active)
        Ascending; among equal scores the smallest index wins.
    """
    compiled = loops()
    if compiled is None:
        return top_active_reference(scores, n_active)
    active = np.empty((scores.shape[0], n_active), np.int32)
    compiled.top_active(scores, n_active, _quantile(n_active, scores.shape[1]), active)
    return active


def top_active_reference(scores: np.ndarray, n_active: int) -> np.ndarray:
    """Do the same by a stable sort."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :n_active]
    return np.sort(order, axis=1).astype(np.int32)


def bracket(scores: np.ndarray, n_active: int) -> np.ndarray:
    """Return the ``n_active``-th and the next largest score of each row, float64, shape (m, 2).

    Requires ``n_active < b``.
    """
    compiled = loops()
    if compiled is None:
        return bracket_reference(scores, n_active)
    out = np.empty((scores.shape[0], 2))
    compiled.bracket(scores, n_active, _quantile(n_active, scores.shape[1]), out)
    return out


def bracket_reference(scores: np.ndarray, n_active: int) -> np.ndarray:
    """Do the same by a sort."""
    descending = -np.sort(-scores, axis=1)
    return descending[:, n_active - 1 : n_active + 1].astype(np.float64)


def _quantile(n_active: int, n_bits: int) -> float:
    """Where the threshold lies, in standard deviations, if scores were normal: the first probe."""
    return NormalDist().inv_cdf(1 - (n_active - 0.5 if n_active == n_bits else n_active) / n_bits)
