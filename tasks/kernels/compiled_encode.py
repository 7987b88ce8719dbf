"""The numba loops of the encoder's fast path; `fast` calls them and holds their references.

In one file of their own, like the loops of `compiled`, so that numba notices every change.
"""

from __future__ import annotations

import numpy as np

from ._numba import jit


@jit(fastmath={"reassoc", "nsz"})
def centre(vectors, mean, rounded, squares):  # type: ignore[no-untyped-def]
    """rounded = vectors - mean, computed in float64; squares = its squared lengths, in any order."""
    for i in range(vectors.shape[0]):
        total = 0.0
        for k in range(mean.shape[0]):
            c = np.float64(vectors[i, k]) - mean[k]
            rounded[i, k] = c
            total += c * c
        squares[i] = total


@jit(inline="always")
def _count_above(values, threshold):  # type: ignore[no-untyped-def]
    count = np.int32(0)
    for j in range(values.shape[0]):
        count += np.int32(values[j] > threshold)
    return count


@jit(inline="always")
def _neighbours(values, patterns, threshold, sign, found):  # type: ignore[no-untyped-def]
    """Write the least value above the threshold and the greatest of the others, as bit patterns.

    Integers, because their minima become vector instructions: with all but the sign flipped in negative
    ones, the values' bit patterns are ordered like the values. `sign` is (all but the sign bit, its place).
    """
    most, shift = sign
    least, greatest = most, -most
    for j in range(values.shape[0]):
        key = patterns[j] ^ ((patterns[j] >> shift) & most)
        above = values[j] > threshold
        least = min(least, key if above else most)
        greatest = max(greatest, -most if above else key)
    found[0] = least ^ ((least >> shift) & most)
    found[1] = greatest ^ ((greatest >> shift) & most)


@jit(inline="always")
def _pack_above(values, threshold, packed):  # type: ignore[no-untyped-def]
    """Bit j of the row is ``values[j] > threshold``."""
    whole = values.shape[0] // 8
    for byte in range(whole):
        bits = np.uint8(0)
        for k in range(8):
            bits |= np.uint8(values[8 * byte + k] > threshold) << np.uint8(k)
        packed[byte] = bits
    if whole < packed.shape[0]:
        bits = np.uint8(0)
        for j in range(8 * whole, values.shape[0]):
            bits |= np.uint8(values[j] > threshold) << np.uint8(j - 8 * whole)
        packed[whole] = bits


@jit
def sure_winners(  # type: ignore[no-untyped-def]
    scores, patterns, sign, lengths, error, n_active, logs, start, packed, unsure, brackets
):
    """Pack the n_active largest of each row where ``2 * error * length`` cannot change them.

    The threshold is looked for from where the last row had it, in units of the row's length, along the
    logarithm of the count; `logs[c]` is log(max(c, 1/2)). Other rows go to `unsure` with the least of the
    winners and the greatest of the others, NaN where there are ties; returns how many.
    """
    probe = np.empty(1, scores.dtype)  # comparisons stay in the scores' type
    found = np.empty(2, patterns.dtype)
    neighbours = found.view(scores.dtype)
    ratio, step, target = start, 0.1 * start, logs[n_active]
    n_unsure = 0
    for i in range(scores.shape[0]):
        values, length = scores[i], lengths[i]
        low, high, log_low, log_high = -np.inf, np.inf, 0.0, 0.0
        probe[0] = ratio * length
        gap, stride = np.nan, step * length
        for k in range(24):
            count = _count_above(values, probe[0])
            if abs(count - n_active) <= 1:
                _neighbours(values, patterns[i], probe[0], sign, found)
                if count == n_active:
                    gap = np.float64(neighbours[0]) - np.float64(neighbours[1])
                    break
            t = np.float64(probe[0])
            if count > n_active:
                low, log_low = t, logs[count]
                following = np.float64(neighbours[0])
            else:
                high, log_high = t, logs[count]
                following = np.float64(neighbours[1]) * (1.0 - np.sign(neighbours[1]) * 2.0**-23)
            if abs(count - n_active) == 1:  # leave the least one out, or take the next one in
                probe[0] = following
            elif high - low < np.inf:
                share = (log_low - target) / (log_low - log_high) if k % 4 < 3 else 0.5
                probe[0] = low + share * (high - low)
            else:
                probe[0] = t + stride * (logs[count] - target)
                stride *= 2.0
        if gap > 0.0 and length > 0.0:
            ratio = np.float64(probe[0]) / length
            if high - low < np.inf:
                step += 0.25 * ((high - low) / length / (log_low - log_high) - step)
        if gap > 2.0 * error * length:
            _pack_above(values, probe[0], packed[i])
        else:
            unsure[n_unsure] = i
            brackets[n_unsure, 0] = np.float64(neighbours[0]) + 0.0 * gap
            brackets[n_unsure, 1] = np.float64(neighbours[1]) + 0.0 * gap
            n_unsure += 1
    return n_unsure


@jit
def sure_signs(scores, lengths, limits, packed, doubts):  # type: ignore[no-untyped-def]
    """Bit j is ``scores[i, j] >= 0``; mark what is within ``limits[j] * lengths[i]``, return how many."""
    n_bits = scores.shape[1]
    whole = n_bits // 8
    total = np.int64(0)
    for i in range(scores.shape[0]):
        values, length = scores[i], lengths[i]
        count = np.int32(0)
        for j in range(n_bits):
            count += np.int32(abs(values[j]) < limits[j] * length)
        total += np.int64(count)
        for byte in range(whole):
            bits, marks = np.uint8(0), np.uint8(0)
            for k in range(8):
                v = values[8 * byte + k]
                bits |= np.uint8(v >= 0) << np.uint8(k)
                marks |= np.uint8(abs(v) < limits[8 * byte + k] * length) << np.uint8(k)
            packed[i, byte] = bits
            doubts[i, byte] = marks
        if whole < packed.shape[1]:
            bits, marks = np.uint8(0), np.uint8(0)
            for k in range(n_bits - 8 * whole):
                v = values[8 * whole + k]
                bits |= np.uint8(v >= 0) << np.uint8(k)
                marks |= np.uint8(abs(v) < limits[8 * whole + k] * length) << np.uint8(k)
            packed[i, whole] = bits
            doubts[i, whole] = marks
    return total


@jit
def list_ones(packed, rows, columns):  # type: ignore[no-untyped-def]
    """Write (row, column) of every one, row by row, columns ascending."""
    p = 0
    for i in range(packed.shape[0]):
        for byte in range(packed.shape[1]):
            if packed[i, byte]:
                for k in range(8):
                    if packed[i, byte] >> k & 1:
                        rows[p] = i
                        columns[p] = 8 * byte + k
                        p += 1


@jit
def centre_some(vectors, rows, mean, padded):  # type: ignore[no-untyped-def]
    """Write some rows minus the mean, in float64."""
    for i in range(rows.shape[0]):
        for k in range(mean.shape[0]):
            padded[i, k] = np.float64(vectors[rows[i], k]) - mean[k]


@jit(inline="always")
def _dot(x, w, lanes):  # type: ignore[no-untyped-def]
    """Add the products in eight interleaved lanes; the width is a multiple of eight."""
    lanes[:] = 0.0
    for k in range(0, x.shape[0], 8):
        for lane in range(8):
            lanes[lane] += x[k + lane] * w[k + lane]
    left = (lanes[0] + lanes[4]) + (lanes[2] + lanes[6])
    return left + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))


@jit
def exact_scores(rows_matrix, columns_matrix, rows, columns, out):  # type: ignore[no-untyped-def]
    """Dot products of pairs."""
    lanes = np.empty(8)
    for p in range(rows.shape[0]):
        out[p] = _dot(rows_matrix[rows[p]], columns_matrix[columns[p]], lanes)


@jit(inline="always")
def _dot_centred(x, mean, w, lanes):  # type: ignore[no-untyped-def]
    """``_dot`` of ``x - mean``; lanes that begin with +0 stay what they are when zeros are added."""
    lanes[:] = 0.0
    whole = x.shape[0] - x.shape[0] % 8
    for k in range(0, whole, 8):
        for lane in range(8):
            lanes[lane] += (np.float64(x[k + lane]) - mean[k + lane]) * w[k + lane]
    for k in range(whole, x.shape[0]):
        lanes[k - whole] += (np.float64(x[k]) - mean[k]) * w[k]
    left = (lanes[0] + lanes[4]) + (lanes[2] + lanes[6])
    return left + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))


@jit
def decide_winners(  # type: ignore[no-untyped-def]
    scores, rows, bounds, vectors, mean, places, columns, n_active, packed
):
    """Pack what is above bounds[p, 1], then the best by exact score of what is above bounds[p, 0]."""
    n_bits = scores.shape[1]
    possible = np.empty(packed.shape[1], np.uint8)
    candidates = np.empty(n_bits, np.int64)
    exact, lanes = np.empty(n_bits), np.empty(8)
    for p in range(rows.shape[0]):
        values, bits = scores[rows[p]], packed[rows[p]]
        _pack_above(values, bounds[p, 0], possible)
        _pack_above(values, bounds[p, 1], bits)
        found = 0
        for byte in range(bits.shape[0]):
            if possible[byte] != bits[byte]:
                for j in range(8 * byte, min(8 * byte + 8, n_bits)):
                    if bounds[p, 0] < values[j] <= bounds[p, 1]:
                        candidates[found] = j
                        exact[found] = _dot_centred(vectors[places[p]], mean, columns[j], lanes)
                        found += 1
        for _ in range(min(found, n_active - _count_above(values, bounds[p, 1]))):
            best = 0
            for k in range(1, found):
                if exact[k] > exact[best]:
                    best = k
            j = candidates[best]
            bits[j >> 3] |= np.uint8(1 << (j & 7))
            exact[best] = -np.inf


@jit
def exact_scores_of(vectors, mean, rows, columns_matrix, columns, out):  # type: ignore[no-untyped-def]
    """Dot products of centred vectors and columns, pair by pair."""
    lanes = np.empty(8)
    for p in range(rows.shape[0]):
        out[p] = _dot_centred(vectors[rows[p]], mean, columns_matrix[columns[p]], lanes)
