"""Codes in memory, laid out for search: dense ones in tiles and by pivots, sparse ones in bit columns."""

from __future__ import annotations

import numpy as np

from .kernels import pivots, vertical
from .kernels.blocked import make_tiles, search_tiles
from .kernels.hamming import as_words
from .kernels.pack import list_active
from .random import stream

STRATEGIES = ("auto", "scan", "pivots")
_TRIED = 16  # queries from which it is seen whether pivots pay
_PAYS = 0.6  # share of all codes; more than that costs more than the plain scan
_WORTH_SORTING = 50_000  # codes below which no sorting is needed


class DenseCodes:
    """Dense codes, searched by Hamming distance.

    Parameters
    ----------
    packed : ndarray of uint8, shape (n, n_bytes)
    strategy : str
        ``"scan"`` compares each query with all codes, ``"pivots"`` passes over codes by the triangle
        inequality, ``"auto"`` tries the latter on a few queries and goes on with what is faster.  The
        results are the same.
    clusters : ndarray of int64, shape (n,), optional
        The cluster of each code, for `search_clusters`; then there is no other search.
    n_clusters : int
    """

    def __init__(
        self,
        packed: np.ndarray,
        strategy: str = "auto",
        clusters: np.ndarray | None = None,
        n_clusters: int = 0,
    ) -> None:
        words = as_words(packed)
        self._pays: dict[int, bool] = {}
        self._tiles, self._sorted = None, None
        if clusters is not None:
            self._sorted = pivots.sort_by_cluster(words, clusters, n_clusters)
            return
        if strategy != "pivots" or not len(words):
            self._tiles = make_tiles(words)
        if (strategy == "auto" and len(words) >= _WORTH_SORTING) or (strategy == "pivots" and len(words)):
            self._sorted = pivots.sort_by_pivot(words, stream(0, "pivots"))

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return distances int32 and rows int64 of the k nearest codes, shape (q, k), ties by row."""
        words = as_words(queries)
        if self._tiles is None:
            assert self._sorted is not None
            return pivots.search_pivots(self._sorted, words, k)[:2]
        if (
            self._sorted is None
            or self._pays.get(k) is False
            or (k not in self._pays and len(words) < _TRIED)
        ):
            return search_tiles(self._tiles, words, k)
        if self._pays.get(k):
            return pivots.search_pivots(self._sorted, words, k)[:2]
        distances, rows, compared = pivots.search_pivots(self._sorted, words[:_TRIED], k)
        self._pays[k] = compared < _PAYS * _TRIED * self._tiles.n_rows
        rest = self.search(words[_TRIED:].view(np.uint8), k)
        return np.concatenate([distances, rest[0]]), np.concatenate([rows, rest[1]])

    def search_clusters(
        self, queries: np.ndarray, probes: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search the clusters ``probes[q]`` of each query (negative: none), which hold k codes at least."""
        assert self._sorted is not None
        return pivots.search_clusters(self._sorted, probes, as_words(queries), k)


class SparseCodes:
    """Sparse codes, all with ``n_active`` ones, searched by overlap: distance ``2 n_active - 2 overlap``.

    Parameters
    ----------
    packed : ndarray of uint8, shape (n, n_bytes)
    n_bits, n_active : int
    clusters, n_clusters
        As in `DenseCodes`.
    """

    def __init__(
        self,
        packed: np.ndarray,
        n_bits: int,
        n_active: int,
        clusters: np.ndarray | None = None,
        n_clusters: int = 0,
    ) -> None:
        active = list_active(packed, n_active)
        self._columns = vertical.make_columns(active, n_bits, clusters, n_clusters)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return distances int32 and rows int64 of the k nearest codes, shape (q, k), ties by row."""
        return vertical.search_columns(self._columns, self._active(queries), k)

    def search_clusters(
        self, queries: np.ndarray, probes: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search the clusters ``probes[q]`` of each query (negative: none), which hold k codes at least."""
        return vertical.search_column_clusters(self._columns, probes, self._active(queries), k)

    def _active(self, queries: np.ndarray) -> np.ndarray:
        return list_active(queries, self._columns.n_active)
