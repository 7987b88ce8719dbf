"""The numba loops that every search shares: keys, the running threshold, the final order.

What is found goes to ``keys``: distance in the upper bits, row in the lower, so that the smallest keys are
the nearest codes, ties by row.  The running threshold comes from counting distances, without a heap: as soon
as k codes are within it, it falls.  ``state`` (3, q) holds the number of keys, the limit (larger distances
are passed over), and how many codes are known within it.  Whole arrays are handed on, and no views of them:
a view counts references, which costs more than what is done with it.
"""

from __future__ import annotations

import numpy as np

from ._numba import jit

SHIFT = 40  # bits of a key for the row
_ROW = (1 << SHIFT) - 1


@jit(inline="always")
def count_bits(word):  # type: ignore[no-untyped-def]
    """Return the number of ones (the compiler turns this into the popcount instruction)."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit
def keep_in_order(keys, counts, state, q, k, distance, row):  # type: ignore[no-untyped-def]
    """Keep a code that comes in the order of rows: a later one at the k-th distance has lost already."""
    n = state[0, q]
    if n == keys.shape[1]:
        limit, room, n = state[1, q], k - state[2, q], 0
        for i in range(keys.shape[1]):
            old = keys[q, i] >> SHIFT
            if old <= limit or (old == limit + 1 and room > 0):
                room -= old > limit
                keys[q, n] = keys[q, i]
                n += 1
    keys[q, n] = (distance << SHIFT) | row
    state[0, q] = n + 1
    counts[q, distance] += 1
    state[2, q] += 1
    while state[2, q] >= k:
        state[2, q] -= counts[q, state[1, q]]
        state[1, q] -= 1


@jit
def keep(keys, counts, state, q, k, distance, row):  # type: ignore[no-untyped-def]
    """Keep a code that comes in any order: at the k-th distance the smaller row may come later."""
    if state[0, q] == keys.shape[1]:
        n, last = 0, state[1, q]
        for i in range(keys.shape[1]):
            if keys[q, i] >> SHIFT <= last:
                keys[q, n] = keys[q, i]
                n += 1
        if n > keys.shape[1] // 2:  # so many at the k-th distance: the rows decide
            keys[q, :n].sort()
            n = k
        state[0, q] = n
    keys[q, state[0, q]] = (distance << SHIFT) | row
    state[0, q] += 1
    counts[q, distance] += 1
    if distance < state[1, q]:
        state[2, q] += 1
        while state[2, q] >= k:
            state[1, q] -= 1
            state[2, q] -= counts[q, state[1, q]]


@jit
def rank_in_order(keys, state, k, counts, distances, rows):  # type: ignore[no-untyped-def]
    """Write the k smallest keys of each query, which came in the order of rows, split and sorted."""
    for q in range(keys.shape[0]):
        counts[:] = 0
        for key in keys[q, : state[0, q]]:
            counts[(key >> SHIFT) + 1] += 1
        for value in range(counts.size - 1):
            counts[value + 1] += counts[value]
        for key in keys[q, : state[0, q]]:
            place = counts[key >> SHIFT]
            counts[key >> SHIFT] += 1
            if place < k:
                distances[q, place] = key >> SHIFT
                rows[q, place] = key & _ROW


@jit
def pack_keys(keys, state, row_bits, packed):  # type: ignore[no-untyped-def]
    """Write each query's keys up to its limit, with ``row_bits`` for the row, then the largest number."""
    largest = packed.dtype.type(~np.uint64(0) >> np.uint64(64 - 8 * packed.itemsize))
    for q in range(keys.shape[0]):
        n = 0
        for key in keys[q, : state[0, q]]:
            if key >> SHIFT <= state[1, q]:
                packed[q, n] = ((key >> SHIFT) << row_bits) | (key & _ROW)
                n += 1
        packed[q, n:] = largest


@jit
def few_smallest(values, found):  # type: ignore[no-untyped-def]
    """Write where the smallest of each row are, ascending, the first place among equals."""
    n = found.shape[1]
    best = np.empty(n, values.dtype)
    for q in range(values.shape[0]):
        held = 0
        for i in range(values.shape[1]):
            value = values[q, i]
            if held == n and value >= best[n - 1]:
                continue
            place = held if held < n else n - 1
            while place > 0 and best[place - 1] > value:
                best[place] = best[place - 1]
                found[q, place] = found[q, place - 1]
                place -= 1
            best[place], found[q, place] = value, i
            held = min(held + 1, n)
