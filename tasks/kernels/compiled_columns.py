"""The numba loops over sparse codes as bit columns; `vertical` calls them."""

from __future__ import annotations

import numpy as np

from . import _numba
from .compiled_running import count_bits, keep, keep_in_order
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
def _add(columns, starts, place, masks, planes):  # type: ignore[no-untyped-def]
    """Choose the machine code for this number of planes."""
    n_planes = masks.size - 1
    if n_planes == 5:
        add_columns(columns, starts, place, masks, planes, 5)
    elif n_planes == 6:
        add_columns(columns, starts, place, masks, planes, 6)
    elif n_planes == 7:
        add_columns(columns, starts, place, masks, planes, 7)
    elif n_planes == 8:
        add_columns(columns, starts, place, masks, planes, 8)
    else:
        add_columns(columns, starts, place, masks, planes, 20)


@jit
def _scan_list(  # type: ignore[no-untyped-def]
    columns, starts, first, n_codes, ids, n_active, q, k, keys, counts, state, masks, planes
):
    """Count the overlaps of one query with one list of codes; ``ids`` empty: rows are ``first`` and on."""
    n_planes = masks.size - 1
    over = n_planes * LANES
    _begin(masks, n_active - state[1, q])
    limit = state[1, q]
    for place in range(0, (n_codes + 63) // 64, LANES):
        if limit != state[1, q]:
            limit = state[1, q]
            _begin(masks, n_active - limit)
        _add(columns, starts, place, masks, planes)
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
                    if ids.size:
                        keep(keys, counts, state, q, k, distance, ids[first + i])
                    else:
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
    rows = np.empty(0, np.int64)
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
            _scan_list(
                columns,
                starts,
                first,
                n_codes,
                rows,
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
def scan_column_clusters(  # type: ignore[no-untyped-def]
    columns, offsets, widths, ids, first, probes, active, n_active, n_planes, k, keys, counts, state
):
    """Compare each query with its clusters ``probes[q]``; c holds ``ids[first[c]:first[c+1]]``."""
    masks = np.empty(n_planes + 1, np.uint64)
    planes = np.empty((n_planes + 1) * LANES, np.uint64)
    starts = np.empty(active.shape[1], np.int64)
    for q in range(active.shape[0]):
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
            _scan_list(
                columns,
                starts,
                first[cluster],
                first[cluster + 1] - first[cluster],
                ids,
                n_active,
                q,
                k,
                keys,
                counts,
                state,
                masks,
                planes,
            )
