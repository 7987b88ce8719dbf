"""The rows of one block that are nearest to each query, by exact Euclidean distance.

Rows are screened with float32 distances and a proven error bound; what may be among the k nearest gets its
distance in float64, features added in order.  So the result is a function of the rows alone.

The bound.  With u = 2⁻²⁴ and rows of d features, a float32 squared distance in the form ‖x‖² + ‖y‖² − 2x·y,
of rows themselves rounded once, is off by less than (d + 8)·u·(‖x‖ + ‖y‖)²; the sums below round a few times
more.  The constant covers underflow; what overflows becomes NaN or infinite, and stays in.
"""

from __future__ import annotations

import numpy as np

from ._numba import loops, one_form
from .euclidean import OVERFLOW, pair_distances
from .ranked import Ranked, merge_ranked_reference

_SCREEN = 1 << 23  # query-row pairs screened at once
_QUERIES, _ROWS = 1024, 512  # whose products take 2 MiB, so that they are screened from a cache


def nearest_rows(
    queries: np.ndarray,
    vectors: np.ndarray,
    rounded: tuple[np.ndarray, np.ndarray],
    ranks: np.ndarray,
    k: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k nearest rows of each query, nearest first.

    Parameters
    ----------
    queries : ndarray of float, shape (q, d)
    vectors : ndarray of float, shape (m, d)
    rounded : pair of ndarray of float32, shapes (q, d) and (m, d)
        The same, shifted alike and rounded once: what is screened.
    ranks : ndarray of int64, shape (m,)
        Whoever has the smaller one goes first among equally near rows; distinct.
    k : int
        At most m.

    Returns
    -------
    distance : ndarray of float64, shape (q, k)
        Squared.
    places : ndarray of int64, shape (q, k)

    Raises
    ------
    ValueError
        If a distance overflows.
    """
    if loops() is None:
        return nearest_rows_reference(queries, vectors, rounded, ranks, k)
    from . import compiled_nearest

    found, places = np.empty((len(queries), k)), np.empty((len(queries), k), np.int64)
    screened, others = rounded
    queries, vectors = one_form(queries, np.float64), one_form(vectors)
    with np.errstate(over="ignore", invalid="ignore"):
        query_norms, norms = (np.einsum("ij,ij->i", a, a) for a in (screened, others))
        finite, step = True, max(1, _SCREEN // len(vectors))
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            finite &= compiled_nearest.nearest(
                screened[part] @ others.T, query_norms[part], norms, _factor(queries.shape[1]),
                queries[part], vectors, ranks, k, found[part], places[part],
            )  # fmt: skip
    if not finite:
        raise ValueError(OVERFLOW)
    return found, places


def improve_lists(
    lists: Ranked,
    queries: np.ndarray,
    vectors: np.ndarray,
    rounded: tuple[np.ndarray, np.ndarray],
    ranks: np.ndarray,
    ties: np.ndarray,
    ids: np.ndarray,
) -> None:
    """Let rows take their places in each query's list of its nearest ones, and the last fall off.

    Only rows that may be as near as a list's last one get a distance in float64; of n rows in random order
    these are some k / n of the next, where `nearest_rows` looks at k of every block.

    Parameters
    ----------
    lists : tuple of ndarray, each of shape (q, k)
        ``(distance, tie, id)`` of float64, uint32 and int64, every row ascending in that order; written over.
    queries, vectors, rounded, ranks
        As in `nearest_rows`.
    ties : ndarray of uint32, shape (m,)
    ids : ndarray of int64, shape (m,)
        Of the rows; ``ranks`` is their order by (tie, id).

    Raises
    ------
    ValueError
        If a distance overflows; some lists are improved then, others not.
    """
    if loops() is None:
        improve_lists_reference(lists, queries, vectors, rounded, ranks, ties, ids)
        return
    from . import compiled_nearest

    screened, others = rounded
    queries, vectors, ranks, ties, ids = (
        one_form(array, dtype)
        for array, dtype in (
            (queries, np.float64), (vectors, None), (ranks, np.int64), (ties, np.uint32), (ids, np.int64)
        )
    )  # fmt: skip
    limits = _not_below(lists[0][:, -1])
    with np.errstate(over="ignore", invalid="ignore"):
        query_norms, norms = (np.einsum("ij,ij->i", a, a) for a in (screened, others))
        finite = True
        chosen = np.empty((_QUERIES, compiled_nearest.MANY + _ROWS), np.int64)
        space = np.empty(_QUERIES * _ROWS, np.float32)
        for start in range(0, len(queries), _QUERIES):
            part, n_chosen = slice(start, start + _QUERIES), np.zeros(_QUERIES, np.int64)
            for first in range(0, len(vectors), _ROWS):
                rows = others[first : first + _ROWS]
                products = space[: min(_QUERIES, len(queries) - start) * len(rows)].reshape(-1, len(rows))
                np.matmul(screened[part], rows.T, out=products)
                finite &= compiled_nearest.improve(
                    products, first, first + _ROWS >= len(vectors),
                    query_norms[part], norms, _factor(queries.shape[1]), limits[part], queries[part], vectors,
                    ranks, ties, ids, chosen, n_chosen, lists[0][part], lists[1][part], lists[2][part],
                )  # fmt: skip
    if not finite:
        raise ValueError(OVERFLOW)


def improve_lists_reference(
    lists: Ranked,
    queries: np.ndarray,
    vectors: np.ndarray,
    rounded: tuple[np.ndarray, np.ndarray],
    ranks: np.ndarray,
    ties: np.ndarray,
    ids: np.ndarray,
) -> None:
    """Do the same by ranking the rows alone, and merging."""
    k = lists[0].shape[1]
    distance, rows = nearest_rows_reference(queries, vectors, rounded, ranks, min(k, len(vectors)))
    for array, merged in zip(
        lists, merge_ranked_reference(lists, (distance, ties[rows], ids[rows]), k), strict=True
    ):
        array[...] = merged


def nearest_rows_reference(
    queries: np.ndarray,
    vectors: np.ndarray,
    rounded: tuple[np.ndarray, np.ndarray],
    ranks: np.ndarray,
    k: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `nearest_rows` returns, by sorting."""
    step = max(1, _SCREEN // len(vectors))
    pairs = []
    for start in range(0, len(queries), step):
        query_rows, rows = np.nonzero(_screen(rounded[0][start : start + step], rounded[1], k))
        pairs.append((query_rows + start, rows))
    query_rows, rows = (np.concatenate(side) for side in zip(*pairs, strict=True))
    distance = pair_distances(queries, vectors, query_rows, rows)
    order = np.lexsort((ranks[rows], distance, query_rows))
    starts = np.searchsorted(query_rows[order], np.arange(len(queries)))
    best = order[starts[:, None] + np.arange(k)]
    return distance[best], rows[best]


def _screen(queries: np.ndarray, vectors: np.ndarray, k: int) -> np.ndarray:
    """Return which rows may be among the k nearest, shape (q, m)."""
    with np.errstate(over="ignore", invalid="ignore"):
        query_norms, norms = (np.einsum("ij,ij->i", a, a) for a in (queries, vectors))
        distance = queries @ vectors.T
        distance *= -2
        distance += norms
        distance += query_norms[:, None]
        bound = np.sqrt(norms) + np.sqrt(query_norms)[:, None]
        bound *= bound
        bound *= _factor(queries.shape[1])
        bound += np.float32(1e-30)
        distance += bound  # no true distance is larger
        limit = np.partition(distance, k - 1, axis=1)[:, k - 1 : k]
        bound *= 2
        distance -= bound  # no true distance is smaller
        return ~(distance > limit)


def _not_below(limits: np.ndarray) -> np.ndarray:
    """Round to float32, up."""
    with np.errstate(over="ignore"):
        rounded = limits.astype(np.float32)
        return np.where(rounded < limits, np.nextafter(rounded, np.float32(np.inf)), rounded)


def _factor(n_features: int) -> np.float32:
    return np.float32(1.1 * (n_features + 24) * 2.0**-24)
