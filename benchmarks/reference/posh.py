"""Algorithm 1 of the POSH paper in plain NumPy, from its pseudocode: a full SVD after every mini-batch.

It is what `bitfleet`'s POSH is held to (step by step) and timed against. The code steps of one mini-batch
share W, so they are computed together; nothing else is done for speed, and nothing against it: all
products are float64 products of BLAS, and the winners come from `numpy.argpartition`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator


def winners(scores: np.ndarray, n_active: int) -> np.ndarray:
    """Return wta of every row as float64 codes of zeros and ones, shape (m, D)."""
    largest = np.argpartition(-scores, n_active - 1, axis=1)[:, :n_active]
    codes = np.zeros_like(scores)
    np.put_along_axis(codes, largest, 1.0, axis=1)
    return codes


def orthonormal(matrix: np.ndarray) -> np.ndarray:
    """Return U Vᵀ of the thin singular value decomposition U S Vᵀ."""
    u, _, vt = np.linalg.svd(matrix, full_matrices=False)
    return u @ vt


def learn(
    x: np.ndarray,
    start: np.ndarray,
    n_active: int,
    *,
    n_epochs: int = 50,
    batch_size: int = 100,
    memory: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Yield W after every mini-batch; after a last incomplete one W stays, but M has its rows.

    Parameters
    ----------
    x : ndarray of float64, shape (n, d)
        Centred rows, in the order in which they are learned from.
    start : ndarray of float64, shape (D, d)
        W₀, standard normal entries.
    n_active : int
        Ones per code, α.
    memory : ndarray of float64, shape (D, d), optional
        M of an interrupted run, to go on from in place of ``start``; it is changed in place.
    """
    w = orthonormal(start if memory is None else memory)
    m = w.copy() if memory is None else memory
    for _ in range(n_epochs):
        for first in range(0, len(x), batch_size):
            rows = x[first : first + batch_size]
            m += winners(rows @ w.T, n_active).T @ rows
            if len(rows) == batch_size:
                w = orthonormal(m)
                yield w
