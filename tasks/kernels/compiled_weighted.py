"""The numba loops of search by weighted bits; `weighted` calls them and holds their reference.

A group of queries looks up coarse weights of all codes side by side.  They never exceed the true ones, so
that a code whose coarse sum is above the running threshold is passed over; the others are weighed exactly.
"""

from __future__ import annotations

import numpy as np

from . import _numba
from .compiled_running import count_bits
from .lanes import LARGEST, VALUES, mark_light

jit = _numba.jit(uses=("compiled_running", "lanes", "vectors"))

_RUN = 256  # codes for which one threshold holds


@jit
def make_tables(weights, shifts, exact, coarse):  # type: ignore[no-untyped-def]
    """Write what half a byte weighs: ``exact`` (q, h, 16) int64 and ``coarse`` (h, 16, lanes) int16.

    Bit j weighs ``|weights[q, j]|`` where it is not the sign of that; coarse is exact, shifted right.
    """
    n_queries, n_bits = weights.shape
    for q in range(n_queries):
        for half in range(exact.shape[1]):
            exact[q, half, 0] = 0
            for place in range(4):
                j = 4 * half + place
                weight = weights[q, j] if j < n_bits else 0
                step = 1 << place
                for value in range(step):
                    unset = exact[q, half, value]
                    exact[q, half, value + step] = unset + max(-weight, 0)
                    exact[q, half, value] = unset + max(weight, 0)
            for value in range(VALUES):
                coarse[half, value, q] = exact[q, half, value] >> shifts[q]


@jit
def scan(codes, n_rows, n_bytes, exact, coarse, shifts, lanes, k, distances, rows, counts):  # type: ignore[no-untyped-def]
    """Keep of each query what may be among its k nearest, in the order of rows, and how much that is."""
    n_queries = exact.shape[0]
    hits = np.zeros(_RUN, np.uint32)
    pairs = hits.view(np.uint64)
    limits = np.full(coarse.shape[2], -1, np.int16)  # lanes without a query have none
    bounds = np.full(n_queries, np.int64(1) << 62)
    limits[:n_queries] = LARGEST
    tables = coarse.reshape(-1)
    for first in range(0, n_rows, _RUN):
        n_codes = min(_RUN, n_rows - first)
        if lanes == 8:
            mark_light(codes, first * n_bytes, n_bytes, n_codes, tables, limits, hits, 8)
        else:
            mark_light(codes, first * n_bytes, n_bytes, n_codes, tables, limits, hits, 32)
        hits[n_codes:] = 0
        for pair in range((n_codes + 1) // 2):
            if pairs[pair] == 0:
                continue
            for i in range(2 * pair, 2 * pair + 2):
                left, row = np.uint64(hits[i]), first + i
                while left != 0:
                    lowest = left & (np.uint64(0) - left)
                    left ^= lowest
                    q = count_bits(lowest - np.uint64(1))
                    distance = np.int64(0)
                    for j in range(n_bytes):
                        byte = codes[row * n_bytes + j]
                        distance += exact[q, 2 * j, byte & 15] + exact[q, 2 * j + 1, byte >> 4]
                    if distance < bounds[q]:
                        distances[q, counts[q]] = distance
                        rows[q, counts[q]] = row
                        counts[q] += 1
                        if counts[q] == distances.shape[1]:
                            bounds[q] = _thin_out(distances, rows, q, k)
                            counts[q] = k
                            limits[q] = bounds[q] >> shifts[q]


@jit
def _thin_out(distances, rows, q, k):  # type: ignore[no-untyped-def]
    """Keep the k nearest in their order, the first among equals; return the last one's distance."""
    last = np.partition(distances[q], k - 1)[k - 1]
    room = k
    for i in range(distances.shape[1]):
        room -= distances[q, i] < last
    n = 0
    for i in range(distances.shape[1]):
        distance = distances[q, i]
        if distance < last or (distance == last and room > 0):
            room -= distance == last
            distances[q, n], rows[q, n] = distance, rows[q, i]
            n += 1
    return last
