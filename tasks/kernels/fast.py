"""The encoder's fast path: centre rows, and take from float32 scores every bit that their error leaves sure.

What is not sure is returned, to be decided by exact scores. Where numba is absent the references beside the
compiled loops run; both give the same bits, and both call the same rows unsure except where a threshold
between distinct scores was not found within a few steps, which only costs time.
"""

from __future__ import annotations

import functools
from statistics import NormalDist

import numpy as np

from ._numba import loops, one_form
from .exact import exact_scores_reference, padded_width
from .pack import pack_active_reference, pack_bits
from .wta import bracket, bracket_reference, top_active_reference


def centre(vectors: np.ndarray, mean: np.ndarray, rounded: np.ndarray) -> np.ndarray:
    """Write ``vectors - mean``, subtracted in float64, to ``rounded``; return its squared lengths.

    Parameters
    ----------
    vectors : ndarray of float32 or float64, shape (m, d), C-contiguous
    mean : ndarray of float64, shape (d,)
    rounded : ndarray of float32 or float64, shape (m, d)
        Written over; what float32 cannot hold becomes infinite or zero.

    Returns
    -------
    ndarray of float64, shape (m,)
        Before rounding to float32; not finite where a row is not, or overflows float64.
    """
    if loops() is None:
        return centre_reference(vectors, mean, rounded)
    from . import compiled_encode

    squares = np.empty(len(vectors))
    compiled_encode.centre(one_form(vectors), one_form(mean), rounded, squares)
    return squares


def centre_reference(vectors: np.ndarray, mean: np.ndarray, rounded: np.ndarray) -> np.ndarray:
    """Do the same in NumPy."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        centred = vectors.astype(np.float64) - mean
        rounded[...] = centred
        return np.einsum("ij,ij->i", centred, centred)


def centred_rows(vectors: np.ndarray, rows: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return ``vectors[rows] - mean`` in float64, zero-padded to whole lanes of `exact`."""
    padded = np.zeros((len(rows), padded_width(len(mean))))
    if loops() is None:
        with np.errstate(over="ignore", invalid="ignore"):
            padded[:, : len(mean)] = vectors[rows].astype(np.float64) - mean
    else:
        from . import compiled_encode

        compiled_encode.centre_some(one_form(vectors), rows, one_form(mean), padded)
    return padded


def sure_winners(
    scores: np.ndarray, lengths: np.ndarray, error: float, n_active: int, packed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pack the ``n_active`` largest of each row whose scores leave no doubt about them.

    Parameters
    ----------
    scores : ndarray of float32 or float64, shape (m, b), C-contiguous
    lengths : ndarray of float64, shape (m,)
    error : float
        Every score of row i is right to ``error * lengths[i]``.
    n_active : int
        1 <= n_active < b.
    packed : ndarray of uint8, shape (m, ceil(b / 8))
        Written over; unsure rows keep what they hold.

    Returns
    -------
    rows : ndarray of int64, shape (u,)
        The unsure rows, ascending.
    brackets : ndarray of float64, shape (u, 2)
        Their ``n_active``-th and next largest scores.
    """
    if loops() is None:
        return sure_winners_reference(scores, lengths, error, n_active, packed)
    from . import compiled_encode

    m, n_bits = scores.shape
    integer = np.dtype(f"i{scores.itemsize}").type
    most = 2 ** (8 * scores.itemsize - 1) - 1
    sign = integer(most), integer(8 * scores.itemsize - 1)
    logs, start = _search_table(n_active, n_bits)
    rows, brackets = np.empty(m, np.int64), np.empty((m, 2))
    patterns = scores.view(integer)
    n_unsure = compiled_encode.sure_winners(
        scores, patterns, sign, lengths, error, n_active, logs, start, packed, rows, brackets
    )
    rows, brackets = rows[:n_unsure], brackets[:n_unsure]
    tied = np.flatnonzero(np.isnan(brackets[:, 0]))
    if len(tied):
        brackets[tied] = bracket(scores[rows[tied]], n_active)
    return rows, brackets


def sure_winners_reference(
    scores: np.ndarray, lengths: np.ndarray, error: float, n_active: int, packed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Do the same by sorting."""
    brackets = bracket_reference(scores, n_active)
    sure = brackets[:, 0] - brackets[:, 1] > 2 * error * lengths
    packed[sure] = pack_active_reference(top_active_reference(scores[sure], n_active), scores.shape[1])
    rows = np.flatnonzero(~sure)
    return rows, brackets[rows]


def decide_winners(
    scores: np.ndarray,
    rows: np.ndarray,
    bounds: np.ndarray,
    centred: tuple[np.ndarray, np.ndarray, np.ndarray],
    columns: np.ndarray,
    n_active: int,
    packed: np.ndarray,
) -> None:
    """Pack the unsure rows: what is above their upper bound, and the best of the rest by exact score.

    Parameters
    ----------
    scores : ndarray of float32 or float64, shape (m, b), C-contiguous
    rows : ndarray of int64, shape (u,)
    bounds : ndarray of float64, shape (u, 2)
        What is below the first is no winner, what is above the second is one.
    centred : tuple of vectors (k, d), mean (d,) and places (u,)
        The vector of unsure row p is ``vectors[places[p]] - mean``.
    columns : ndarray of float64, shape (b, width)
        What exact scores are taken with; among equal ones the smallest index wins.
    n_active : int
    packed : ndarray of uint8, shape (m, ceil(b / 8))
        The codes of ``rows`` are written over.
    """
    # in the scores' own type, the lower bound a little below and the upper not below what is asked for
    low, high = bounds.T.astype(scores.dtype)
    low = np.nextafter(low, scores.dtype.type(-np.inf))
    high = np.where(high < bounds[:, 1], np.nextafter(high, scores.dtype.type(np.inf)), high)
    limits = np.column_stack([np.where(low < bounds[:, 0], low, np.nextafter(low, -np.inf)), high])
    limits = np.ascontiguousarray(limits, scores.dtype)
    if loops() is None:
        decide_winners_reference(scores, rows, limits, centred, columns, n_active, packed)
        return
    from . import compiled_encode

    where = (one_form(array) for array in (*centred, columns))
    compiled_encode.decide_winners(scores, rows, limits, *where, n_active, packed)


def decide_winners_reference(
    scores: np.ndarray,
    rows: np.ndarray,
    limits: np.ndarray,
    centred: tuple[np.ndarray, np.ndarray, np.ndarray],
    columns: np.ndarray,
    n_active: int,
    packed: np.ndarray,
) -> None:
    """Do the same row by row, with limits in the scores' type: candidates are in (low, high]."""
    vectors, mean, places = centred
    padded = np.zeros((len(rows), columns.shape[1]))
    padded[:, : len(mean)] = vectors[places].astype(np.float64) - mean
    for row, (low, high), vector in zip(rows, limits, padded, strict=True):
        values = scores[row]
        candidates = np.flatnonzero((values > low) & (values <= high))
        first = np.zeros(len(candidates), np.int64)
        exact = exact_scores_reference(vector[None], columns, first, candidates)
        sure = np.flatnonzero(values > high)
        best = candidates[np.argsort(-exact, kind="stable")[: n_active - len(sure)]]
        packed[row] = pack_active_reference(np.concatenate([sure, best])[None], scores.shape[1])[0]


def sure_signs(
    scores: np.ndarray, lengths: np.ndarray, limits: np.ndarray, packed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pack ``scores >= 0``; return rows and columns of what is closer to zero than its error.

    Parameters
    ----------
    scores : ndarray of float32 or float64, shape (m, b), C-contiguous
    lengths : ndarray of float64, shape (m,)
    limits : ndarray of float64, shape (b,)
        Score (i, j) is unsure below ``limits[j] * lengths[i]``.
    packed : ndarray of uint8, shape (m, ceil(b / 8))
        Written over.

    Returns
    -------
    rows, columns : ndarray of int64, shape (u,)
        In row-major order.
    """
    # in the scores' own type, rounded up and a little more: then all is done in that type
    above = scores.dtype.type(1 + 2**-20)
    lengths, limits = (
        np.nextafter(a.astype(above.dtype), above.dtype.type(np.inf)) for a in (lengths, limits)
    )
    limits *= above
    if loops() is None:
        return sure_signs_reference(scores, lengths, limits, packed)
    from . import compiled_encode

    doubts = np.empty_like(packed)
    n_doubts = compiled_encode.sure_signs(scores, lengths, limits, packed, doubts)
    rows, columns = np.empty(n_doubts, np.int64), np.empty(n_doubts, np.int64)
    compiled_encode.list_ones(doubts, rows, columns)
    return rows, columns


def sure_signs_reference(
    scores: np.ndarray, lengths: np.ndarray, limits: np.ndarray, packed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Do the same in NumPy, with lengths and limits in the scores' type."""
    packed[...] = pack_bits(scores >= 0)
    rows, columns = np.nonzero(np.abs(scores) < limits * lengths[:, None])
    return rows.astype(np.int64), columns.astype(np.int64)


def exact_scores_of(
    vectors: np.ndarray, mean: np.ndarray, rows: np.ndarray, columns_matrix: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Return the exact scores, see `exact`, of pairs of a vector, centred, and a column.

    Parameters
    ----------
    vectors : ndarray of float32 or float64, shape (m, d), C-contiguous
    mean : ndarray of float64, shape (d,)
    rows, columns : ndarray of int64, shape (p,)
    columns_matrix : ndarray of float64, shape (b, width)

    Returns
    -------
    ndarray of float64, shape (p,)
    """
    if loops() is None:
        distinct, places = np.unique(rows, return_inverse=True)
        padded = centred_rows(vectors, distinct, mean)
        return exact_scores_reference(padded, columns_matrix, places, columns)
    from . import compiled_encode

    out = np.empty(len(rows))
    compiled_encode.exact_scores_of(vectors, mean, rows, columns_matrix, columns, out)
    return out


@functools.lru_cache(maxsize=64)
def _search_table(n_active: int, n_bits: int) -> tuple[np.ndarray, float]:
    """Return the logarithms of all counts, and where a row of unit length would have its threshold."""
    quantile = NormalDist().inv_cdf(1 - n_active / n_bits)
    return np.log(np.maximum(np.arange(n_bits + 1), 0.5)), max(quantile, 0.1) / n_bits**0.5
