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


def between(scores: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns, int64, of the entries in [low, high] of their row, in row-major order."""
    compiled = loops()
    if compiled is None:
        return between_reference(scores, low, high)
    counts = np.empty(scores.shape[0], np.int64)
    compiled.count_between(scores, low, high, counts)
    rows = np.empty(int(counts.sum()), np.int64)
    columns = np.empty_like(rows)
    compiled.fill_between(scores, low, high, counts, rows, columns)
    return rows, columns


def between_reference(scores: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Do the same in NumPy."""
    inside = (scores >= low[:, None]) & (scores <= high[:, None])
    rows, columns = np.nonzero(inside)
    return rows.astype(np.int64), columns.astype(np.int64)


def choose(
    scores: np.ndarray,
    high: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    exact: np.ndarray,
    n_active: int,
) -> np.ndarray:
    """Take what lies above ``high`` and fill up with the candidates of best exact score.

    Parameters
    ----------
    scores : ndarray, shape (m, b)
    high : ndarray of float64, shape (m,)
    rows, columns, exact : ndarray, shape (p,)
        The candidates in row-major order with their exact scores; every row has enough of them.
    n_active : int

    Returns
    -------
    ndarray of int32, shape (m, n_active)
        Ascending; among equal exact scores the smallest index wins.
    """
    compiled = loops()
    if compiled is None:
        return choose_reference(scores, high, rows, columns, exact, n_active)
    offsets = np.searchsorted(rows, np.arange(scores.shape[0] + 1))
    active = np.empty((scores.shape[0], n_active), np.int32)
    compiled.choose(scores, high, offsets, columns, exact, n_active, active)
    return active


def choose_reference(
    scores: np.ndarray,
    high: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    exact: np.ndarray,
    n_active: int,
) -> np.ndarray:
    """Do the same row by row."""
    active = np.empty((scores.shape[0], n_active), np.int32)
    for i, row in enumerate(scores):
        sure = np.flatnonzero(row > high[i])
        mine = rows == i
        best = np.argsort(-exact[mine], kind="stable")[: n_active - len(sure)]
        active[i] = np.sort(np.concatenate([sure, columns[mine][best]]))
    return active


def _quantile(n_active: int, n_bits: int) -> float:
    """Where the threshold lies, in standard deviations, if scores were normal: the first probe."""
    return NormalDist().inv_cdf(1 - (n_active - 0.5 if n_active == n_bits else n_active) / n_bits)
