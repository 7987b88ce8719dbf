"""Merging of ranked lists: rows ordered by (distance, tie, id), the best k kept."""

from __future__ import annotations

import numpy as np

from ._numba import loops

Ranked = tuple[np.ndarray, np.ndarray, np.ndarray]


def merge_ranked(left: Ranked, right: Ranked, k: int) -> Ranked:
    """Merge two ranked lists per query.

    Parameters
    ----------
    left, right : tuple of ndarray, each of shape (q, any)
        ``(distance, tie, id)``, every row ascending in that order; the dtypes of both sides agree.
    k : int
        How many to keep, at most the two widths together.

    Returns
    -------
    tuple of ndarray, each of shape (q, k)
    """
    if loops() is None:
        return merge_ranked_reference(left, right, k)
    from . import compiled_search

    return compiled_search.merge_ranked(*left, *right, k)


def merge_ranked_reference(left: Ranked, right: Ranked, k: int) -> Ranked:
    """Return what `merge_ranked` returns, by sorting both sides together."""
    distance, tie, ids = (np.concatenate(both, axis=1) for both in zip(left, right, strict=True))
    order = np.lexsort((ids, tie, distance), axis=1)[:, :k]
    d, t, i = (np.take_along_axis(array, order, axis=1) for array in (distance, tie, ids))
    return d, t, i
