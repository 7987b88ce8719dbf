"""The numba loops over sparse codes as bit columns; `vertical` calls them."""

from __future__ import annotations

import numpy as np

from . import _numba
from .compiled_running import count_bits, keep_in_order
from .vectors import LANES, add_columns, prefetch

jit = _numba.jit(uses=("compiled_running", "vectors"))


@jit
def fill_columns(columns, active, lists, places, offsets, widths):  # type: ignore[no-untyped-def]
    """Set the bits of the codes (n, n_active): code i is at ``places[i]`` of list ``lists[i]``."""
    for i in range(active.shape[0]):
        c, place = lists[i], places[i]
        bit = np.uint64(1) << np.uint64(place & 63)
        for j in active[i]:
            columns[offsets[c] + j * widths[c] + (place >> 6)] |= bit


@jit
def _begin(masks, overlap):  # type: ignore[no-untyped-def]
    """Let counts begin at 2**n_planes - overlap, so that whoever reaches ``overlap`` overflows."""
    n_planes = masks.size - 1
    number = 0 if overlap == 0 else (1 << n_planes) - overlap
    for p in range(n_planes):
        masks[p] = np.uint64(0) - np.uint64((number >> p) & 1)
    masks[n_planes] = np.uint64(0) - np.uint64(overlap == 0)


@jit
def _add(columns, starts, place, masks, planes, at, stride):  # type: ignore[no-untyped-def]
    """Choose the machine code for this number of planes."""
    n_planes = masks.size - 1
    if n_planes == 5:
        add_columns(columns, starts, place, masks, planes, at, stride, 5)
    elif n_planes == 6:
        add_columns(columns, starts, place, masks, planes, at, stride, 6)
    elif n_planes == 7:
        add_columns(columns, starts, place, masks, planes, at, stride, 7)
    elif n_planes == 8:
        add_columns(columns, starts, place, masks, planes, at, stride, 8)
    else:
        add_columns(columns, starts, place, masks, planes, at, stride, 20)


@jit
def _scan_tile(  # type: ignore[no-untyped-def]
    columns, starts, first, n_codes, n_active, q, k, keys, counts, state, masks, planes
):
    """Count the overlaps of one query with a tile, whose codes are the rows ``first`` and on."""
    n_planes = masks.size - 1
    over = n_planes * LANES
    _begin(masks, n_active - state[1, q])
    limit = state[1, q]
    for place in range(0, (n_codes + 63) // 64, LANES):
        if limit != state[1, q]:
            limit = state[1, q]
            _begin(masks, n_active - limit)
        _add(columns, starts, place, masks, planes, 0, LANES)
        for lane in range(LANES):
            left = planes[over + lane]
            while left != 0:
                lowest = left & (np.uint64(0) - left)
                left ^= lowest
                bit = np.uint64(count_bits(lowest - np.uint64(1)))
                i = (place + lane) * 64 + np.int64(bit)
                if i >= n_codes:
                    break
                surplus = np.uint64(0)
                for p in range(n_planes):
                    surplus |= ((planes[p * LANES + lane] >> bit) & np.uint64(1)) << np.uint64(p)
                distance = limit - np.int64(surplus)
                if distance <= state[1, q]:
                    keep_in_order(keys, counts, state, q, k, distance, first + i)


@jit
def scan_columns(  # type: ignore[no-untyped-def]
    columns, tile_words, list_words, n_rows, step, active, used, n_active, n_planes, k, keys, counts, state
):
    """Compare queries with every ``step``-th tile: tile t has 64 * tile_words codes from word t * list_words.

    ``active`` (q, c) are the queries' ones, filled up with the number of an empty column; ``used`` are all
    of them, each once: the next tile's are fetched while this tile is searched.
    """
    masks = np.empty(n_planes + 1, np.uint64)
    planes = np.empty((n_planes + 1) * LANES, np.uint64)
    starts = np.empty(active.shape[1], np.int64)
    tile_rows = 64 * tile_words
    n_queries = active.shape[0]
    for first in range(0, n_rows, step * tile_rows):
        base = first // tile_rows * list_words
        following = base + step * list_words
        n_codes = min(tile_rows, n_rows - first)
        for q in range(n_queries):
            if following < columns.size:
                for c in used[q * used.size // n_queries : (q + 1) * used.size // n_queries]:
                    for line in range(0, tile_words, LANES):
                        prefetch(columns, following + c * tile_words + line)
            for c in range(starts.size):
                starts[c] = base + active[q, c] * tile_words
            _scan_tile(
                columns,
                starts,
                first,
                n_codes,
                n_active,
                q,
                k,
                keys,
                counts,
                state,
                masks,
                planes,
            )


@jit
def search_column_clusters(  # type: ignore[no-untyped-def]
    columns, offsets, widths, ids, first, probes, active, n_active, masks, k, row_bits, planes, found
):
    """Write the keys of the k codes nearest to each query in its clusters ``probes[q]``; return the most.

    Cluster c holds ``ids[first[c]:first[c+1]]``.  ``masks`` are zeros, ``planes`` (n_planes + 2, words) is
    room for all clusters of a query.  ``found`` (q, m), m > k, is filled up with the largest number; keys
    beyond the k-th are of codes at the same distance.
    """
    n_planes, words = masks.size - 1, planes.shape[1]
    flat = planes.reshape(-1)
    starts = np.empty(active.shape[1], np.int64)
    largest = found.dtype.type(~np.uint64(0) >> np.uint64(64 - 8 * found.itemsize))
    most = 0
    for q in range(active.shape[0]):
        n_words = 0
        for place in range(probes.shape[1]):
            cluster = probes[q, place]
            if cluster < 0:
                continue
            following = probes[q, place + 1] if place + 1 < probes.shape[1] else -1
            if following >= 0:  # on its way from memory while this one is searched
                width = widths[following]
                for c in range(starts.size):
                    for line in range(0, width, LANES):
                        prefetch(columns, offsets[following] + active[q, c] * width + line)
            for c in range(starts.size):
                starts[c] = offsets[cluster] + active[q, c] * widths[cluster]
            for line in range(0, widths[cluster], LANES):
                _add(columns, starts, line, masks, flat, n_words + line, words)
            n_words += widths[cluster]
        least = _split(planes, n_planes, n_words, k)
        n, word = 0, 0
        for place in range(probes.shape[1]):
            cluster = probes[q, place]
            if cluster >= 0:
                n = _collect(
                    planes, word, n_planes, ids, first[cluster], first[cluster + 1], n_active, least, k,
                    row_bits, found, q, n,
                )  # fmt: skip
                word += widths[cluster]
        found[q, n:] = largest
        most = max(most, n)
    return most


@jit
def _split(planes, n_planes, n_words, k):  # type: ignore[no-untyped-def]
    """Return the k-th largest overlap; mark which are larger, in plane n_planes, and which equal, after it.

    Bit by bit from the highest: it is set if k codes at least that agree so far have it, or are larger.
    """
    larger, equal = planes[n_planes], planes[n_planes + 1]
    larger[:n_words] = 0
    equal[:n_words] = ~np.uint64(0)
    least = 0
    for p in range(n_planes - 1, -1, -1):
        plane = planes[p]
        count = 0
        for w in range(n_words):
            count += count_bits(larger[w] | (equal[w] & plane[w]))
        if count >= k:
            least |= 1 << p
            for w in range(n_words):
                equal[w] &= plane[w]
        else:
            for w in range(n_words):
                larger[w] |= equal[w] & plane[w]
                equal[w] &= ~plane[w]
    return least


@jit
def _collect(  # type: ignore[no-untyped-def]
    planes, word, n_planes, ids, start, stop, n_active, least, k, row_bits, found, q, n
):
    """Add the keys of one list's marked codes to the n that there are; return how many there are now."""
    for w in range((stop - start + 63) // 64):
        left = planes[n_planes, word + w]
        while left != 0:
            lowest = left & (np.uint64(0) - left)
            left ^= lowest
            bit = np.uint64(count_bits(lowest - np.uint64(1)))
            overlap = np.uint64(0)
            for p in range(n_planes):
                overlap |= ((planes[p, word + w] >> bit) & np.uint64(1)) << np.uint64(p)
            if n == found.shape[1]:  # so many at the k-th distance: the rows decide
                found[q].sort()
                n = k
            row = ids[start + 64 * w + np.int64(bit)]
            if n == found.shape[1]:  # full of codes at the k-th distance
                found[q].sort()
                n = k
            found[q, n] = ((n_active - np.int64(overlap)) << row_bits) | row
            n += 1
        left = planes[n_planes + 1, word + w]
        while left != 0:
            lowest = left & (np.uint64(0) - left)
            left ^= lowest
            i = start + 64 * w + count_bits(lowest - np.uint64(1))
            if i >= stop:
                break
            if n == found.shape[1]:
                found[q].sort()
                n = k
            found[q, n] = ((n_active - least) << row_bits) | ids[i]
            n += 1
    return n
