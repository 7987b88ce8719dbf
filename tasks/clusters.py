"""The coarse quantizer: k-means centroids, so that a query looks at a few clusters instead of everything.

Rows are vectors, or codes taken as vectors of zeros and ones; above `WIDTH` features their first principal
components stand for them.  Everything random comes from an addressed stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .kernels.running import few_smallest
from .random import stream

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH = 64
_ITERATIONS = 10
_PER_CLUSTER = 64  # rows of the sample for every centroid
_FOR_COMPONENTS = 8192  # rows of the sample that principal components come from
_LARGEST = 1e15
_AT_ONCE = 1 << 14  # rows compared with all centroids at once


@dataclass(frozen=True, eq=False)
class CoarseQuantizer:
    """Centroids, and how rows are brought to their coordinates.

    Attributes
    ----------
    centroids : ndarray of float32, shape (c, r)
    mean : ndarray of float32, shape (d,)
    components : ndarray of float32, shape (d, r), or None
        None: rows are their own coordinates.
    """

    centroids: np.ndarray
    mean: np.ndarray
    components: np.ndarray | None

    def assign(self, rows: np.ndarray) -> np.ndarray:
        """Return the nearest centroid of each row (m, d), int64, the first among equals."""
        return _nearest(self._coordinates(rows), self.centroids)[0]

    def probes(self, rows: np.ndarray, n_probe: int, sizes: np.ndarray, k: int) -> np.ndarray:
        """Return the clusters that each query looks at, nearest first.

        Parameters
        ----------
        rows : ndarray, shape (q, d)
        n_probe : int
            Clusters to look at; more for a query whose clusters hold fewer than k rows.
        sizes : ndarray of int64, shape (c,)
            Rows of each cluster.
        k : int
            At most the number of rows.

        Returns
        -------
        ndarray of int64, shape (q, p)
            Filled up with -1.
        """
        found = [
            self._probes(rows[at : at + _AT_ONCE], n_probe, sizes, k) for at in range(0, len(rows), _AT_ONCE)
        ]
        width = max((part.shape[1] for part in found), default=0)
        out = np.full((len(rows), width), -1, np.int64)
        for at, part in zip(range(0, len(rows), _AT_ONCE), found, strict=True):
            out[at : at + _AT_ONCE, : part.shape[1]] = part
        return out

    def _probes(self, rows: np.ndarray, n_probe: int, sizes: np.ndarray, k: int) -> np.ndarray:
        distances = _distances(self._coordinates(rows), self.centroids)
        n_probe = min(n_probe, len(self.centroids))
        nearest = few_smallest(distances, n_probe)
        short = np.flatnonzero(sizes[nearest].sum(axis=1) < k)
        if not len(short):
            return nearest
        full = np.argsort(distances[short], axis=1, kind="stable")
        needed = (np.cumsum(sizes[full], axis=1) < k).sum(axis=1) + 1
        out = np.full((len(rows), int(needed.max())), -1, np.int64)
        out[:, :n_probe] = nearest
        for q, clusters, n in zip(short, full, needed, strict=True):
            out[q, :n] = clusters[:n]
        return out

    def _coordinates(self, rows: np.ndarray) -> np.ndarray:
        centred = _single(rows) - self.mean
        return centred if self.components is None else centred @ self.components


def fit_quantizer(
    take: Callable[[np.ndarray], np.ndarray], n: int, n_clusters: int, seed: int
) -> CoarseQuantizer:
    """Find centroids by k-means on a sample of rows.

    Parameters
    ----------
    take : callable
        Returns the rows of given numbers (ascending), shape (m, d).
    n : int
        Number of rows, at least ``n_clusters``.
    n_clusters : int
    seed : int

    Returns
    -------
    CoarseQuantizer
    """
    rng = stream(seed, "coarse quantizer")
    sample = np.sort(rng.choice(n, min(n, _PER_CLUSTER * n_clusters), replace=False))
    rows = _single(take(sample))
    some = rows[np.sort(rng.choice(len(rows), min(len(rows), _FOR_COMPONENTS), replace=False))]
    mean = some.mean(axis=0, dtype=np.float64).astype(np.float32)
    components = None
    if rows.shape[1] > WIDTH:
        centred = (some - mean).astype(np.float64)
        vectors = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :WIDTH]
        components = np.ascontiguousarray(vectors, np.float32)
    start = rows[np.sort(rng.choice(len(rows), n_clusters, replace=False))]
    plan = CoarseQuantizer(np.empty((0, 0), np.float32), mean, components)
    points, centroids = plan._coordinates(rows), plan._coordinates(start)
    for _ in range(_ITERATIONS):
        centroids = _moved(points, centroids)
    return CoarseQuantizer(centroids, mean, components)


def _single(rows: np.ndarray) -> np.ndarray:
    """Return rows in float32; refuse what would overflow when it is squared and added up."""
    if rows.dtype.kind == "f" and np.abs(rows).max(initial=0.0) > _LARGEST:
        raise ValueError(
            f"expected vectors of numbers up to {_LARGEST:.0e} to make clusters of; rescale them"
        )
    return np.asarray(rows, np.float32)


def _moved(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Return the means of the clusters; an empty one moves to the point farthest from its centroid."""
    nearest, distances = _nearest(points, centroids)
    order = np.argsort(nearest, kind="stable")
    occupied, begins, sizes = np.unique(nearest[order], return_index=True, return_counts=True)
    sums = np.add.reduceat(points[order], begins, axis=0, dtype=np.float64)
    moved = centroids.copy()
    moved[occupied] = sums / sizes[:, None]
    empty = np.setdiff1d(np.arange(len(centroids)), occupied)
    if len(empty):
        moved[empty] = points[np.argsort(-distances, kind="stable")[: len(empty)]]
    return moved


def _nearest(points: np.ndarray, centroids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest centroid of each point and the squared distance to it."""
    nearest, least = np.empty(len(points), np.int64), np.empty(len(points), np.float32)
    for at in range(0, len(points), _AT_ONCE):
        distances = _distances(points[at : at + _AT_ONCE], centroids)
        best = distances.argmin(axis=1)
        nearest[at : at + _AT_ONCE] = best
        least[at : at + _AT_ONCE] = distances[np.arange(len(best)), best]
    return nearest, least + np.einsum("ij,ij->i", points, points)


def _distances(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Return squared distances, without the points' own squares, shape (m, c)."""
    distances = points @ centroids.T
    distances *= -2
    distances += np.einsum("ij,ij->i", centroids, centroids)
    return distances
