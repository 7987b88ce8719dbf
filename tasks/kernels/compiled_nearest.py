"""The numba loops of the nearest rows by Euclidean distance; `nearest` calls them and holds the reference."""

from __future__ import annotations

import numpy as np

from ._numba import jit

_STRIDE = 64  # one in so many is looked at first
_STRETCH = 64


@jit
def nearest(  # type: ignore[no-untyped-def]
    products, query_norms, norms, factor, queries, vectors, ranks, k, found, places
):
    """Screen each query's row of products, measure what may be near, and write the k nearest in order.

    Returns whether all distances that were measured are finite.
    """
    m = norms.size
    roots = np.sqrt(norms)
    distance = np.empty(m, np.float32)
    upper = np.empty(m, np.float32)
    some = np.empty(m, np.float32)
    chosen = np.empty(m, np.int64)
    finite = True
    for i in range(products.shape[0]):
        _bounds(products[i], query_norms[i], norms, roots, factor, distance, upper)
        limit = _kth(upper, k, some)
        n = _not_above(distance, limit, chosen)
        rows = chosen[:n]
        rows = rows[np.argsort(ranks[rows], kind="mergesort")]
        exact = _exact(queries[i], vectors, rows)
        order = np.argsort(exact, kind="mergesort")
        for p in range(n):
            finite &= np.isfinite(exact[p])
        for p in range(k):
            found[i, p] = exact[order[p]]
            places[i, p] = rows[order[p]]
    return finite


@jit
def _bounds(products, query_norm, norms, roots, factor, distance, upper):  # type: ignore[no-untyped-def]
    """Write what no true distance is smaller than, and what none is larger than."""
    root = np.float32(np.sqrt(query_norm))
    for j in range(norms.size):
        between = products[j] * np.float32(-2.0) + norms[j] + query_norm
        both = roots[j] + root
        bound = both * both * factor + np.float32(1e-30)
        upper[j] = between + bound
        distance[j] = between - bound


@jit
def _kth(upper, k, some):  # type: ignore[no-untyped-def]
    """Return the k-th smallest, infinity where there are fewer numbers.

    One in so many tells a number that few are below, with some room; where it was too little, all are sorted.
    """
    m = upper.size
    n_sampled = m // _STRIDE
    wanted = k / _STRIDE
    place = int(wanted + 3 * np.sqrt(wanted)) + 1
    if place < n_sampled // 2:
        limit = np.partition(upper[: n_sampled * _STRIDE : _STRIDE].copy(), place)[place]
        n = _at_most(upper, limit, some)
        if n >= k:
            return np.partition(some[:n], k - 1)[k - 1]
    n = _at_most(upper, np.float32(np.inf), some)
    return np.partition(some[:n], k - 1)[k - 1] if n >= k else np.float32(np.inf)


@jit
def _at_most(values, limit, some):  # type: ignore[no-untyped-def]
    """Write the numbers that are not above the limit; return how many."""
    n = 0
    for first in range(0, values.size, _STRETCH):
        last = min(first + _STRETCH, values.size)
        count = 0
        for j in range(first, last):
            count += values[j] <= limit
        if count:
            for j in range(first, last):
                if values[j] <= limit:
                    some[n] = values[j]
                    n += 1
    return n


@jit
def _not_above(values, limit, places):  # type: ignore[no-untyped-def]
    """Write the places of what is not above the limit, or no number at all; return how many."""
    n = 0
    for first in range(0, values.size, _STRETCH):
        last = min(first + _STRETCH, values.size)
        above = 0
        for j in range(first, last):
            above += values[j] > limit
        if above < last - first:
            for j in range(first, last):
                if not values[j] > limit:
                    places[n] = j
                    n += 1
    return n


@jit
def _exact(query, vectors, rows):  # type: ignore[no-untyped-def]
    """Add squared differences from the first feature to the last, of four rows at a time."""
    total = np.empty(rows.size, np.float64)
    whole = rows.size - rows.size % 4
    for p in range(0, whole, 4):
        a, b, c, d = vectors[rows[p]], vectors[rows[p + 1]], vectors[rows[p + 2]], vectors[rows[p + 3]]
        of_a = of_b = of_c = of_d = 0.0
        for j in range(query.size):
            x = np.float64(query[j])
            to_a, to_b = x - np.float64(a[j]), x - np.float64(b[j])
            to_c, to_d = x - np.float64(c[j]), x - np.float64(d[j])
            of_a += to_a * to_a
            of_b += to_b * to_b
            of_c += to_c * to_c
            of_d += to_d * to_d
        total[p], total[p + 1], total[p + 2], total[p + 3] = of_a, of_b, of_c, of_d
    for p in range(whole, rows.size):
        vector, value = vectors[rows[p]], 0.0
        for j in range(query.size):
            difference = np.float64(query[j]) - np.float64(vector[j])
            value += difference * difference
        total[p] = value
    return total
