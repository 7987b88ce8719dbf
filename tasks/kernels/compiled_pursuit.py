"""The numba loops of greedy assignment; `pursuit` calls them and holds their references.

Widths are whole lanes of 128, so that each inner loop becomes vector instructions of fixed length.
"""

from __future__ import annotations

import numpy as np

from ._numba import jit

_LANES = 128
_FEW = 32
_TAKEN = np.int16(-32768)


@jit
def quantise(scores, factors, errors, scale, out, unsure):  # type: ignore[no-untyped-def]
    """Round, and mark rows with a value nearer to a half than its error, or out of range."""
    for i in range(scores.shape[0]):
        factor, room, most = scale * factors[i], 0.5 - errors[i], 2.0 * scale
        doubts = 0
        for j in range(scores.shape[1]):
            value = factor * scores[i, j]
            rounded = np.rint(value)
            sure = (abs(value - rounded) < room) & (abs(rounded) <= most)
            doubts += not sure
            out[i, j] = np.int16(rounded if sure else 0.0)
        unsure[i] = doubts > 0
        if doubts:
            out[i, : scores.shape[1]] = 0


@jit(inline="always")
def _largest(left):  # type: ignore[no-untyped-def]
    best = _TAKEN
    for j in range(left.size):
        best = max(best, left[j])
    return best


@jit(inline="always")
def _place(left, best):  # type: ignore[no-untyped-def]
    """Return where the value is first: lanes at once, then fewer, then one by one."""
    begin = 0
    while True:
        hit = np.int16(0)
        for lane in range(_LANES):
            hit |= np.int16(left[begin + lane] == best)
        if hit:
            break
        begin += _LANES
    while True:
        hit = np.int16(0)
        for lane in range(_FEW):
            hit |= np.int16(left[begin + lane] == best)
        if hit:
            break
        begin += _FEW
    while left[begin] != best:
        begin += 1
    return begin


@jit(inline="always")
def _inhibit(left, inhibition, bit):  # type: ignore[no-untyped-def]
    """Take the bit's share from all that are off; return the largest that is left."""
    best, share = _TAKEN, inhibition[bit]
    for j in range(left.size):
        before = left[j]
        after = np.int16(before - share[j])
        after = before if before == _TAKEN else after
        left[j] = after
        best = max(best, after)
    return best


@jit
def pursue(scores, inhibition, picks, packed):  # type: ignore[no-untyped-def]
    """Switch on the best bit, or a few, and take away their shares; so on for every row."""
    left = np.empty(scores.shape[1], np.int16)
    chosen = np.empty(picks.max(), np.int64)
    for i in range(scores.shape[0]):
        packed[i] = 0
        left[:] = scores[i]
        best = _largest(left)
        for r in range(picks.size):
            for p in range(picks[r]):
                bit = _place(left, best)
                left[bit] = _TAKEN
                chosen[p] = bit
                packed[i, bit >> 3] |= np.uint8(1 << (bit & 7))
                if p + 1 < picks[r]:
                    best = _largest(left)
            for p in range(picks[r]):
                best = _inhibit(left, inhibition, chosen[p])
