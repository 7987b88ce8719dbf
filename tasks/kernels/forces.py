"""What every pair of a batch adds to a calibration, and how hard it pulls, compiled and in NumPy.

``hamming`` holds soft Hamming distances in [0, b] of all pairs of n points, ``distances`` their true ones.
The compiled loops make one pass over each, where NumPy would make a dozen.
"""

from __future__ import annotations

import numpy as np

from ._numba import loops


def tabulate(hamming: np.ndarray, distances: np.ndarray, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many pairs i < j have each rounded Hamming distance, and the sums of their distances.

    Parameters
    ----------
    hamming, distances : ndarray of float32 or float64, shape (n, n)
    n_bits : int

    Returns
    -------
    count, total : ndarray of float64, shape (n_bits + 1,)
    """
    if loops() is None:
        return tabulate_reference(hamming, distances, n_bits)
    from . import compiled_secants

    count, total = np.zeros(n_bits + 1), np.zeros(n_bits + 1)
    compiled_secants.tabulate(hamming, distances, count, total)
    return count, total


def tabulate_reference(
    hamming: np.ndarray, distances: np.ndarray, n_bits: int
) -> tuple[np.ndarray, np.ndarray]:
    """Do the same in NumPy."""
    upper = np.triu_indices(len(hamming), 1)
    places = (hamming[upper].astype(np.float64) + 0.5).astype(np.intp)
    count = np.bincount(places, minlength=n_bits + 1).astype(np.float64)
    return count, np.bincount(places, distances[upper], n_bits + 1)


def calibrated_forces(
    hamming: np.ndarray, distances: np.ndarray, table: np.ndarray, steepness: np.ndarray, power: int
) -> tuple[np.ndarray, float]:
    """Return ``(g(h) - c)^(power - 1) g'(h)`` of all pairs, 0 on the diagonal, and the sum of sizes.

    Parameters
    ----------
    hamming, distances : ndarray of float32 or float64, shape (n, n)
    table : ndarray of float64, shape (b + 1,)
        g at whole h, linear in between.
    steepness : ndarray of float64, shape (b,)
        What stands for g' between h and h + 1.
    power : int
        Even, at least 2.

    Returns
    -------
    forces : ndarray of the type of ``hamming``, shape (n, n)
    mass : float
    """
    if loops() is None:
        return calibrated_forces_reference(hamming, distances, table, steepness, power)
    from . import compiled_secants

    out = np.empty_like(hamming)
    mass = compiled_secants.calibrated_forces(hamming, distances, table, steepness, (power - 2) // 2, out)
    return out, float(mass)


def calibrated_forces_reference(
    hamming: np.ndarray, distances: np.ndarray, table: np.ndarray, steepness: np.ndarray, power: int
) -> tuple[np.ndarray, float]:
    """Do the same in NumPy."""
    below = np.minimum(hamming.astype(np.intp), len(table) - 2)
    error = table[below] + np.diff(table)[below] * (hamming - below) - distances
    square, forces = error * error, error
    for _ in range((power - 2) // 2):
        forces = forces * square
    forces = forces * steepness[below]
    np.fill_diagonal(forces, 0)
    return forces.astype(hamming.dtype), float(np.abs(forces).sum(axis=1).sum())
