"""The ranked sets of least distance to queries by table look-up, compiled and in NumPy with the same numbers.

With a whole number ``t`` for each query and place, a row scores the sum S of its set's numbers, exact in any
order, and its value to a query is ::

    a - b (S u + c)

with ``u`` and ``c`` of the query, ``a`` and ``b`` of the row: see `tasks.active`, which says what they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ._numba import loops
from .ranking import unrank_sets

if TYPE_CHECKING:
    from collections.abc import Callable

LANES = 32  # queries that look up side by side
_FEW = 4  # queries up to which each looks up alone
_SPARE = 512  # rows kept beyond twice the number wanted, before the farther ones are dropped
_PLACES_AT_ONCE = 1 << 15  # unpacked, so that they stay in the second cache
_ROWS_AT_ONCE = 1 << 16  # of sets that are unpacked already


def nearest_sets(
    packed: np.ndarray,
    n_active: int,
    tables: np.ndarray,
    scales: np.ndarray,
    offsets: np.ndarray,
    weigh: Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]],
    k: int,
    lists: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k rows of least value to each query, the earlier row first among equals.

    Parameters
    ----------
    packed : ndarray of uint8, shape (n, width)
        Ranked sets, all of them valid (`unrank_sets` takes them).
    n_active : int
    tables : ndarray of int32, shape (q, n_bits)
        The sum of any n_active numbers of a row is below 2³¹.
    scales, offsets : ndarray of float64, shape (q,)
        ``u`` and ``c``.
    weigh : callable
        From a first row and the places of some rows to their ``a`` and ``b``, float64.
    k : int
        At most n.
    lists : ndarray of unsigned integers, shape (n, n_active), optional
        The places of all sets: `packed` need not be unpacked then.

    Returns
    -------
    values : ndarray of float64, shape (q, k)
        Ascending.
    rows : ndarray of int64, shape (q, k)
    """
    if loops() is None or not k or not len(tables):
        return nearest_sets_reference(packed, n_active, tables, scales, offsets, weigh, k, lists)
    from . import compiled_active

    (n_queries, n_bits), n_rows, alone = tables.shape, len(packed), len(tables) <= _FEW
    scan = compiled_active.scan_alone if alone else compiled_active.scan
    turned, scale, offset, limits = _lanes(tables, scales, offsets, 1 if alone else LANES)
    capacity = min(2 * k + _SPARE, n_rows + 1)
    values = np.full((limits.size, capacity), np.inf)
    rows, counts = np.empty(values.shape, np.int64), np.zeros(len(values), np.int64)
    step = _ROWS_AT_ONCE if alone and lists is not None else max(256, _PLACES_AT_ONCE // n_active)
    for start in range(0, n_rows, step):
        part = slice(start, start + step)
        places = unrank_sets(packed[part], n_bits, n_active) if lists is None else lists[part]
        a, b = weigh(start, places)
        scan(places, start, a, b, turned, scale, offset, limits, k, values, rows, counts)
    values[np.arange(capacity) >= counts[:, None]] = np.inf
    values, rows = values[:n_queries], rows[:n_queries]
    order = np.argsort(values, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(rows, order, axis=1)


def _lanes(
    tables: np.ndarray, scales: np.ndarray, offsets: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return tables, scales, offsets and limits in groups of so many queries that look up side by side."""
    n_queries, n_bits = tables.shape
    n_groups = -(-n_queries // width)
    lanes = np.zeros((n_groups * width, n_bits), np.int32)
    lanes[:n_queries] = tables
    turned = np.ascontiguousarray(lanes.reshape(n_groups, width, n_bits).transpose(0, 2, 1))
    scale, offset = np.zeros((n_groups, width)), np.zeros((n_groups, width))
    scale.flat[:n_queries], offset.flat[:n_queries] = scales, offsets
    limits = np.full((n_groups, width), -np.inf)  # lanes without a query take nothing
    limits.flat[:n_queries] = np.inf
    return turned, scale, offset, limits


def nearest_sets_reference(
    packed: np.ndarray,
    n_active: int,
    tables: np.ndarray,
    scales: np.ndarray,
    offsets: np.ndarray,
    weigh: Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]],
    k: int,
    lists: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Do the same with all values at once."""
    places = unrank_sets(packed, tables.shape[1], n_active) if lists is None else lists
    a, b = weigh(0, places)
    sums = np.zeros((len(tables), len(packed)), np.int64)
    for column in places.T:
        sums += tables[:, column]
    values = a - b * (sums * scales[:, None] + offsets[:, None])
    order = np.argsort(values, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(values, order, axis=1), order


def squared_norms(places: np.ndarray, gram: np.ndarray, start: float) -> np.ndarray:
    """Return ``start`` plus the sum of the Gram matrix over each set, float64, shape (m,), in fixed order.

    Parameters
    ----------
    places : ndarray of int32, shape (m, n_active)
    gram : ndarray of float64, shape (n_bits, n_bits), symmetric
    """
    if loops() is None:
        return squared_norms_reference(places, gram, start)
    from . import compiled_active

    out = np.empty(len(places))
    compiled_active.squared_norms(places, gram, start, out)
    return out


def squared_norms_reference(places: np.ndarray, gram: np.ndarray, start: float) -> np.ndarray:
    """Do the same in NumPy."""
    out = np.full(len(places), start)
    for p in range(places.shape[1]):
        beside = np.zeros(len(places))
        for q in range(p):
            beside += gram[places[:, p], places[:, q]]
        out += gram[places[:, p], places[:, p]] + 2.0 * beside
    return out
