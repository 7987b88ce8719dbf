"""Squared Euclidean distances of chosen pairs, in float64 and in a fixed order of summation.

A distance is a function of its two rows alone, whatever block they were read in.
"""

from __future__ import annotations

import numpy as np

from ._numba import loops, one_form

OVERFLOW = "expected finite distances, but squared ones overflow float64; rescale the vectors"


def pair_distances(
    queries: np.ndarray, vectors: np.ndarray, query_rows: np.ndarray, vector_rows: np.ndarray
) -> np.ndarray:
    """Return the squared distance of each listed pair, features added from first to last.

    Parameters
    ----------
    queries : ndarray of float, shape (q, d)
    vectors : ndarray of float, shape (m, d)
    query_rows, vector_rows : ndarray of int64, shape (p,)
        The pairs.

    Returns
    -------
    ndarray of float64, shape (p,)

    Raises
    ------
    ValueError
        If one overflows: rows beyond all numbers would be equally far.
    """
    if loops() is None:
        with np.errstate(over="ignore"):
            distances = pair_distances_reference(queries, vectors, query_rows, vector_rows)
    else:
        from . import compiled_search

        rows = (one_form(side, np.int64) for side in (query_rows, vector_rows))
        distances = compiled_search.pair_distances(one_form(queries, np.float64), one_form(vectors), *rows)
    if not np.isfinite(distances).all():
        raise ValueError(OVERFLOW)
    return distances


def pair_distances_reference(
    queries: np.ndarray, vectors: np.ndarray, query_rows: np.ndarray, vector_rows: np.ndarray
) -> np.ndarray:
    """Return what `pair_distances` returns, bit for bit, one feature at a time."""
    total = np.zeros(len(query_rows), np.float64)
    for j in range(queries.shape[1]):
        left = queries[query_rows, j].astype(np.float64)
        difference = left - vectors[vector_rows, j].astype(np.float64)
        total += difference * difference
    return total
