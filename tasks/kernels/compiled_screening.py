"""The numba loops of certified screening; `screening` calls them and holds their reference."""

from __future__ import annotations

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from ._numba import jit

_WIDE = '"prefer-vector-width"="512"'  # LLVM shuns the widest registers; the product beside it uses them


@intrinsic
def _unlike(typing_context, left, right):  # type: ignore[no-untyped-def]
    """Count the bits in which two words differ, in the words' own width, so that loops become vectors."""
    signature = types.int32(left, right)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        set.add(builder.function.attributes, _WIDE)  # llvmlite names no attribute of this form
        ones = builder.ctpop(builder.xor(*arguments))
        narrow = context.get_value_type(types.int32)
        return ones if ones.type == narrow else builder.trunc(ones, narrow)

    return signature, generate


@jit(fastmath=True)
def _flag_one_word(products, word, words, tail, tails, extra, lines, flags):  # type: ignore[no-untyped-def]
    """Flag the pairs of one row whose bounds leave the lines; return their number."""
    rise_high, start_high, cap_high, rise_low, start_low, cap_low, centre, width = lines
    count = np.int32(0)
    for j in range(products.size):
        h = np.float32(_unlike(word, words[j]))
        high = max(min(rise_high * h + start_high, cap_high), np.float32(0))
        low = max(rise_low * h + start_low, cap_low)
        slack = tail * tails[j] + extra
        far = (products[j] + slack >= high * high) | (products[j] - slack <= low * low)
        flag = np.int32(far | (abs(h - centre) > width))
        flags[j] = flag
        count += flag
    return count


@jit(fastmath=True)
def _flag_words(products, row, words, tail, tails, extra, lines, flags, counts):  # type: ignore[no-untyped-def]
    """Do the same for codes of several words."""
    rise_high, start_high, cap_high, rise_low, start_low, cap_low, centre, width = lines
    for j in range(products.size):
        counts[j] = 0
    for w in range(row.size):
        word = row[w]
        for j in range(products.size):
            counts[j] += _unlike(word, words[w, j])
    count = np.int32(0)
    for j in range(products.size):
        h = np.float32(counts[j])
        high = max(min(rise_high * h + start_high, cap_high), np.float32(0))
        low = max(rise_low * h + start_low, cap_low)
        slack = tail * tails[j] + extra
        far = (products[j] + slack >= high * high) | (products[j] - slack <= low * low)
        flag = np.int32(far | (abs(h - centre) > width))
        flags[j] = flag
        count += flag
    return count


@jit(fastmath=True)
def _dot32(left, right, start, stop):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for c in range(start, stop):
        total += left[c] * right[c]
    return total


@jit(fastmath=True)
def _dot64(left, right):  # type: ignore[no-untyped-def]
    total = 0.0
    for c in range(left.size):
        total += np.float64(left[c]) * np.float64(right[c])
    return total


@jit
def scan_tile(  # type: ignore[no-untyped-def]
    products, left, right, origin, lines, low, high, levels, error, tighten, same, start, pairs, bounds, count
):
    """Scan rows of a tile from ``start`` on; return (next row, pairs found); stop where room may not last."""
    left_words, left_tails, left_rows, left_squares, left_extra = left
    right_words, right_tails, right_rows, right_squares = right
    n, m = products.shape
    n_words, n_levels = right_words.shape[0], levels.size
    flags = np.zeros((m + 7) // 8 * 8, np.uint8)
    eights = flags.view(np.uint64)
    counts = np.empty(m if n_words > 1 else 0, np.int32)
    row = np.empty(n_words, right_words.dtype)
    column = origin[1]
    for i in range(start, n):
        first = i + 1 if same else 0
        if pairs.shape[0] - count < m - first:
            return i, count
        a = origin[0] + i
        for w in range(n_words):
            row[w] = left_words[w, a]
        tails = right_tails[0, column : column + m]
        extra = left_extra[a]
        tail = left_tails[0, a]
        if n_words == 1:
            words = right_words[0, column : column + m]
            hits = _flag_one_word(products[i], row[0], words, tail, tails, extra, lines, flags)
        else:
            some = right_words[:, column : column + m]
            hits = _flag_words(products[i], row, some, tail, tails, extra, lines, flags, counts)
        if hits == 0:
            continue
        j = first
        while j < m:
            if flags[j] == 0:
                if j % 8 == 0 and eights[j // 8] == 0:
                    j += 8
                else:
                    j += 1
                continue
            b = column + j
            j += 1
            h = 0
            for w in range(n_words):
                h += _unlike(row[w], right_words[w, b])
            value = products[i, b - column]
            slack = tail * right_tails[0, b] + extra
            kept = value + slack >= high[h] or value - slack <= low[h]
            level = 1
            while kept and level < n_levels:
                value -= np.float32(2) * _dot32(left_rows[a], right_rows[b], levels[level - 1], levels[level])
                slack = left_tails[level, a] * right_tails[level, b] + extra
                kept = value + slack >= high[h] or value - slack <= low[h]
                level += 1
            if not kept:
                continue
            squares = left_squares[a] + right_squares[b]
            middle = squares - 2.0 * _dot64(left_rows[a], right_rows[b])
            wide = np.float64(left_tails[n_levels - 1, a]) * np.float64(right_tails[n_levels - 1, b])
            wide += error * squares
            if middle + wide < high[h] and middle - wide > low[h]:
                continue
            if tighten:
                high[h] = max(high[h], middle - wide)
                low[h] = min(low[h], middle + wide)
            pairs[count, 0] = a
            pairs[count, 1] = b
            bounds[count, 0] = middle - wide
            bounds[count, 1] = middle + wide
            count += 1
    return n, count
