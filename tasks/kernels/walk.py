"""What a cut of a weighted graph costs as one node after the other changes sides."""

from __future__ import annotations

import numpy as np

from ._numba import loops


def walk(
    order: np.ndarray, starts: np.ndarray, neighbors: np.ndarray, gains: np.ndarray, bits: np.ndarray
) -> np.ndarray:
    """Return the costs, from that of the first bits on, of turning the bits in an order.

    The cost of bits is the sum of the gains of all edges between a 0 and a 1.

    Parameters
    ----------
    order : ndarray of int64, shape (t,)
        Distinct nodes.
    starts : ndarray of int64, shape (n + 1,)
        Edges of node i are ``starts[i] : starts[i + 1]``; each edge is listed at both of its ends.
    neighbors : ndarray of int64, shape (e,)
    gains : ndarray of float64, shape (e,)
    bits : ndarray of uint8, shape (n,)
        Zeros and ones to begin with; left as they are.

    Returns
    -------
    ndarray of float64, shape (t + 1,)
        Less the cost of the first bits.
    """
    if loops() is None:
        return walk_reference(order, starts, neighbors, gains, bits)
    from . import compiled_walk

    costs = np.empty(len(order) + 1)
    compiled_walk.walk(order, starts, neighbors, gains, bits.copy(), costs)
    return costs


def walk_reference(
    order: np.ndarray, starts: np.ndarray, neighbors: np.ndarray, gains: np.ndarray, bits: np.ndarray
) -> np.ndarray:
    """Do the same in NumPy; cumulated sums add in order."""
    bits, costs = bits.copy(), np.zeros(len(order) + 1)
    for step, row in enumerate(order):
        edges = slice(starts[row], starts[row + 1])
        signed = np.where(bits[neighbors[edges]] == bits[row], gains[edges], -gains[edges])
        bits[row] = 1 - bits[row]
        costs[step + 1] = costs[step] + (np.cumsum(signed)[-1] if len(signed) else 0.0)
    return costs
