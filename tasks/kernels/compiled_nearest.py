"""The numba loops of the nearest rows by Euclidean distance; `nearest` calls them and holds the reference."""

from __future__ import annotations

import numpy as np

from ._numba import jit

_STRIDE = 64  # one in so many is looked at first
_STRETCH = 64
MANY = 256  # places that are worth measuring and merging at once


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
        part = values[first : first + _STRETCH]
        count = np.int32(0)
        for j in range(part.size):
            count += np.int32(part[j] <= limit)
        if count:
            for j in range(part.size):
                if part[j] <= limit:
                    some[n] = part[j]
                    n += 1
    return n


@jit
def _not_above(values, limit, places):  # type: ignore[no-untyped-def]
    """Write the places of what is not above the limit, or no number at all; return how many."""
    n = 0
    for first in range(0, values.size, _STRETCH):
        part = values[first : first + _STRETCH]
        above = np.int32(0)
        for j in range(part.size):
            above += np.int32(part[j] > limit)
        if above < part.size:
            for j in range(part.size):
                if not part[j] > limit:
                    places[n] = first + j
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


@jit
def improve(  # type: ignore[no-untyped-def]
    products, first, last, query_norms, norms, factor, limits, queries, vectors, ranks, ties, ids, chosen,
    n_chosen, distance, tie, id_,
):  # fmt: skip
    """Screen each query's row of products with rows from ``first`` on, and keep the places of what is near.

    With the last rows, or where there are too many places, they are measured and merged into the list.
    Returns whether all distances that were measured are finite.
    """
    stop = first + products.shape[1]
    roots = np.sqrt(norms[first:stop])
    shrunk = norms[first:stop] * (np.float32(1.0) - factor)
    k = distance.shape[1]
    merged, merged_tie, merged_id = np.empty(k), np.empty(k, np.uint32), np.empty(k, np.int64)
    finite = True
    for i in range(products.shape[0]):
        n_chosen[i] += _within(
            products[i], query_norms[i], shrunk, roots, factor, limits[i], first,
            chosen[i, n_chosen[i] :],
        )  # fmt: skip
        if not n_chosen[i] or not (last or n_chosen[i] >= MANY):
            continue
        rows = chosen[i, : n_chosen[i]]
        exact = _exact(queries[i], vectors, rows)
        n_chosen[i] = 0
        n = 0
        for p in range(rows.size):
            finite &= np.isfinite(exact[p])
            if exact[p] <= distance[i, k - 1]:
                exact[n], rows[n] = exact[p], rows[p]
                n += 1
        if not n:
            continue
        order = _in_order(exact[:n], ranks[rows[:n]])
        a, b = 0, 0
        for place in range(k):
            new = False
            if b < n:
                row, value = rows[order[b]], exact[order[b]]
                if value != distance[i, a]:
                    new = value < distance[i, a]
                elif ties[row] != tie[i, a]:
                    new = ties[row] < tie[i, a]
                else:
                    new = ids[row] < id_[i, a]
            if new:
                merged[place], merged_tie[place], merged_id[place] = value, ties[row], ids[row]
                b += 1
            else:
                merged[place], merged_tie[place], merged_id[place] = distance[i, a], tie[i, a], id_[i, a]
                a += 1
        distance[i], tie[i], id_[i] = merged, merged_tie, merged_id
        limits[i] = min(limits[i], np.nextafter(np.float32(distance[i, k - 1]), np.float32(np.inf)))
    return finite


@jit
def _in_order(distance, ranks):  # type: ignore[no-untyped-def]
    """Return the places by distance, equal ones by rank."""
    by_rank = np.argsort(ranks, kind="mergesort")
    return by_rank[np.argsort(distance[by_rank], kind="mergesort")]


@jit
def _within(  # type: ignore[no-untyped-def]
    products, query_norm, norms, roots, factor, limit, start, places
):
    """Write the places, counted from ``start``, of what may be at most the limit; return how many.

    The bounds of `_bounds`, multiplied out: twice a product, against (1 - factor) norm - slope root + rest.
    """
    slope, n = np.float32(2.0) * factor * np.float32(np.sqrt(query_norm)), 0
    rest = query_norm * (np.float32(1.0) - factor) - np.float32(1e-30) - limit
    for first in range(0, norms.size, _STRETCH):
        # slices, so that places count from zero and nobody asks whether they are negative
        some = products[first : first + _STRETCH]
        lower, long = norms[first : first + _STRETCH], roots[first : first + _STRETCH]
        above = np.int32(0)
        for j in range(some.size):
            above += np.int32((lower[j] - slope * long[j]) + rest > np.float32(2.0) * some[j])
        if above < some.size:
            for j in range(some.size):
                if not (lower[j] - slope * long[j]) + rest > np.float32(2.0) * some[j]:
                    places[n] = start + first + j
                    n += 1
    return n
