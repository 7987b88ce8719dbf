"""The running threshold of an exhaustive scan: its buffers, a good start for it, and the final order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ._numba import loops

if TYPE_CHECKING:
    from collections.abc import Callable

_SAMPLED = 16  # one tile in so many is looked at to guess the threshold
_ENOUGH = 64  # tiles from which a guess pays


class Buffers(NamedTuple):
    """What is known of each query while codes pass by.

    ``keys`` (q, capacity) int64, distance and row in one number; ``counts`` (q, m) of each distance;
    ``state`` (3, q): number of keys, largest distance still of interest, number of codes known within it.
    """

    keys: np.ndarray
    counts: np.ndarray
    state: np.ndarray


def new_buffers(n_queries: int, k: int, largest: int, limits: np.ndarray | None = None) -> Buffers:
    """Return empty buffers for k codes a query at distances up to ``largest``, or each query's limit."""
    state = np.zeros((3, n_queries), np.int64)
    state[1] = largest if limits is None else limits
    capacity = max(4 * k, 1024)
    return Buffers(
        np.empty((n_queries, capacity), np.int64), np.zeros((n_queries, largest + 2), np.int64), state
    )


def ranked(buffers: Buffers, k: int, n_rows: int, *, in_order: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return distances int32 and rows int64, shape (q, k), by (distance, row)."""
    from . import compiled_running

    if not in_order:
        row_bits, largest = max(n_rows - 1, 1).bit_length(), buffers.counts.shape[1]
        packed = packed_keys(int(buffers.state[0].max(initial=0)), len(buffers.keys), row_bits, largest)
        compiled_running.pack_keys(buffers.keys, buffers.state, row_bits, packed)
        return sorted_keys(packed, k, row_bits)
    n_queries = len(buffers.keys)
    distances, rows = np.empty((n_queries, k), np.int32), np.empty((n_queries, k), np.int64)
    places = np.empty(buffers.counts.shape[1] + 1, np.int64)
    compiled_running.rank_in_order(buffers.keys, buffers.state, k, places, distances, rows)
    return distances, rows


def packed_keys(width: int, n_queries: int, row_bits: int, largest: int) -> np.ndarray:
    """Return room for keys of distances below ``largest``: uint32 sorts twice as fast as uint64."""
    narrow = row_bits + largest.bit_length() <= 32
    return np.empty((n_queries, width), np.uint32 if narrow else np.uint64)


def sorted_keys(packed: np.ndarray, k: int, row_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return distances int32 and rows int64 of the k smallest keys of each query; sorts in place."""
    packed.sort(axis=1)
    nearest = packed[:, :k]
    return (nearest >> row_bits).astype(np.int32), (nearest & ((1 << row_bits) - 1)).astype(np.int64)


def scan_in_order(
    scan: Callable[[np.ndarray, int, int, Buffers], None],
    n_queries: int,
    n_tiles: int,
    n_rows: int,
    k: int,
    largest: int,
    *,
    guess_from: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Run ``scan(queries, k, step, buffers)`` over all tiles and rank what it kept.

    A look at few tiles tells about how near the k-th code is.  Codes beyond that are not even collected; a
    query for which this was too strict is searched again without it, so that the result is exact.  It pays
    from some ``k`` on, ``guess_from``.
    """
    if not k:
        return np.empty((n_queries, 0), np.int32), np.empty((n_queries, 0), np.int64)
    everything = np.arange(n_queries)
    limits = None
    sampled = -(-n_tiles // _SAMPLED)
    expected = -(-2 * k * sampled // n_tiles) + 8  # twice what the sample holds of the k nearest
    if k >= guess_from and n_tiles >= _ENOUGH and expected * n_tiles < sampled * n_rows // 8:
        sample = new_buffers(n_queries, expected, largest)
        scan(everything, expected, _SAMPLED, sample)
        limits = sample.state[1] + 1
    buffers = new_buffers(n_queries, k, largest, limits)
    scan(everything, k, 1, buffers)
    missed = np.flatnonzero(buffers.state[0] < k)
    distances, rows = ranked(buffers, k, n_rows, in_order=True)
    if len(missed):
        again = new_buffers(len(missed), k, largest)
        scan(missed, k, 1, again)
        distances[missed], rows[missed] = ranked(again, k, n_rows, in_order=True)
    return distances, rows


def joined(found: list[tuple[np.ndarray, np.ndarray]], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Join distances and rows of blocks of queries; of none, they have shape (0, k)."""
    if not found:
        return np.empty((0, k), np.int32), np.empty((0, k), np.int64)
    return np.concatenate([distances for distances, _ in found]), np.concatenate([rows for _, rows in found])


def few_smallest(values: np.ndarray, n: int) -> np.ndarray:
    """Return where the n smallest of each row are, int64 (q, n), ascending, the first place among equals."""
    if loops() is None:
        return few_smallest_reference(values, n)
    from . import compiled_running

    found = np.empty((len(values), n), np.int64)
    compiled_running.few_smallest(values, found)
    return found


def few_smallest_reference(values: np.ndarray, n: int) -> np.ndarray:
    """Return what `few_smallest` returns, by a stable sort."""
    return np.argsort(values, axis=1, kind="stable")[:, :n]
