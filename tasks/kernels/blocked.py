"""Dense codes in tiles that stay in the first cache, compared with a block of queries at a time.

In a tile, word w of all codes lies together, so eight codes at a time are compared without sums across a
register.  Only where a group of codes holds one within the running threshold is anything looked at singly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._numba import loops
from .hamming import nearest_codes_reference
from .memory import aligned_words
from .running import joined, scan_in_order

if TYPE_CHECKING:
    from .running import Buffers

_GROUP = 128
_TILE_WORDS = 4096  # 32 KB
_QUERIES = 256  # searched together: the codes are read once for all of them
_GUESS_FROM = 50


@dataclass(frozen=True, eq=False)
class Tiles:
    """Codes for `search_tiles`.

    Attributes
    ----------
    words : ndarray of uint64
        Word w of code i of tile t is ``words[t * tile_rows * n_words + w * tile_rows + i]``.
    n_rows, n_words, tile_rows : int
    """

    words: np.ndarray
    n_rows: int
    n_words: int
    tile_rows: int


def make_tiles(words: np.ndarray) -> Tiles:
    """Lay out codes, uint64 of shape (n, w), in tiles; the last is filled up with zeros."""
    n, n_words = words.shape
    tile_rows = max(_GROUP, _TILE_WORDS // max(n_words, 1) // _GROUP * _GROUP)
    n_tiles = -(-n // tile_rows)
    tiles = aligned_words(n_tiles * n_words * tile_rows).reshape(n_tiles, n_words, tile_rows)
    for t in range(n_tiles):
        rows = words[t * tile_rows : (t + 1) * tile_rows]
        tiles[t, :, : len(rows)] = rows.T
    return Tiles(tiles.reshape(-1), n, n_words, tile_rows)


def search_tiles(tiles: Tiles, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k codes nearest to each query, the smaller row first among equals.

    Parameters
    ----------
    tiles : Tiles
    queries : ndarray of uint64, shape (q, w)
    k : int
        At most the number of codes.

    Returns
    -------
    distances : ndarray of int32, shape (q, k)
        Ascending.
    rows : ndarray of int64, shape (q, k)
    """
    if loops() is None:
        return search_tiles_reference(tiles, queries, k)
    from . import compiled_scan

    n_tiles = -(-tiles.n_rows // tiles.tile_rows)

    def search(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        def scan(which: np.ndarray, k: int, step: int, buffers: Buffers) -> None:
            chosen = np.ascontiguousarray(block[which])
            compiled_scan.scan_tiles(tiles.words, tiles.n_rows, tiles.tile_rows, step, chosen, k, *buffers)

        return scan_in_order(
            scan, len(block), n_tiles, tiles.n_rows, k, 64 * tiles.n_words, guess_from=_GUESS_FROM
        )

    return joined([search(queries[at : at + _QUERIES]) for at in range(0, len(queries), _QUERIES)], k)


def search_tiles_reference(tiles: Tiles, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what `search_tiles` returns, by a stable sort of all distances."""
    rows = tiles.words.reshape(-1, tiles.n_words, tiles.tile_rows).transpose(0, 2, 1)
    words = rows.reshape(-1, tiles.n_words)[: tiles.n_rows]
    return nearest_codes_reference(queries, words, k)
