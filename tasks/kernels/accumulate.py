"""Sparse accumulation ``M += Hᵀ X``: each row is added to the few rows of M that its code switches on."""

from __future__ import annotations

import numpy as np

from ._numba import loops


def add_rows(total: np.ndarray, active: np.ndarray, vectors: np.ndarray) -> None:
    """Add ``vectors[i]`` to ``total[j]`` for every j in ``active[i]``, rows in order, in place.

    Parameters
    ----------
    total : ndarray of float64, shape (b, r), C-contiguous
    active : ndarray of int32, shape (m, n_active)
        Distinct indices within a row.
    vectors : ndarray of float32 or float64, shape (m, r), C-contiguous
    """
    compiled = loops()
    if compiled is None:
        add_rows_reference(total, active, vectors)
    else:
        compiled.add_rows(total, active, vectors)


def add_rows_reference(total: np.ndarray, active: np.ndarray, vectors: np.ndarray) -> None:
    """Do the same in NumPy, a row at a time, so that the order of additions is equal."""
    for indices, vector in zip(active, vectors, strict=True):
        total[indices] += vector
