"""Search of sparse codes by inverted lists, exact, compiled: what a text engine would do with such codes."""

from __future__ import annotations

import numba
import numpy as np
from bitfleet.tasks.kernels.pack import list_active


class InvertedLists:
    """For every bit the rows that have it, ascending.

    Parameters
    ----------
    packed : ndarray of uint8, shape (n, n_bits / 8)
    n_bits : int
    n_active : int
        Ones of every code, at most 255.
    """

    def __init__(self, packed: np.ndarray, n_bits: int, n_active: int) -> None:
        self.n_rows, self.n_active = len(packed), n_active
        bits = list_active(packed, n_active).ravel()
        order = np.argsort(bits, kind="stable")
        self.rows = (order // n_active).astype(np.int32)
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(bits, minlength=n_bits))])

    def postings(self, queries: np.ndarray) -> np.ndarray:
        """Return how many entries the lists of each query's ones hold."""
        return np.diff(self.starts)[list_active(queries, self.n_active)].sum(axis=1)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return distances and rows of the k nearest codes, shape (q, k), ties by row."""
        active = list_active(queries, self.n_active)
        distances, found = np.empty((len(active), k), np.int32), np.empty((len(active), k), np.int64)
        _search(self.rows, self.starts, active, self.n_rows, distances, found)
        return distances, found


@numba.njit(cache=False)
def _search(rows, starts, active, n_rows, distances, found):
    """Count overlaps list by list, find the k-th largest by their histogram, and collect in row order."""
    n_active, k = active.shape[1], found.shape[1]
    overlaps = np.empty(n_rows, np.uint8)
    for q in range(len(active)):
        overlaps[:] = 0
        for bit in active[q]:
            for place in range(starts[bit], starts[bit + 1]):
                overlaps[rows[place]] += 1
        histogram = np.zeros(n_active + 1, np.int64)
        for row in range(n_rows):
            histogram[overlaps[row]] += 1
        places = np.zeros(n_active + 1, np.int64)  # where those of each overlap begin in the answer
        for overlap in range(n_active - 1, -1, -1):
            places[overlap] = places[overlap + 1] + histogram[overlap + 1]
        least = n_active
        while least and places[least] + histogram[least] < k:
            least -= 1
        for row in range(n_rows):
            overlap = overlaps[row]
            if overlap >= least and places[overlap] < k:
                distances[q, places[overlap]] = 2 * (n_active - overlap)
                found[q, places[overlap]] = row
                places[overlap] += 1
