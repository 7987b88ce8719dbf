"""The numba loops of sparse coding; `coding` calls them and holds their references.

Widths are whole lanes of 64, so that each inner loop becomes vector instructions of fixed length.
"""

from __future__ import annotations

import numpy as np

from ._numba import jit

_LANES = 64
_BARRED = np.int32(-(1 << 30))


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
            out[i, j] = np.int32(rounded if sure else 0.0)
        unsure[i] = doubts > 0
        if doubts:
            out[i, : scores.shape[1]] = 0


@jit(inline="always")
def _place(left, barred, best):  # type: ignore[no-untyped-def]
    """Return where the value is first: lanes at once, then one by one."""
    begin = 0
    while True:
        hit = np.int32(0)
        for lane in range(_LANES):
            hit |= np.int32(left[begin + lane] + barred[begin + lane] == best)
        if hit:
            break
        begin += _LANES
    while left[begin] + barred[begin] != best:
        begin += 1
    return begin


@jit(inline="always")
def _largest(left, barred):  # type: ignore[no-untyped-def]
    best = np.int32(-2147483648)
    for j in range(left.size):
        best = max(best, np.int32(left[j] + barred[j]))
    return best


@jit(inline="always")
def _take(left, barred, share):  # type: ignore[no-untyped-def]
    """Take the atom's share from all; return the largest of those that are off."""
    best = np.int32(-2147483648)
    for j in range(left.size):
        after = np.int32(left[j] - share[j])
        left[j] = after
        best = max(best, np.int32(after + barred[j]))
    return best


@jit(inline="always")
def _largest_without(left, barred, share):  # type: ignore[no-untyped-def]
    """Return the largest if the atom were off."""
    best = np.int32(-2147483648)
    for j in range(left.size):
        best = max(best, np.int32(np.int32(left[j] + share[j]) + barred[j]))
    return best


@jit
def code_rows(scores, gram, n_active, n_exchanges, packed):  # type: ignore[no-untyped-def]
    """Switch on the best atoms one by one, then exchange single ones; so for every row."""
    n_bits, width = gram.shape
    left, barred = np.empty(width, np.int32), np.empty(width, np.int32)
    chosen = np.empty(n_active, np.int64)
    for i in range(scores.shape[0]):
        left[:] = scores[i]
        barred[:n_bits] = 0
        barred[n_bits:] = _BARRED
        best = _largest(left, barred)
        for p in range(n_active):
            bit = _place(left, barred, best)
            chosen[p] = bit
            barred[bit] = _BARRED
            best = _take(left, barred, gram[bit])
        for _ in range(n_exchanges):
            changed = False
            for p in range(n_active):
                old = chosen[p]
                barred[old] = 0
                share = gram[old]
                best = _largest_without(left, barred, share)
                if np.int32(left[old] + share[old]) == best and _first(left, barred, share, best, old):
                    barred[old] = _BARRED
                    continue
                changed = True
                for j in range(width):
                    left[j] = np.int32(left[j] + share[j])
                bit = _place(left, barred, best)
                chosen[p] = bit
                barred[bit] = _BARRED
                _take(left, barred, gram[bit])
            if not changed:
                break
        packed[i] = 0
        for p in range(n_active):
            packed[i, chosen[p] >> 3] |= np.uint8(1 << (chosen[p] & 7))


@jit(inline="always")
def _first(left, barred, share, best, old):  # type: ignore[no-untyped-def]
    """Tell whether no earlier atom has the same score."""
    for j in range(old):  # noqa: SIM110
        if np.int32(np.int32(left[j] + share[j]) + barred[j]) == best:
            return False
    return True
