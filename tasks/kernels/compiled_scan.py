"""The numba loops over dense codes: all of them, or slices of codes that are sorted by cluster.

`blocked` and `pivots` call them.
"""

from __future__ import annotations

import numpy as np

from . import _numba
from .compiled_running import count_bits, keep, keep_in_order
from .vectors import GROUP, LANES, mark_near

jit = _numba.jit(uses=("compiled_running", "vectors"))

_AT_ONCE = 4  # queries compared with a group of codes while it is in registers
_GROUPS = 16  # groups of a slice for which one limit holds


@jit
def _mark(  # type: ignore[no-untyped-def]
    words, start, stride, n_groups, queries, b, together, limits, limit_at, hits, n_words
):
    """Choose the machine code for this width and number of queries: the common ones are written out."""
    at = b * n_words
    if together == _AT_ONCE:
        if n_words == 1:
            mark_near(words, start, stride, n_groups, queries, at, limits, limit_at, hits, 1, 4)
        elif n_words == 2:
            mark_near(words, start, stride, n_groups, queries, at, limits, limit_at, hits, 2, 4)
        elif n_words == 4:
            mark_near(words, start, stride, n_groups, queries, at, limits, limit_at, hits, 4, 4)
        else:
            mark_near(words, start, stride, n_groups, queries, at, limits, limit_at, hits, n_words, 4)
    elif n_words == 1:
        mark_near(words, start, stride, n_groups, queries, at, limits, limit_at, hits, 1, 1)
    elif n_words == 2:
        mark_near(words, start, stride, n_groups, queries, at, limits, limit_at, hits, 2, 1)
    elif n_words == 4:
        mark_near(words, start, stride, n_groups, queries, at, limits, limit_at, hits, 4, 1)
    else:
        mark_near(words, start, stride, n_groups, queries, at, limits, limit_at, hits, n_words, 1)


@jit(inline="always")
def _look(  # type: ignore[no-untyped-def]
    words, start, stride, low, high, mask, queries, q, k, keys, counts, state, rows, row
):
    """Keep what is near enough in the marked lanes of a group, among its codes ``low <= i < high``.

    Code i is row ``rows[row + i]``, or ``row + i`` if there are no ``rows``.
    """
    n_words = queries.shape[1]
    for depth in range(0, min(GROUP, high), LANES):
        left = np.uint64(mask)
        while left != 0:
            lowest = left & (np.uint64(0) - left)
            left ^= lowest
            i = depth + count_bits(lowest - np.uint64(1))
            distance = 0
            for w in range(n_words):
                distance += count_bits(words[start + i + w * stride] ^ queries[q, w])
            if distance <= state[1, q] and low <= i < high:
                if rows.size:
                    keep(keys, counts, state, q, k, distance, rows[row + i])
                else:
                    keep_in_order(keys, counts, state, q, k, distance, row + i)


@jit
def scan_tiles(words, n_rows, tile_rows, step, queries, k, keys, counts, state):  # type: ignore[no-untyped-def]
    """Compare queries (q, w) with every ``step``-th tile; word w of all codes of a tile lies together."""
    n_queries, n_words = queries.shape
    flat, limits = queries.reshape(-1), state.reshape(-1)
    hits = np.zeros((tile_rows // GROUP + 7) // 8 * 8 * _AT_ONCE, np.uint8)
    marked = hits.view(np.uint64)
    rows = np.empty(0, np.int64)
    for first in range(0, n_rows, step * tile_rows):
        # at first everything is within the limit, so let it come down soon
        n_groups = tile_rows // GROUP if first else 1
        for begin in range(0, tile_rows, n_groups * GROUP):
            start = first * n_words + begin
            n_codes = n_rows - first - begin
            b = 0
            while b < n_queries:
                together = _AT_ONCE if b + _AT_ONCE <= n_queries else 1
                _mark(
                    words, start, tile_rows, n_groups, flat, b, together, limits, n_queries + b, hits, n_words
                )
                n_hits = n_groups * together
                for word in range((n_hits + 7) // 8):
                    if marked[word] == 0:
                        continue
                    for place in range(8 * word, min(8 * word + 8, n_hits)):
                        if hits[place]:
                            at = place // together * GROUP
                            _look(
                                words, start + at, tile_rows, 0, n_codes - at, hits[place], queries,
                                b + place % together, k, keys, counts, state, rows, first + begin + at,
                            )  # fmt: skip
                b += together


@jit(inline="always")  # so many arguments cost more than many a slice
def _scan_slice(  # type: ignore[no-untyped-def]
    words, stride, ids, start, stop, queries, flat, q, k, keys, counts, state, limits, hits
):
    """Compare one query with the codes ``start <= place < stop`` of a layout sorted in any order."""
    n_queries, n_words = queries.shape
    for begin in range(start // LANES * LANES, stop, _GROUPS * GROUP):
        n_groups = min(_GROUPS, (stop - begin + GROUP - 1) // GROUP)
        _mark(words, begin, stride, n_groups, flat, q, 1, limits, n_queries + q, hits, n_words)
        for group in range(n_groups):
            if hits[group]:
                at = begin + group * GROUP
                _look(
                    words, at, stride, start - at, stop - at, hits[group], queries, q, k, keys, counts,
                    state, ids, at,
                )  # fmt: skip


@jit
def scan_pivots(  # type: ignore[no-untyped-def]
    words, stride, ids, offsets, to_centre, queries, first, k, keys, counts, state
):
    """Compare queries with what the triangle inequality leaves of every cluster; return codes compared.

    The places ``offsets[c, r]`` to ``offsets[c, r + 1]`` hold the codes at distance r from centre c, and
    ``to_centre`` (c, q) the queries' distances, overwritten; ``first`` (q, f) are the centres to begin with.
    """
    n_centres, n_queries = to_centre.shape
    widest = offsets.shape[1] - 2
    hits = np.empty(_GROUPS, np.uint8)
    flat, limits = queries.reshape(-1), state.reshape(-1)
    compared = 0
    for phase in range(2):
        for place in range(first.shape[1] if phase == 0 else n_centres):
            for q in range(n_queries):
                c = first[q, place] if phase == 0 else place
                near, reach = to_centre[c, q], state[1, q]
                low, high = max(0, near - reach), min(widest, near + reach)
                if near < 0 or low > high:
                    continue
                to_centre[c, q] = -1  # done
                start, stop = offsets[c, low], offsets[c, high + 1]
                if stop > start:
                    compared += stop - start
                    _scan_slice(
                        words,
                        stride,
                        ids,
                        start,
                        stop,
                        queries,
                        flat,
                        q,
                        k,
                        keys,
                        counts,
                        state,
                        limits,
                        hits,
                    )
    return compared


@jit
def scan_clusters(  # type: ignore[no-untyped-def]
    words, stride, ids, starts, probes, queries, k, keys, counts, state
):
    """Compare each query with the codes of its clusters ``probes[q]`` (negative: none), nearest first."""
    hits = np.empty(_GROUPS, np.uint8)
    flat, limits = queries.reshape(-1), state.reshape(-1)
    for q in range(queries.shape[0]):
        for p in range(probes.shape[1]):
            c = probes[q, p]
            if c >= 0:
                _scan_slice(
                    words, stride, ids, starts[c], starts[c + 1], queries, flat, q, k, keys, counts, state,
                    limits, hits,
                )  # fmt: skip


@jit
def nearest_centres(codes, centres, nearest, distances):  # type: ignore[no-untyped-def]
    """Write each code's (n, w) nearest centre of (w, c), the first among equals, and its distance."""
    n_words, n_centres = centres.shape
    totals = np.empty(n_centres, np.int64)
    for i in range(codes.shape[0]):
        totals[:] = 0
        for w in range(n_words):
            word, row = codes[i, w], centres[w]
            for c in range(n_centres):
                totals[c] += count_bits(word ^ row[c])
        best = np.int64(1) << 62
        for c in range(n_centres):
            best = min(best, (totals[c] << 32) | c)
        nearest[i], distances[i] = best & 0xFFFFFFFF, best >> 32
