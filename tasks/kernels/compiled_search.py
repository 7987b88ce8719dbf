"""The numba loops of exact search; `hamming`, `euclidean` and `ranked` call them and hold their references.

In one file of their own, like the loops of `compiled`, so that numba notices every change.
"""

from __future__ import annotations

import numpy as np

from ._numba import jit


@jit(inline="always")
def _count_bits(word):  # type: ignore[no-untyped-def]
    """Return the number of ones (the compiler turns this into the popcount instruction)."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit
def list_active(words, active):  # type: ignore[no-untyped-def]
    """Write where the ones of each code are, ascending; return the first row of another number, and it."""
    n_active = active.shape[1]
    for i in range(words.shape[0]):
        count = 0
        for w in range(words.shape[1]):
            word = words[i, w]
            while word != 0:
                lowest = word & (np.uint64(0) - word)
                word ^= lowest
                if count < n_active:
                    active[i, count] = 64 * w + _count_bits(lowest - np.uint64(1))
                count += 1
        if count != n_active:
            return i, count
    return -1, 0


@jit
def nearest_codes(queries, codes, k):  # type: ignore[no-untyped-def]
    """Count the distances, turn counts into places, put every row into its place: a stable sort in O(m)."""
    n_queries, n_words = queries.shape
    m = codes.shape[0]
    found = np.empty((n_queries, k), np.int32)
    rows = np.empty((n_queries, k), np.int64)
    distances = np.empty(m, np.int32)
    places = np.empty(64 * n_words + 2, np.int64)
    for i in range(n_queries):
        places[:] = 0
        for j in range(m):
            distance = 0
            for w in range(n_words):
                distance += _count_bits(queries[i, w] ^ codes[j, w])
            distances[j] = distance
            places[distance + 1] += 1
        for d in range(1, places.size):
            places[d] += places[d - 1]
        for j in range(m):
            distance = distances[j]
            place = places[distance]
            if place < k:
                found[i, place] = distance
                rows[i, place] = j
            places[distance] = place + 1
    return found, rows


@jit
def hamming_histogram(queries, codes, n_bits):  # type: ignore[no-untyped-def]
    """Count the codes at each distance from each query."""
    n_queries, n_words = queries.shape
    counts = np.zeros((n_queries, n_bits + 1), np.int64)
    for i in range(n_queries):
        for j in range(codes.shape[0]):
            distance = 0
            for w in range(n_words):
                distance += _count_bits(queries[i, w] ^ codes[j, w])
            counts[i, distance] += 1
    return counts


@jit
def pair_distances(queries, vectors, query_rows, vector_rows):  # type: ignore[no-untyped-def]
    """Add squared differences from the first feature to the last."""
    total = np.empty(query_rows.size, np.float64)
    for p in range(query_rows.size):
        query, vector = queries[query_rows[p]], vectors[vector_rows[p]]
        value = 0.0
        for j in range(query.size):
            difference = np.float64(query[j]) - np.float64(vector[j])
            value += difference * difference
        total[p] = value
    return total


@jit
def merge_ranked(  # type: ignore[no-untyped-def]
    left_distance, left_tie, left_id, right_distance, right_tie, right_id, k
):
    """Take the smaller head of both lists until there are k."""
    n_queries, n_left = left_distance.shape
    n_right = right_distance.shape[1]
    distance = np.empty((n_queries, k), left_distance.dtype)
    tie = np.empty((n_queries, k), left_tie.dtype)
    ids = np.empty((n_queries, k), left_id.dtype)
    for q in range(n_queries):
        a, b = 0, 0
        for place in range(k):
            if a == n_left:
                from_left = False
            elif b == n_right:
                from_left = True
            elif left_distance[q, a] != right_distance[q, b]:
                from_left = left_distance[q, a] < right_distance[q, b]
            elif left_tie[q, a] != right_tie[q, b]:
                from_left = left_tie[q, a] < right_tie[q, b]
            else:
                from_left = left_id[q, a] < right_id[q, b]
            if from_left:
                distance[q, place] = left_distance[q, a]
                tie[q, place] = left_tie[q, a]
                ids[q, place] = left_id[q, a]
                a += 1
            else:
                distance[q, place] = right_distance[q, b]
                tie[q, place] = right_tie[q, b]
                ids[q, place] = right_id[q, b]
                b += 1
    return distance, tie, ids
