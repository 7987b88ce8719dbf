"""The codes nearest to each query by Hamming distance, compiled and in NumPy, with the same numbers."""

from __future__ import annotations

import numpy as np

from ._numba import loops

_TILE = 1 << 22  # query-row pairs that the NumPy reference holds at once


def as_words(packed: np.ndarray) -> np.ndarray:
    """Return packed codes as uint64 words, shape (m, ceil(n_bytes / 8)); missing bytes are zero."""
    m, n_bytes = packed.shape
    padded = np.zeros((m, -(-n_bytes // 8) * 8), dtype=np.uint8)
    padded[:, :n_bytes] = packed
    return padded.view(np.uint64)


def nearest_codes(queries: np.ndarray, codes: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k codes nearest to each query, the earlier row first among equals.

    Parameters
    ----------
    queries : ndarray of uint64, shape (q, w)
        From `as_words`.
    codes : ndarray of uint64, shape (m, w)
    k : int
        At most m.

    Returns
    -------
    distances : ndarray of int32, shape (q, k)
        Ascending.
    rows : ndarray of int64, shape (q, k)
        Positions in ``codes``.
    """
    if loops() is None:
        return nearest_codes_reference(queries, codes, k)
    from . import compiled_search

    return compiled_search.nearest_codes(queries, codes, k)


def hamming_histogram(queries: np.ndarray, codes: np.ndarray, n_bits: int) -> np.ndarray:
    """Return how many codes are at each distance from each query.

    Parameters
    ----------
    queries : ndarray of uint64, shape (q, w)
    codes : ndarray of uint64, shape (m, w)
    n_bits : int
        The greatest distance.

    Returns
    -------
    ndarray of int64, shape (q, n_bits + 1)
    """
    if loops() is None:
        return hamming_histogram_reference(queries, codes, n_bits)
    from . import compiled_search

    return compiled_search.hamming_histogram(queries, codes, n_bits)


def hamming_histogram_reference(queries: np.ndarray, codes: np.ndarray, n_bits: int) -> np.ndarray:
    """Return what `hamming_histogram` returns, query by query."""
    counts = np.empty((len(queries), n_bits + 1), np.int64)
    for query, row in zip(queries, counts, strict=True):
        differing = np.bitwise_count(query ^ codes).sum(axis=1, dtype=np.int64)
        row[:] = np.bincount(differing, minlength=n_bits + 1)
    return counts


def nearest_codes_reference(queries: np.ndarray, codes: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what `nearest_codes` returns, by a stable sort of all distances."""
    distances = np.empty((len(queries), k), np.int32)
    rows = np.empty((len(queries), k), np.int64)
    step = max(1, _TILE // max(codes.size, 1))
    for start in range(0, len(queries), step):
        tile = slice(start, start + step)
        differing = np.bitwise_count(queries[tile, None, :] ^ codes[None, :, :])
        full = differing.sum(axis=2, dtype=np.int32)
        rows[tile] = np.argsort(full, axis=1, kind="stable")[:, :k]
        distances[tile] = np.take_along_axis(full, rows[tile], axis=1)
    return distances, rows
