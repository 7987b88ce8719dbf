"""Sparse codes as bit columns: a query with few ones reads only the few columns that they name.

Column j of a tile holds bit j of its codes, 64 codes a word.  The query's columns are added in carry-save
form, all codes of a tile side by side: plane p holds bit p of every code's overlap.  Counting begins so that
whoever reaches the running threshold overflows, so no comparison is needed.  With ``n_active`` ones in all
codes, the Hamming distance is ``2 * n_active - 2 * overlap``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._numba import loops
from .memory import aligned_words
from .running import joined, packed_keys, scan_in_order, sorted_keys

if TYPE_CHECKING:
    from .running import Buffers

TILE_WORDS = 32  # a tile of 2048 codes and 1024 columns is 256 KB: two of them fit the second cache
_LANES = 8
_QUERIES = 64  # searched together: what they read of a tile stays in the second cache
_COLUMNS = 16
_SPARE = 512  # keys beyond twice the wanted ones: more at the last distance cost a sort


@dataclass(frozen=True, eq=False)
class Columns:
    """Codes as bit columns, in lists: tiles of stored order, or clusters.

    Attributes
    ----------
    words : ndarray of uint64
        Column j of list c begins at word ``offsets[c] + j * widths[c]``; column ``n_bits`` is empty.
    offsets, widths : ndarray of int64, shape (lists,)
    starts : ndarray of int64, shape (lists + 1,)
        List c holds the codes in the places ``starts[c]`` to ``starts[c + 1]``.
    ids : ndarray of int32 or int64, shape (n,)
        The row at every place, ascending within a list; empty: the place itself.
    n_bits, n_active : int
    """

    words: np.ndarray
    offsets: np.ndarray
    widths: np.ndarray
    starts: np.ndarray
    ids: np.ndarray
    n_bits: int
    n_active: int

    @property
    def n_rows(self) -> int:
        """Number of codes."""
        return int(self.starts[-1])


def make_columns(
    active: np.ndarray, n_bits: int, clusters: np.ndarray | None = None, n_clusters: int = 0
) -> Columns:
    """Turn codes into bit columns.

    Parameters
    ----------
    active : ndarray of int, shape (n, n_active)
        Places of the ones.
    n_bits : int
    clusters : ndarray of int64, shape (n,), optional
        The cluster of each code, 0 and on; the lists are then the clusters, else tiles in stored order.
    n_clusters : int
        At least so many lists, if in clusters.
    """
    n = len(active)
    if clusters is None:
        tile_rows = 64 * TILE_WORDS
        starts = np.append(np.arange(0, n, tile_rows, dtype=np.int64), n)
        widths = np.full(len(starts) - 1, TILE_WORDS, np.int64)
        lists, places = np.divmod(np.arange(n, dtype=np.int64), tile_rows)
        ids = np.empty(0, np.int64)
    else:
        starts = np.concatenate([[0], np.cumsum(np.bincount(clusters, minlength=n_clusters))]).astype(
            np.int64
        )
        widths = -(-np.diff(starts) // (64 * _LANES)) * _LANES
        ids = np.argsort(clusters, kind="stable")
        lists = np.asarray(clusters, np.int64)
        ids = ids.astype(np.int32 if n < 2**31 else np.int64)
        places = np.empty(n, np.int64)
        places[ids] = np.arange(n) - starts[lists[ids]]
    ends = np.cumsum(widths * (n_bits + 1))
    words = aligned_words(int(ends[-1]) if len(ends) else 0)
    offsets = ends - widths * (n_bits + 1)
    compiled = loops()
    if compiled is None:
        fill_columns_reference(words, active, lists, places, offsets, widths)
    else:
        from . import compiled_columns

        compiled_columns.fill_columns(words, np.ascontiguousarray(active), lists, places, offsets, widths)
    return Columns(words, offsets, widths, starts, ids, n_bits, active.shape[1])


def search_columns(columns: Columns, active: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k codes of largest overlap with each query, the smaller row first among equals.

    Parameters
    ----------
    columns : Columns
        In tiles.
    active : ndarray of int, shape (q, n_active)
        The queries' ones.
    k : int
        At most the number of codes.

    Returns
    -------
    distances : ndarray of int32, shape (q, k)
        Hamming distances, ascending.
    rows : ndarray of int64, shape (q, k)
    """
    if loops() is None:
        return search_columns_reference(columns, active, k)
    from . import compiled_columns

    n_planes, padded = _planes(columns.n_active), _padded(active, columns.n_bits)
    list_words = TILE_WORDS * (columns.n_bits + 1)
    n_tiles = len(columns.widths)

    def search(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        def scan(which: np.ndarray, k: int, step: int, buffers: Buffers) -> None:
            queries = np.ascontiguousarray(block[which])
            used = np.unique(queries)
            compiled_columns.scan_columns(
                columns.words, TILE_WORDS, list_words, columns.n_rows, step, queries, used,
                columns.n_active, n_planes, k, *buffers,
            )  # fmt: skip

        return scan_in_order(scan, len(block), n_tiles, columns.n_rows, k, columns.n_active)

    return _doubled([search(padded[at]) for at in _blocks(len(padded))], k)


def search_columns_reference(columns: Columns, active: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what `search_columns` returns, by adding the columns' bits as numbers."""
    overlaps = np.zeros((len(active), columns.n_rows), np.int32)
    for c, (offset, width) in enumerate(zip(columns.offsets, columns.widths, strict=True)):
        start, stop = columns.starts[c : c + 2]
        lists = columns.words[offset : offset + width * (columns.n_bits + 1)].reshape(
            columns.n_bits + 1, width
        )
        bits = np.unpackbits(lists.view(np.uint8), axis=1, bitorder="little")[:, : stop - start]
        places = slice(start, stop) if not len(columns.ids) else columns.ids[start:stop]
        for q, ones in enumerate(active):
            overlaps[q, places] = bits[ones].sum(axis=0, dtype=np.int32)
    distances = 2 * columns.n_active - 2 * overlaps
    rows = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, rows, axis=1), rows


def search_column_clusters(
    columns: Columns, probes: np.ndarray, active: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k codes of largest overlap in the clusters ``probes[q]`` (negative: none) of each query.

    Like `search_columns`; ``columns`` are in clusters, and every query's hold at least k codes together.
    """
    if loops() is None:
        return search_column_clusters_reference(columns, probes, active, k)
    from . import compiled_columns

    n_planes, padded = _planes(columns.n_active), _padded(active, columns.n_bits)
    row_bits = max(columns.n_rows - 1, 1).bit_length()
    words = int(np.where(probes >= 0, columns.widths[probes], 0).sum(axis=1).max(initial=0))
    planes = np.empty((n_planes + 2, words), np.uint64)
    masks = np.zeros(n_planes + 1, np.uint64)
    found = []
    for at in _blocks(len(padded)):
        keys = packed_keys(2 * k + _SPARE, len(padded[at]), row_bits, columns.n_active + 1)
        most = compiled_columns.search_column_clusters(
            columns.words, columns.offsets, columns.widths, columns.ids, columns.starts, probes[at],
            padded[at], columns.n_active, masks, k, row_bits, planes, keys,
        )  # fmt: skip
        found.append(sorted_keys(keys[:, :most], k, row_bits))
    return _doubled(found, k)


def search_column_clusters_reference(
    columns: Columns, probes: np.ndarray, active: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `search_column_clusters` returns, query by query."""
    distances, rows = search_columns_reference(columns, active, columns.n_rows)
    cluster = np.empty(columns.n_rows, np.int64)
    cluster[columns.ids] = np.repeat(np.arange(len(columns.widths)), np.diff(columns.starts))
    found = np.empty((len(active), k), np.int32), np.empty((len(active), k), np.int64)
    for q, probed in enumerate(probes):
        inside = np.flatnonzero(np.isin(cluster[rows[q]], probed))[:k]
        found[0][q], found[1][q] = distances[q, inside], rows[q, inside]
    return found


def fill_columns_reference(
    words: np.ndarray,
    active: np.ndarray,
    lists: np.ndarray,
    places: np.ndarray,
    offsets: np.ndarray,
    widths: np.ndarray,
) -> None:
    """Set the bits of the codes: code i is at ``places[i]`` of list ``lists[i]``."""
    at = offsets[lists][:, None] + active * widths[lists][:, None] + (places >> 6)[:, None]
    np.bitwise_or.at(words, at, np.uint64(1) << (places & 63).astype(np.uint64)[:, None])


def _planes(n_active: int) -> int:
    """Return the bits that hold any overlap, among the numbers that there is machine code for."""
    needed = n_active.bit_length()
    return max(5, needed) if needed <= 8 else 20


def _padded(active: np.ndarray, n_bits: int) -> np.ndarray:
    """Fill up the queries' ones with the empty column, to a number that is added at once."""
    width = -(-active.shape[1] // _COLUMNS) * _COLUMNS
    padded = np.full((len(active), width), n_bits, np.int64)
    padded[:, : active.shape[1]] = active
    return padded


def _blocks(n_queries: int) -> list[slice]:
    return [slice(start, start + _QUERIES) for start in range(0, n_queries, _QUERIES)]


def _doubled(found: list[tuple[np.ndarray, np.ndarray]], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Hamming distances of what is ranked by the ones that are missing."""
    missing, rows = joined(found, k)
    return 2 * missing, rows
