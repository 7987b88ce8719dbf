"""Squared distances of listed pairs of soft codes, and their gradient at the points, compiled and in NumPy.

A secant is a pair of points.  The gradient is held by the points (n, b), never by the pairs (pairs, d): each
pair pulls its two points along their difference, and what pulls at a point is added up in the order of the
pairs.
"""

from __future__ import annotations

import numpy as np

from ._numba import loops


def squares(codes: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return ``‖codes[first] - codes[second]‖²``.

    Parameters
    ----------
    codes : ndarray of float64, shape (n, b)
    first, second : ndarray of int32 or int64, shape (pairs,)

    Returns
    -------
    ndarray of float64, shape (pairs,)
    """
    if loops() is None:
        return squares_reference(codes, first, second)
    from . import compiled_secants

    out = np.empty(len(first))
    compiled_secants.squares(codes, first, second, out)
    return out


def squares_reference(codes: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Do the same in NumPy."""
    out = np.zeros(len(first))
    for column in codes.T:
        difference = column[first] - column[second]
        out += difference * difference
    return out


def pull(codes: np.ndarray, first: np.ndarray, second: np.ndarray, forces: np.ndarray) -> np.ndarray:
    """Return the gradient of ``Σ_p forces[p] ‖codes[first[p]] - codes[second[p]]‖²`` in the codes.

    Parameters
    ----------
    codes : ndarray of float64, shape (n, b)
    first, second : ndarray of int32 or int64, shape (pairs,)
    forces : ndarray of float64, shape (pairs,)

    Returns
    -------
    ndarray of float64, shape (n, b)
    """
    if loops() is None:
        return pull_reference(codes, first, second, forces)
    from . import compiled_secants

    out = np.zeros_like(codes)
    compiled_secants.pull(codes, first, second, forces, out)
    return out


def pull_reference(
    codes: np.ndarray, first: np.ndarray, second: np.ndarray, forces: np.ndarray
) -> np.ndarray:
    """Do the same in NumPy."""
    out = np.zeros_like(codes)
    ends = np.stack([first, second], axis=1).ravel()  # both ends of a pair before the next pair
    for m, column in enumerate(codes.T):
        parts = 2.0 * forces * (column[first] - column[second])
        np.add.at(out[:, m], ends, np.stack([parts, -parts], axis=1).ravel())
    return out
