"""The numba loops over dense codes: all of them, or slices of codes that are sorted by cluster.

`blocked` and `pivots` call them.
"""

from __future__ import annotations

import numpy as np

from ._numba import jit
from .compiled_running import count_bits, keep, keep_in_order
from .vectors import GROUP, LANES, mark_near

_AT_ONCE = 4  # queries compared with a group of codes while it is in registers


@jit
def _mark(words, start, stride, n_groups, queries, limits, hits, n_words):  # type: ignore[no-untyped-def]
    """Choose the machine code for this width: the common ones are written out."""
    if limits.size == _AT_ONCE:
        if n_words == 1:
            mark_near(words, start, stride, n_groups, queries, limits, hits, 1, 4)
        elif n_words == 2:
            mark_near(words, start, stride, n_groups, queries, limits, hits, 2, 4)
        elif n_words == 4:
            mark_near(words, start, stride, n_groups, queries, limits, hits, 4, 4)
        else:
            mark_near(words, start, stride, n_groups, queries, limits, hits, n_words, 4)
    elif n_words == 1:
        mark_near(words, start, stride, n_groups, queries, limits, hits, 1, 1)
    elif n_words == 2:
        mark_near(words, start, stride, n_groups, queries, limits, hits, 2, 1)
    elif n_words == 4:
        mark_near(words, start, stride, n_groups, queries, limits, hits, 4, 1)
    else:
        mark_near(words, start, stride, n_groups, queries, limits, hits, n_words, 1)


@jit
def _distance(words, start, stride, query):  # type: ignore[no-untyped-def]
    total = 0
    for w in range(query.size):
        total += count_bits(words[start + w * stride] ^ query[w])
    return total


@jit
def scan_tiles(words, n_rows, tile_rows, step, queries, k, keys, counts, state):  # type: ignore[no-untyped-def]
    """Compare queries (q, w) with every ``step``-th tile; word w of all codes of a tile lies together."""
    n_queries, n_words = queries.shape
    n_groups = tile_rows // GROUP
    hits = np.empty(n_groups * _AT_ONCE, np.uint8)
    limits = np.empty(_AT_ONCE, np.int64)
    for first in range(0, n_rows, step * tile_rows):
        start = first * n_words
        b = 0
        while b < n_queries:
            together = _AT_ONCE if b + _AT_ONCE <= n_queries else 1
            limits[:together] = state[b : b + together, 1]
            block = queries[b : b + together].reshape(-1)
            _mark(words, start, tile_rows, n_groups, block, limits[:together], hits, n_words)
            for place in range(n_groups * together):
                if hits[place] == 0:
                    continue
                q = b + place % together
                group = place // together * GROUP
                for i in range(group, min(group + GROUP, n_rows - first)):
                    if (hits[place] >> (i % LANES)) & 1:
                        distance = _distance(words, start + i, tile_rows, queries[q])
                        if distance <= state[q, 1]:
                            keep_in_order(keys[q], counts[q], state[q], k, distance, first + i)
            b += together


@jit
def _scan_slice(  # type: ignore[no-untyped-def]
    words, stride, ids, start, stop, query, k, keys, counts, state, hits, limit
):
    """Compare one query with the codes ``start <= place < stop`` of a layout sorted in any order."""
    n_groups = (stop - start + GROUP - 1) // GROUP
    limit[0] = state[1]
    _mark(words, start, stride, n_groups, query, limit, hits, query.size)
    for group in range(n_groups):
        if hits[group] == 0:
            continue
        begin = start + group * GROUP
        for i in range(begin, min(begin + GROUP, stop)):
            if (hits[group] >> ((i - begin) % LANES)) & 1:
                distance = _distance(words, i, stride, query)
                if distance <= state[1]:
                    keep(keys, counts, state, k, distance, ids[i])


@jit
def scan_pivots(  # type: ignore[no-untyped-def]
    words, stride, ids, offsets, to_centre, queries, first, k, keys, counts, state
):
    """Compare queries with what the triangle inequality leaves of every cluster; return codes compared.

    The places ``offsets[c, r]`` to ``offsets[c, r + 1]`` hold the codes at distance r from centre c, and
    ``to_centre`` (q, c) the queries' distances; ``first`` (q, 2) are the centres to begin with.
    """
    n_queries, n_centres = to_centre.shape
    widest = offsets.shape[1] - 2
    hits = np.empty(ids.size // GROUP + 2, np.uint8)
    limit = np.empty(1, np.int64)
    compared = 0
    for phase in range(2):
        for place in range(first.shape[1] if phase == 0 else n_centres):
            for q in range(n_queries):
                c = first[q, place] if phase == 0 else place
                if phase == 1 and c in first[q]:
                    continue
                near, reach = np.int64(to_centre[q, c]), state[q, 1]
                low, high = max(0, near - reach), min(widest, near + reach)
                if reach < 0 or low > high:
                    continue
                start, stop = offsets[c, low], offsets[c, high + 1]
                if stop > start:
                    compared += stop - start
                    _scan_slice(
                        words,
                        stride,
                        ids,
                        start,
                        stop,
                        queries[q],
                        k,
                        keys[q],
                        counts[q],
                        state[q],
                        hits,
                        limit,
                    )
    return compared


@jit
def scan_clusters(  # type: ignore[no-untyped-def]
    words, stride, ids, starts, probes, queries, k, keys, counts, state
):
    """Compare each query with the codes of its clusters ``probes[q]`` (negative: none), nearest first."""
    hits = np.empty(ids.size // GROUP + 2, np.uint8)
    limit = np.empty(1, np.int64)
    for q in range(queries.shape[0]):
        for c in probes[q]:
            if c >= 0 and starts[c + 1] > starts[c]:
                _scan_slice(
                    words,
                    stride,
                    ids,
                    starts[c],
                    starts[c + 1],
                    queries[q],
                    k,
                    keys[q],
                    counts[q],
                    state[q],
                    hits,
                    limit,
                )


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
