"""The numba loops of ranked sets; `ranking` calls them and holds their references."""

from __future__ import annotations

import numpy as np

from ._numba import jit

_LOW = np.uint64(0xFFFFFFFF)
_ONE, _WORD = np.uint64(1), np.uint64(32)


@jit
def rank(places, table, out):  # type: ignore[no-untyped-def]
    """Write the sum of the coefficients of each row's places."""
    width = out.shape[1]
    words = np.zeros((width + 3) // 4 + 3, np.uint64)
    for r in range(places.shape[0]):
        words[:] = 0
        for i in range(places.shape[1]):
            key = table[i + 1, places[r, i]]
            shift = np.int64(key >> _WORD)
            at, part = shift >> 5, (key & _LOW) << np.uint64(shift & 31)
            total = words[at] + (part & _LOW)
            words[at] = total & _LOW
            total = words[at + 1] + (part >> _WORD) + (total >> _WORD)
            words[at + 1] = total & _LOW
            at += 2
            while total >> _WORD:
                total = words[at] + _ONE
                words[at] = total & _LOW
                at += 1
        for k in range(width):
            out[r, k] = np.uint8(words[k >> 2] >> np.uint64(8 * (k & 3)) & np.uint64(255))


@jit(inline="always")
def _length(word):  # type: ignore[no-untyped-def]
    """Return the bits of a word that is not zero, below 2³²."""
    n = 1
    for step in (16, 8, 4, 2, 1):
        if word >> np.uint64(step):
            word >>= np.uint64(step)
            n += step
    return n


@jit(inline="always")
def unrank_row(packed, r, words, table, places):  # type: ignore[no-untyped-def]
    """Write the places of one row; tell whether its bytes are a rank."""
    words[:] = 0
    for k in range(packed.shape[1]):
        words[k >> 2] |= np.uint64(packed[r, k]) << np.uint64(8 * (k & 3))
    top = (packed.shape[1] - 1) >> 2
    last = table.shape[1] - 1
    for i in range(places.size, 0, -1):
        while top > 0 and words[top] == 0:
            top -= 1
        key = words[0]
        if top > 0:
            n = _length(words[top])
            both = words[top] << _WORD | words[top - 1]
            key = np.uint64(32 * (top - 1) + n) << _WORD | both >> np.uint64(n)
        row = table[i]
        if key >= row[last]:
            return False
        step, above = 1, last  # row[above] > key; find the last that is not
        below = last - 1
        while row[below] > key:
            above = below
            step *= 2
            below = max(0, below - step)
        while above - below > 1:
            middle = (above + below) >> 1
            if row[middle] > key:
                above = middle
            else:
                below = middle
        last = below
        places[i - 1] = last
        entry = row[last]
        shift = np.int64(entry >> _WORD)
        at, part = shift >> 5, (entry & _LOW) << np.uint64(shift & 31)
        less = part & _LOW
        borrow = np.uint64(words[at] < less)
        words[at] = (words[at] - less) & _LOW
        less = (part >> _WORD) + borrow
        borrow = np.uint64(words[at + 1] < less)
        words[at + 1] = (words[at + 1] - less) & _LOW
        at += 2
        while borrow:
            borrow = np.uint64(words[at] == 0)
            words[at] = (words[at] - _ONE) & _LOW
            at += 1
    return True


@jit
def unrank(packed, table, places):  # type: ignore[no-untyped-def]
    """Write the places of all rows; return the first that has none, or -1."""
    words = np.zeros((packed.shape[1] + 3) // 4 + 3, np.uint64)
    for r in range(packed.shape[0]):
        if not unrank_row(packed, r, words, table, places[r]):
            return r
    return -1
