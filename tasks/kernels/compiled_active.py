"""The numba loops of search by look-up; `active_scan` calls them and holds their references."""

from __future__ import annotations

import numpy as np

from ._numba import jit

_LANES = 32


@jit
def squared_norms(places, gram, start, out):  # type: ignore[no-untyped-def]
    """out[i] = start + the sum of the Gram matrix over the places of row i, in order."""
    for i in range(places.shape[0]):
        total = start
        for p in range(places.shape[1]):
            row, beside = gram[places[i, p]], 0.0
            for q in range(p):
                beside += row[places[i, q]]
            total += row[places[i, p]] + 2.0 * beside
        out[i] = total


@jit(inline="always")
def _add(sums, table, j):  # type: ignore[no-untyped-def]
    for lane in range(_LANES):
        sums[lane] += table[j, lane]


@jit(inline="always")
def _add_eight(sums, table, places, i, p):  # type: ignore[no-untyped-def]
    """The same of eight places: sums are read and written once."""
    first, second, third, fourth = places[i, p], places[i, p + 1], places[i, p + 2], places[i, p + 3]
    fifth, sixth, seventh, eighth = places[i, p + 4], places[i, p + 5], places[i, p + 6], places[i, p + 7]
    for lane in range(_LANES):
        sums[lane] += (
            table[first, lane] + table[second, lane] + table[third, lane] + table[fourth, lane]
            + table[fifth, lane] + table[sixth, lane] + table[seventh, lane] + table[eighth, lane]
        )  # fmt: skip


@jit
def scan(places, start, a, b, tables, scales, offsets, limits, k, values, rows, counts):  # type: ignore[no-untyped-def]
    """Keep of each query what may be among its k best, in the order of rows, and how much that is."""
    sums, found, whole = np.empty(_LANES, np.int32), np.empty(_LANES), places.shape[1] & ~7
    for g in range(tables.shape[0]):
        table, scale, offset, limit = tables[g], scales[g], offsets[g], limits[g]
        for i in range(places.shape[0]):
            sums[:] = 0
            for p in range(0, whole, 8):
                _add_eight(sums, table, places, i, p)
            for p in range(whole, places.shape[1]):
                _add(sums, table, places[i, p])
            left, right, hits = a[i], b[i], 0
            for lane in range(_LANES):
                found[lane] = left - right * (sums[lane] * scale[lane] + offset[lane])
                hits += found[lane] < limit[lane]
            if hits == 0:
                continue
            for lane in range(_LANES):
                if found[lane] < limit[lane]:
                    q = g * _LANES + lane
                    values[q, counts[q]] = found[lane]
                    rows[q, counts[q]] = start + i
                    counts[q] += 1
                    if counts[q] == values.shape[1]:
                        limit[lane] = _thin_out(values, rows, q, k)
                        counts[q] = k


@jit
def scan_alone(places, start, a, b, tables, scales, offsets, limits, k, values, rows, counts):  # type: ignore[no-untyped-def]
    """Do the same for one query after the other, tables of shape (q, n_bits, 1)."""
    n_active, whole = places.shape[1], places.shape[1] & ~7
    for q in range(tables.shape[0]):
        table, scale, offset, limit = (
            tables[q].reshape(tables.shape[1]),
            scales[q, 0],
            offsets[q, 0],
            limits[q, 0],
        )
        n = counts[q]
        for i in range(places.shape[0]):
            total = 0
            for p in range(0, whole, 8):
                total += (
                    table[places[i, p]] + table[places[i, p + 1]] + table[places[i, p + 2]]
                    + table[places[i, p + 3]] + table[places[i, p + 4]] + table[places[i, p + 5]]
                    + table[places[i, p + 6]] + table[places[i, p + 7]]
                )  # fmt: skip
            for p in range(whole, n_active):
                total += table[places[i, p]]
            value = a[i] - b[i] * (total * scale + offset)
            if value < limit:
                values[q, n], rows[q, n] = value, start + i
                n += 1
                if n == values.shape[1]:
                    limit = _thin_out(values, rows, q, k)
                    n = k
        counts[q], limits[q, 0] = n, limit


@jit
def _thin_out(values, rows, q, k):  # type: ignore[no-untyped-def]
    """Keep the k best in their order, the first among equals; return the last one's value."""
    last = np.partition(values[q], k - 1)[k - 1]
    room = k
    for i in range(values.shape[1]):
        room -= values[q, i] < last
    n = 0
    for i in range(values.shape[1]):
        value = values[q, i]
        if value < last or (value == last and room > 0):
            room -= value == last
            values[q, n], rows[q, n] = value, rows[q, i]
            n += 1
    return last
