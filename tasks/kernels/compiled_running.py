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
def rank(keys, state, k, in_order, row_bits, digit_bits, counts, distances, rows):  # type: ignore[no-untyped-def]
    """Write the k smallest keys of each query, split and sorted: digit by digit, lowest digit first.

    Keys that came in the order of rows need the last pass alone, over ``counts`` distances.
    """
    n_values = 1 << digit_bits
    n_digits = (row_bits + digit_bits - 1) // digit_bits
    digits = np.empty(n_values + 1, np.int64)
    for q in range(keys.shape[0]):
        n, last = 0, state[1, q] + in_order
        taken = np.empty(state[0, q], np.int64)
        for key in keys[q, : state[0, q]]:
            if key >> SHIFT <= last:
                taken[n] = key
                n += 1
        other = np.empty(n, np.int64)
        for digit in range(0 if in_order else n_digits):
            digits[:] = 0
            for key in taken[:n]:
                digits[((key >> (digit * digit_bits)) & (n_values - 1)) + 1] += 1
            for value in range(n_values):
                digits[value + 1] += digits[value]
            for key in taken[:n]:
                value = (key >> (digit * digit_bits)) & (n_values - 1)
                other[digits[value]] = key
                digits[value] += 1
            taken, other = other, taken
        counts[:] = 0
        for key in taken[:n]:
            counts[(key >> SHIFT) + 1] += 1
        for value in range(counts.size - 1):
            counts[value + 1] += counts[value]
        for key in taken[:n]:
            place = counts[key >> SHIFT]
            counts[key >> SHIFT] += 1
            if place < k:
                distances[q, place] = key >> SHIFT
                rows[q, place] = key & _ROW


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
