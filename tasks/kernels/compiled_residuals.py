"""The numba loops that find large residuals; `residuals` calls them."""

from __future__ import annotations

import numpy as np

from ._numba import jit
from .compiled_screening import _dot32, _dot64


@jit
def mixed(number):  # type: ignore[no-untyped-def]
    """Return SplitMix64 of one number, as `residuals.hashed` does."""
    z = number + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit(fastmath=True)
def _flag_row(products, predicted, tail, tails, extra, least, flags):  # type: ignore[no-untyped-def]
    """Flag the pairs of one row whose residual may reach ``least``; return their number."""
    count = np.int32(0)
    for j in range(products.size):
        high = max(predicted[j] + least, np.float32(0))
        low = max(predicted[j] - least, np.float32(0))
        slack = tail * tails[j] + extra
        far = (products[j] + slack >= high * high) | ((products[j] - slack <= low * low) & (low > 0))
        flag = np.int32(far)
        flags[j] = flag
        count += flag
    return count


@jit(uses=("compiled_screening",))
def scan_tile(  # type: ignore[no-untyped-def]
    products, predicted, left, right, origin, numbers, limits, levels, error, wide_prediction, same, start,
    pairs, bounds, values, count,
):  # fmt: skip
    """Scan rows of a tile from ``start`` on; return (next row, pairs found); stop where room may not last."""
    left_tails, left_rows, left_squares, left_extra = left
    right_tails, right_rows, right_squares = right
    least, worst, sampled = limits
    first_number, second_number, n_rows, key = numbers
    n, m = products.shape
    n_levels = levels.size
    flags = np.zeros((m + 7) // 8 * 8, np.uint8)
    eights = flags.view(np.uint64)
    column = origin[1]
    tails = right_tails[0, column : column + m]
    for i in range(start, n):
        first = i + 1 if same else 0
        if pairs.shape[0] - count < m - first:
            return i, count
        a = origin[0] + i
        extra, tail = left_extra[a], left_tails[0, a]
        hits = _flag_row(
            products[i], predicted[i], tail, tails, extra, np.float32(least - wide_prediction), flags
        )
        if hits == 0:
            continue
        base = (first_number + np.uint64(a)) * n_rows + second_number + np.uint64(column) + key
        j = first
        while j < m:
            if flags[j] == 0:
                if j % 8 == 0 and eights[j // 8] == 0:
                    j += 8
                else:
                    j += 1
                continue
            b = column + j
            in_sample = mixed(base + np.uint64(j)) <= sampled
            limit = (least if in_sample else worst) - wide_prediction
            high = max(np.float64(predicted[i, j]) + limit, 0.0)
            low = max(np.float64(predicted[i, j]) - limit, 0.0)
            high *= high
            low = low * low if low > 0.0 else -np.inf
            value = products[i, j]
            slack = tail * tails[j] + extra
            kept = value + slack >= high or value - slack <= low
            level = 1
            while kept and level < n_levels:
                value -= np.float32(2) * _dot32(left_rows[a], right_rows[b], levels[level - 1], levels[level])
                slack = left_tails[level, a] * right_tails[level, b] + extra
                kept = value + slack >= high or value - slack <= low
                level += 1
            j += 1
            if not kept:
                continue
            squares = left_squares[a] + right_squares[b]
            middle = squares - 2.0 * _dot64(left_rows[a], right_rows[b])
            wide = np.float64(left_tails[n_levels - 1, a]) * np.float64(right_tails[n_levels - 1, b])
            wide += error * squares
            if middle + wide < high and middle - wide > low:
                continue
            pairs[count, 0] = a
            pairs[count, 1] = b
            bounds[count, 0] = middle - wide
            bounds[count, 1] = middle + wide
            values[count] = predicted[i, b - column]
            count += 1
    return n, count
