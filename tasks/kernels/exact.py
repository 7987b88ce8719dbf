"""Dot products in a fixed order: the scores that decide every bit that rounding could turn.

Entry k goes to lane ``k % 8``; each lane adds its products in order of k, starting from +0; the lanes
are joined as ``((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7))``. Float64 throughout, no fused multiply-add,
so that the result is a function of the two vectors alone, whatever else is in the batch.
"""

from __future__ import annotations

import numpy as np

from ._numba import loops

LANES = 8
_PAIRS_AT_ONCE = 4096


def padded_width(n_features: int) -> int:
    """Return ``n_features`` rounded up to whole lanes."""
    return -(-n_features // LANES) * LANES


def exact_scores(
    rows_matrix: np.ndarray, columns_matrix: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Return the dots of ``rows_matrix[rows[p]]`` and ``columns_matrix[columns[p]]``, in fixed order.

    Parameters
    ----------
    rows_matrix : ndarray of float64, shape (m, width), C-contiguous
    columns_matrix : ndarray of float64, shape (b, width), C-contiguous
        Both zero-padded to ``padded_width``.
    rows, columns : ndarray of int64, shape (p,)

    Returns
    -------
    ndarray of float64, shape (p,)
    """
    if loops() is None:
        return exact_scores_reference(rows_matrix, columns_matrix, rows, columns)
    from . import compiled_encode

    out = np.empty(len(rows))
    compiled_encode.exact_scores(rows_matrix, columns_matrix, rows, columns, out)
    return out


def exact_scores_reference(
    rows_matrix: np.ndarray, columns_matrix: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Do the same in NumPy, a few thousand pairs at a time."""
    out = np.empty(len(rows))
    for start in range(0, len(rows), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        x = rows_matrix[rows[part]].reshape(-1, rows_matrix.shape[1] // LANES, LANES)
        w = columns_matrix[columns[part]].reshape(x.shape)
        lanes = np.zeros((len(x), LANES))
        for k in range(x.shape[1]):
            lanes += x[:, k] * w[:, k]
        a = lanes.T
        out[part] = ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    return out


def fixed_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return ``left @ right`` with each entry's products added in order, starting from +0.

    For products that decide bits and are computed once: unlike BLAS it gives the same on every machine.

    Parameters
    ----------
    left : ndarray of float64, shape (d, r), C-contiguous
    right : ndarray of float64, shape (r, b), C-contiguous

    Returns
    -------
    ndarray of float64, shape (d, b)

    Raises
    ------
    ValueError
        If the shapes do not fit; compiled code would read beyond the arrays.
    """
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise ValueError(f"expected factors of shapes (d, r) and (r, b), got {left.shape} and {right.shape}")
    compiled = loops()
    if compiled is None:
        return fixed_product_reference(left, right)
    out = np.zeros((left.shape[0], right.shape[1]))
    compiled.fixed_product(left, right, out)
    return out


def fixed_product_reference(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Do the same in NumPy."""
    out = np.zeros((left.shape[0], right.shape[1]))
    for k in range(left.shape[1]):
        out += left[:, k, None] * right[k]
    return out
