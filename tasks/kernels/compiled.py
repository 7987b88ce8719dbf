"""The numba loops behind this folder's public functions; import them through ``_numba.loops()``.

All loops are in this one file, because numba notices a change of the file that holds a cached function
but not of a file that it calls into. Sums that decide bits run without fastmath, in the order that the
NumPy references use.
"""

from __future__ import annotations

import math

import numpy as np

from ._numba import jit


@jit(inline="always")
def _count_above(values, threshold):  # type: ignore[no-untyped-def]
    count = np.int32(0)
    for j in range(values.shape[0]):
        count += np.int32(values[j] > threshold)
    return count


@jit(fastmath={"reassoc", "nsz"})
def _guess(values, fraction_z):  # type: ignore[no-untyped-def]
    """Mean + z standard deviations, minimum and maximum: where to start looking, so order is free."""
    total = values[0] * 0
    square = values[0] * 0
    low = values[0]
    high = values[0]
    for j in range(values.shape[0]):
        v = values[j]
        total += v
        square += v * v
        low = min(low, v)
        high = max(high, v)
    mean = total / values.shape[0]
    spread = math.sqrt(max(square / values.shape[0] - mean * mean, 0.0))
    return mean + fraction_z * spread, low, high


@jit
def _search_threshold(values, n_active, z, probes):  # type: ignore[no-untyped-def]
    """Find t with ``count = #{values > t} <= n_active``, equal where 40 probes suffice.

    Each probe is one vectorised pass; interpolation of the tail's logarithm alternates with bisection.
    `probes` is one element of scratch of the scores' own type, so that comparisons stay in that type.
    """
    guess, low, high = _guess(values, z)
    above_low = 0  # not known to be more than n_active until a probe has said so
    above_high = 0
    probes[0] = guess
    for k in range(40):
        t = probes[0]
        if not (low < t < high):
            probes[0] = 0.5 * low + 0.5 * high
            t = probes[0]
            if not (low < t < high):
                break
        count = _count_above(values, t)
        if count == n_active:
            return t, count
        if count > n_active:
            low = t
            above_low = count
        else:
            high = t
            above_high = count
        if k % 2 == 0 and above_high > 0 and above_low > 0:
            share = math.log(above_low / n_active) / math.log(above_low / above_high)
            probes[0] = low + share * (high - low)
        else:
            probes[0] = 0.5 * low + 0.5 * high
    return high, _count_above(values, high)


@jit
def _settle(values, n_active, t, count):  # type: ignore[no-untyped-def]
    """Walk down distinct values from t; return (value, above): `above` entries exceed `value`, the rest tie.

    ``above < n_active <= above + #{values == value}`` on return.
    """
    below = t
    inclusive = True
    above = count
    while True:
        best = -np.inf
        for j in range(values.shape[0]):
            v = values[j]
            if v > best and (v < below or (inclusive and v == below)):
                best = v
        tied = 0
        for j in range(values.shape[0]):
            tied += values[j] == best
        if above + tied >= n_active or tied == 0:  # no tie at all: NaN, which callers exclude
            return best, above
        above += tied
        below = best
        inclusive = False


@jit
def top_active(scores, n_active, z, out):  # type: ignore[no-untyped-def]
    """Indices of the n_active largest entries per row, ascending; ties to the smallest index."""
    n_bits = scores.shape[1]
    buffer = np.zeros(n_bits + 1, np.int32)  # valid indices even where scores are not finite
    probes = np.empty(1, scores.dtype)
    for i in range(scores.shape[0]):
        values = scores[i]
        t, count = _search_threshold(values, n_active, z, probes)
        filled = 0
        if count == n_active:
            for j in range(n_bits):
                buffer[filled] = j
                filled += values[j] > t
        else:
            value, above = _settle(values, n_active, t, count)
            ties = n_active - above
            for j in range(n_bits):
                if values[j] > value:
                    buffer[filled] = j
                    filled += 1
                elif values[j] == value and ties > 0:
                    buffer[filled] = j
                    filled += 1
                    ties -= 1
        for k in range(n_active):
            out[i, k] = buffer[k]


@jit(fastmath={"reassoc", "nnan", "nsz"})
def _neighbours(values, t):  # type: ignore[no-untyped-def]
    """The least value above t and the greatest not above it; minima and maxima are exact in any order."""
    least, greatest = np.inf, -np.inf
    for j in range(values.shape[0]):
        v = values[j]
        least = min(least, v if v > t else np.inf)
        greatest = max(greatest, -np.inf if v > t else v)
    return least, greatest


@jit
def bracket(scores, n_active, z, out):  # type: ignore[no-untyped-def]
    """The n_active-th and the next largest value of each row, as float64; requires n_active < n_bits."""
    probes = np.empty(1, scores.dtype)
    for i in range(scores.shape[0]):
        values = scores[i]
        t, count = _search_threshold(values, n_active, z, probes)
        if count == n_active:
            out[i, 0], out[i, 1] = _neighbours(values, t)
            continue
        value, above = _settle(values, n_active, t, count)
        following = -np.inf
        tied = 0
        for j in range(values.shape[0]):
            tied += values[j] == value
            if values[j] < value:
                following = max(following, values[j])
        out[i, 0] = value
        out[i, 1] = value if above + tied > n_active else following


@jit
def fixed_product(left, right, out):  # type: ignore[no-untyped-def]
    """out += left @ right, each entry adding its products in order."""
    for i in range(left.shape[0]):
        for k in range(left.shape[1]):
            factor = left[i, k]
            for j in range(right.shape[1]):
                out[i, j] += factor * right[k, j]


@jit
def add_rows(total, active, vectors):  # type: ignore[no-untyped-def]
    """total[j] += vectors[i] for each j active in row i, rows in order, in float64."""
    for i in range(active.shape[0]):
        for k in range(active.shape[1]):
            j = active[i, k]
            for c in range(vectors.shape[1]):
                total[j, c] += vectors[i, c]


@jit
def pack_active(active, out):  # type: ignore[no-untyped-def]
    """Set bit j of row i for each j in active[i], least significant bit first."""
    for i in range(active.shape[0]):
        for k in range(active.shape[1]):
            j = active[i, k]
            out[i, j >> 3] |= np.uint8(1 << (j & 7))
