"""Dense codes sorted by cluster: exact search by the triangle inequality, or search of a few clusters.

A code at distance r from its centre can be within D of a query at distance x from that centre only if
``x - D <= r <= x + D``.  Sorted by (centre, r), such codes are one slice of every cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._numba import loops
from .hamming import nearest_codes_reference
from .memory import LINE_WORDS, aligned_words
from .running import few_smallest, joined, new_buffers, ranked

N_CENTRES = 384
_BLOCK = 256  # queries searched together
_FIRST = 2  # centres that every query begins with: they bring the threshold down
_PADDING = 128  # codes of a group, which may reach beyond the last
_ITERATIONS = 3
_TILE = 1 << 21  # code-centre pairs that the NumPy reference holds at once


@dataclass(frozen=True, eq=False)
class Sorted:
    """Codes sorted by cluster.

    Attributes
    ----------
    words : ndarray of uint64, shape (w, n + padding)
        Word w of the code at every place.
    ids : ndarray of int64, shape (n,)
        Its row.
    starts : ndarray of int64, shape (c + 1,)
        Cluster c is in the places ``starts[c]`` to ``starts[c + 1]``.
    centres : ndarray of uint64, shape (w, c), or None
        For exact search.
    offsets : ndarray of int64, shape (c, 64 w + 2), or None
        The places ``offsets[c, r]`` to ``offsets[c, r + 1]`` hold the codes at distance r from centre c.
    """

    words: np.ndarray
    ids: np.ndarray
    starts: np.ndarray
    centres: np.ndarray | None = None
    offsets: np.ndarray | None = None


def sort_by_cluster(words: np.ndarray, clusters: np.ndarray, n_clusters: int) -> Sorted:
    """Sort codes, uint64 of shape (n, w), by their clusters, int64 of shape (n,)."""
    ids = np.argsort(clusters, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(clusters, minlength=n_clusters))]).astype(np.int64)
    return Sorted(_by_word(words, ids), ids, starts)


def sort_by_pivot(words: np.ndarray, rng: np.random.Generator, n_centres: int = N_CENTRES) -> Sorted:
    """Choose centres among the codes, uint64 of shape (n, w), and sort all by (centre, distance, row)."""
    n, n_words = words.shape
    centres = _choose_centres(words, rng, min(n_centres, n))
    nearest, distances = nearest_centres(words, centres)
    widest = 64 * n_words
    keys = nearest * (widest + 1) + distances
    ids = np.argsort(keys, kind="stable")
    bounds = np.searchsorted(keys[ids], np.arange(centres.shape[1] * (widest + 1) + 1))
    by_centre = bounds[:-1].reshape(-1, widest + 1)
    offsets = np.concatenate([by_centre, bounds[widest + 1 :: widest + 1, None]], axis=1)
    starts = np.append(offsets[:, 0], n)
    return Sorted(_by_word(words, ids), ids, starts, centres, np.ascontiguousarray(offsets, np.int64))


def search_pivots(tree: Sorted, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the k codes nearest to each query, the smaller row first among equals.

    Parameters
    ----------
    tree : Sorted
        From `sort_by_pivot`.
    queries : ndarray of uint64, shape (q, w)
    k : int
        At most the number of codes.

    Returns
    -------
    distances : ndarray of int32, shape (q, k)
    rows : ndarray of int64, shape (q, k)
    compared : int
        With how many codes all queries together were compared.
    """
    assert tree.centres is not None
    assert tree.offsets is not None
    if loops() is None:
        distances, rows = search_sorted_reference(tree, None, queries, k)
        return distances, rows, len(queries) * len(tree.ids)
    from . import compiled_scan

    found, compared = [], 0
    for at in range(0, len(queries), _BLOCK):
        block = np.ascontiguousarray(queries[at : at + _BLOCK])
        to_centre = distances_between(block, np.ascontiguousarray(tree.centres.T))
        first = few_smallest(to_centre, min(_FIRST, to_centre.shape[1]))
        buffers = new_buffers(len(block), k, 64 * queries.shape[1])
        compared += compiled_scan.scan_pivots(
            tree.words.reshape(-1), tree.words.shape[1], tree.ids, tree.offsets,
            np.ascontiguousarray(to_centre.T), block, first, k, *buffers,
        )  # fmt: skip
        found.append(ranked(buffers, k, len(tree.ids), in_order=False))
    return *joined(found, k), int(compared)


def search_clusters(
    tree: Sorted, probes: np.ndarray, queries: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k codes nearest to each query in its clusters ``probes[q]`` (negative: none).

    Every query's clusters hold at least k codes together; distances and rows as in `search_pivots`.
    """
    if loops() is None:
        return search_sorted_reference(tree, probes, queries, k)
    from . import compiled_scan

    found = []
    for at in range(0, len(queries), _BLOCK):
        block = np.ascontiguousarray(queries[at : at + _BLOCK])
        buffers = new_buffers(len(block), k, 64 * queries.shape[1])
        compiled_scan.scan_clusters(
            tree.words.reshape(-1), tree.words.shape[1], tree.ids, tree.starts, probes[at : at + _BLOCK],
            block, k, *buffers,
        )  # fmt: skip
        found.append(ranked(buffers, k, len(tree.ids), in_order=False))
    return joined(found, k)


def search_sorted_reference(
    tree: Sorted, probes: np.ndarray | None, queries: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `search_clusters` returns, or over all codes if ``probes`` is None, query by query."""
    n = len(tree.ids)
    place_of = np.empty(n, np.int64)
    place_of[tree.ids] = np.arange(n)
    words = np.ascontiguousarray(tree.words[:, :n].T)[place_of]
    if probes is None:
        return nearest_codes_reference(queries, words, k)
    cluster = np.repeat(np.arange(len(tree.starts) - 1), np.diff(tree.starts))[place_of]
    found = []
    for query, probed in zip(queries, probes, strict=True):
        rows = np.flatnonzero(np.isin(cluster, probed))
        distances, places = nearest_codes_reference(query[None], words[rows], k)
        found.append((distances, rows[places]))
    return joined(found, k)


def nearest_centres(words: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each code's nearest centre (w, c), the first among equals, and its distance, int64 (n,)."""
    if loops() is None:
        return nearest_centres_reference(words, centres)
    from . import compiled_scan

    nearest, distances = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    compiled_scan.nearest_centres(words, centres, nearest, distances)
    return nearest, distances


def nearest_centres_reference(words: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what `nearest_centres` returns."""
    distances, nearest = nearest_codes_reference(words, np.ascontiguousarray(centres.T), 1)
    return nearest[:, 0], distances[:, 0].astype(np.int64)


def distances_between(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return all Hamming distances, int64, shape (len(left), len(right))."""
    total = np.zeros((len(left), len(right)), np.int64)
    for w in range(left.shape[1]):
        total += np.bitwise_count(left[:, w, None] ^ right[None, :, w])
    return total


def _by_word(words: np.ndarray, ids: np.ndarray) -> np.ndarray:
    width = -(-(len(ids) + _PADDING) // LINE_WORDS) * LINE_WORDS
    out = aligned_words(words.shape[1] * width).reshape(-1, width)
    for w in range(words.shape[1]):
        out[w, : len(ids)] = words[ids, w]
    return out


def _choose_centres(words: np.ndarray, rng: np.random.Generator, n_centres: int) -> np.ndarray:
    """Return centres (w, c) by majority votes, from a sample of the codes."""
    sample = words[np.sort(rng.choice(len(words), min(len(words), 80 * n_centres), replace=False))]
    bits = np.unpackbits(np.ascontiguousarray(sample).view(np.uint8), axis=1, bitorder="little")
    centres = np.ascontiguousarray(sample[rng.choice(len(sample), n_centres, replace=False)].T)
    for _ in range(_ITERATIONS):
        nearest, _ = nearest_centres(sample, centres)
        order = np.argsort(nearest, kind="stable")
        occupied, begins = np.unique(nearest[order], return_index=True)
        votes = np.add.reduceat(bits[order], begins, axis=0, dtype=np.int32)
        sizes = np.bincount(nearest, minlength=n_centres)[occupied, None]
        majority = np.packbits(2 * votes > sizes, axis=1, bitorder="little")
        centres[:, occupied] = majority.view(np.uint64).T
    return centres
