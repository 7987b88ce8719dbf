"""The codes that disagree least with the signs of weights, compiled and in NumPy, with the same numbers.

Weights are whole numbers whose sum is below 2⁵²: so sums are exact, in any order, in int64 and in float64.
"""

from __future__ import annotations

import numpy as np

from ._numba import loops
from .pack import unpack_bits

_FEW = 8  # queries that are searched together if there are no more, ...
_MANY = 32  # ... and else
_SPARE = 512  # codes kept beyond twice the number wanted, before the farther ones are dropped

_AT_ONCE = 1 << 22  # query-code pairs whose distances the reference holds at once
_BITS_AT_ONCE = 1 << 23


def nearest_weighted(weights: np.ndarray, packed: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k codes of least weighted distance to each query, the earlier row first among equals.

    The distance is the sum of ``|w_j|`` over bits j that are not ``w_j >= 0``.

    Parameters
    ----------
    weights : ndarray of int64, shape (q, n_bits)
        The absolute values of each row add up to less than 2⁵².
    packed : ndarray of uint8, shape (n, ceil(n_bits / 8))
    k : int
        At most n.

    Returns
    -------
    distances : ndarray of int64, shape (q, k)
        Ascending.
    rows : ndarray of int64, shape (q, k)
    """
    if loops() is None or not k:
        return nearest_weighted_reference(weights, packed, k)
    distances, rows = np.empty((len(weights), k), np.int64), np.empty((len(weights), k), np.int64)
    at = 0
    while at < len(weights):
        lanes = _FEW if len(weights) - at <= _FEW else _MANY
        group = slice(at, at + lanes)
        distances[group], rows[group] = _search(weights[group], packed, k, lanes)
        at += lanes
    return distances, rows


def nearest_weighted_reference(
    weights: np.ndarray, packed: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Do the same by matrix products of the bits."""
    n_bits = weights.shape[1]
    distances = np.full((len(weights), k), np.iinfo(np.int64).max)
    rows = np.full((len(weights), k), len(packed), np.int64)
    rows_at_once = max(1, _BITS_AT_ONCE // max(n_bits, 1))
    queries_at_once = max(1, _AT_ONCE // rows_at_once)
    for start in range(0, len(packed), rows_at_once):
        bits = unpack_bits(packed[start : start + rows_at_once], n_bits).astype(np.float64)
        for at in range(0, len(weights), queries_at_once):
            queries = weights[at : at + queries_at_once].astype(np.float64)
            found = np.maximum(queries, 0).sum(axis=1)[:, None] - queries @ bits.T
            for q, row in enumerate(found.astype(np.int64), start=at):
                if not k:
                    break
                _improve(distances[q], rows[q], row, start)
    return distances, rows


def _search(weights: np.ndarray, packed: np.ndarray, k: int, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    from . import compiled_weighted
    from .lanes import LARGEST, VALUES

    n_queries, (n_rows, n_bytes) = len(weights), packed.shape
    sums = np.abs(weights).sum(axis=1)
    shifts = np.array([max(int(total).bit_length() - LARGEST.bit_length(), 0) for total in sums])
    exact = np.empty((n_queries, 2 * n_bytes, VALUES), np.int64)
    coarse = np.zeros((2 * n_bytes, VALUES, lanes), np.int16)
    compiled_weighted.make_tables(np.ascontiguousarray(weights), shifts, exact, coarse)
    capacity = min(2 * k + _SPARE, n_rows + 1)
    distances = np.empty((n_queries, capacity), np.int64)
    rows, counts = np.empty((n_queries, capacity), np.int64), np.zeros(n_queries, np.int64)
    codes = np.ascontiguousarray(packed).reshape(-1)
    compiled_weighted.scan(codes, n_rows, n_bytes, exact, coarse, shifts, lanes, k, distances, rows, counts)
    distances[np.arange(capacity) >= counts[:, None]] = np.iinfo(np.int64).max
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(rows, order, axis=1)


def _improve(distances: np.ndarray, rows: np.ndarray, candidates: np.ndarray, start: int) -> None:
    """Put what is nearer than the k-th so far into a ranked list, in place; later rows lose ties."""
    k = len(distances)
    near = np.flatnonzero(candidates < distances[-1])
    if len(near) > 4 * k:
        near = near[candidates[near] <= np.partition(candidates[near], k - 1)[k - 1]]
    if not len(near):
        return
    both = np.concatenate([distances, candidates[near]])
    order = np.argsort(both, kind="stable")[:k]
    rows[:] = np.concatenate([rows, near + start])[order]
    distances[:] = both[order]
