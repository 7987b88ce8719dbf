"""Rows brought to length one, for methods that learn from directions alone."""

from __future__ import annotations

import numpy as np

_ORDINARY = 2.0**500  # squared lengths within [1/_ORDINARY, _ORDINARY] are far from overflow and underflow


def unit_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each row over its Euclidean length, and which rows are not zero.

    Parameters
    ----------
    rows : ndarray of float64, shape (m, r)
        Of any size that float64 can hold; NaN and infinity stay what they are or become NaN.

    Returns
    -------
    unit : ndarray of float64, shape (m, r)
        Zero rows stay zero.
    nonzero : ndarray of bool, shape (m,)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
        extreme = np.flatnonzero(~((squares >= 1 / _ORDINARY) & (squares <= _ORDINARY)))
        if len(extreme):
            rows = rows.copy()
            largest = np.abs(rows[extreme]).max(axis=1, initial=0.0)
            rows[extreme] = np.ldexp(rows[extreme], -np.frexp(largest)[1][:, None])
            squares[extreme] = np.einsum("ij,ij->i", rows[extreme], rows[extreme])
        lengths = np.sqrt(squares)
        return rows / np.where(lengths == 0, 1.0, lengths)[:, None], lengths != 0
