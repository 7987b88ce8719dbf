"""Which pairs of rows may be too far apart, or too near, for their Hamming distance: with proof.

Squared distances are c² = ‖x‖² + ‖y‖² - 2⟨x, y⟩.  In an orthonormal basis whose first directions carry most
of the length, the inner product of the first k coordinates is a cheap matrix product, and that of the rest
is at most the product of what is left of the two lengths (Cauchy-Schwarz).  Only pairs whose interval for c²
reaches a limit get more coordinates, and only those that still do after the last one are returned.

Every rounding error is inside the interval: a pair that is not returned is within its limits.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import numpy as np

from ._numba import loops
from .screened_rows import UNIT_ROUNDOFF, factors, hamming_matrix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .screened_rows import ScreenedRows

TILE = 384  # rows of a tile of products, which stays in the second cache
ROOM = 1 << 18  # pairs returned at a time, at least one row of a tile
_RARE = 5e-4  # share of pairs beyond either end of the Hamming distances that lines are made for


def limits_in_units(low: np.ndarray, high: np.ndarray, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """Return limits of squared distances as `suspects` takes them: finite, in squares of the unit."""
    with np.errstate(over="ignore"):
        low, high = low / unit / unit, high / unit / unit
    return np.minimum(low, 1e36), np.maximum(high, -1.0)


def suspects(
    left: ScreenedRows,
    right: ScreenedRows,
    low: np.ndarray,
    high: np.ndarray,
    counts: np.ndarray,
    levels: np.ndarray,
    *,
    same: bool,
    tighten: bool = False,
    room: int = ROOM,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the pairs that may be at or beyond their limits, with an interval for each.

    Parameters
    ----------
    left, right : ScreenedRows
    low, high : ndarray of float64, shape (M + 1,)
        Limits of the squared distance for each Hamming distance, in units; pairs with low < c² < high are
        of no interest.  With ``tighten`` they are moved to what the pairs found prove to be reached.
    counts : ndarray of int, shape (M + 1,)
        How often each Hamming distance occurs, roughly; only speed depends on it.
    levels : ndarray of int64, shape (l,)
        Of the basis.
    same : bool
        Left and right are the same rows: each pair counts once, the smaller number on the left.
    tighten : bool
    room : int
        About how many pairs are yielded at a time.

    Yields
    ------
    pairs : ndarray of int32, shape (p, 2)
        Positions in ``left`` and ``right``.
    bounds : ndarray of float64, shape (p, 2)
        c² is in this interval.
    """
    error = 8 * UNIT_ROUNDOFF
    rounding = 4 * (left.coordinates.shape[1] + 16) * UNIT_ROUNDOFF
    extra = (rounding * (left.squares + right.squares.max(initial=0.0)) + 1e-36).astype(np.float32)
    if loops() is None:
        yield from suspects_reference(left, right, low, high, error, same=same, tighten=tighten)
        return
    from .compiled_screening import scan_tile

    k = int(levels[0])
    sides_of_products = factors(left, k, -2.0), factors(right, k, 1.0)[:, [*range(k), k + 1, k]]
    sides = (
        (left.words, left.tails, left.coordinates, left.squares, extra),
        (right.words, right.tails, right.coordinates, right.squares),
    )
    room = max(room, TILE)
    pairs, bounds, count = np.empty((room, 2), np.int32), np.empty((room, 2)), 0
    buffer = np.empty((TILE, TILE), np.float32)
    even = _all_even(left, right)
    lines = _lines(low.tobytes(), high.tobytes(), counts.tobytes(), even=even)
    for a in range(0, len(left), TILE):
        for b in range(a if same else 0, len(right), TILE):
            rows, columns = sides_of_products[0][a : a + TILE], sides_of_products[1][b : b + TILE]
            products = buffer.reshape(-1)[: len(rows) * len(columns)].reshape(len(rows), len(columns))
            np.matmul(rows, columns.T, out=products)
            start = 0
            while True:
                start, count = scan_tile(
                    products, *sides, (a, b), lines, low, high, levels, error, tighten, same and a == b,
                    start, pairs, bounds, count,
                )  # fmt: skip
                if start == len(rows):
                    break
                yield pairs[:count].copy(), bounds[:count].copy()
                count = 0
    if count:
        yield pairs[:count], bounds[:count]


def suspects_reference(
    left: ScreenedRows,
    right: ScreenedRows,
    low: np.ndarray,
    high: np.ndarray,
    error: float,
    *,
    same: bool,
    tighten: bool,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Do the same in NumPy, all coordinates of every pair; intervals are the same to the last bits."""
    rows = left.coordinates.astype(np.float64)
    for b in range(0, len(right), TILE):
        part = slice(b, b + TILE)
        squares = left.squares[:, None] + right.squares[part]
        middle = squares - 2 * (rows @ right.coordinates[part].astype(np.float64).T)
        wide = left.tails[-1].astype(np.float64)[:, None] * right.tails[-1, part] + error * squares
        h = hamming_matrix(left.words, right.words[:, part])
        kept = (middle + wide >= high[h]) | (middle - wide <= low[h])
        if same:
            kept &= np.arange(len(left))[:, None] < np.arange(b, b + kept.shape[1])
        i, j = np.nonzero(kept)
        bounds = np.stack([middle[i, j] - wide[i, j], middle[i, j] + wide[i, j]], axis=1)
        if tighten:
            np.maximum.at(high, h[i, j], bounds[:, 0])
            np.minimum.at(low, h[i, j], bounds[:, 1])
        yield np.stack([i, j + b], axis=1).astype(np.int32), bounds


def _all_even(left: ScreenedRows, right: ScreenedRows) -> bool:
    """Tell whether all codes have an even, or all an odd, number of ones: then all distances are even."""
    odd = [np.bitwise_count(side.words).sum(axis=0) % 2 for side in (left, right) if len(side)]
    return len(odd) == 2 and odd[0].min() == odd[0].max() == odd[1].min() == odd[1].max()


@functools.lru_cache(maxsize=4)
def _lines(low_: bytes, high_: bytes, counts_: bytes, *, even: bool) -> tuple[np.float32, ...]:
    """Return lines that lie within the limits: what is between them needs no look at the tables.

    For Hamming distances within ``width`` of ``centre``: c is below max(min(rise·h + start, cap), 0), and
    above the greater of another line and its cap.
    """
    low, high, counts = np.frombuffer(low_), np.frombuffer(high_), np.frombuffer(counts_, np.int64)
    h = np.arange(0, len(counts), 2 if even else 1)
    weights = np.maximum(counts[h], 1e-9)
    share = np.cumsum(weights) / weights.sum()
    first = int(np.searchsorted(share, _RARE))
    last = max(int(np.searchsorted(share, 1 - _RARE)), first)
    h, weights = h[first : last + 1], weights[first : last + 1]
    rise, start, cap = _inner_line(h, np.sqrt(np.maximum(high[h], 0.0)), weights)
    margin = 1e-6 * (abs(rise) * h[-1] + abs(start) + abs(cap))  # far above what float32 rounds
    upper = rise, start - margin, cap - margin
    rise, start, cap = (-v for v in _inner_line(h, -np.sqrt(np.maximum(low[h], 0.0)), weights))
    margin = 1e-6 * (abs(rise) * h[-1] + abs(start) + abs(cap))
    lower = rise, start + margin, max(cap + margin, 0.0)
    return tuple(np.float32(v) for v in (*upper, *lower, (h[0] + h[-1]) / 2, (h[-1] - h[0]) / 2 + 0.1))


def _inner_line(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[float, float, float]:
    """Return (rise, start, cap) with min(rise·x + start, cap) ≤ y everywhere, and large in the mean."""
    best = (0.0, float(y.min()), float(y.min()))
    most = -np.inf
    for cap in np.unique(y):
        bent = y < cap
        for rise, start in _supports(x[bent], y[bent], weights[bent]) if bent.any() else [(0.0, float(cap))]:
            value = float(np.sum(weights * np.minimum(rise * x + start, cap)))
            if value > most:
                best, most = (rise, start, float(cap)), value
    return best


def _supports(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> list[tuple[float, float]]:
    """Return lines (rise, start) that touch points from below and leave none below them."""
    if len(x) == 1:
        return [(0.0, float(y[0]))]
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    rises = [(y[b] - y[a]) / (x[b] - x[a]) for a, b in itertools.pairwise(hull)]
    return [(float(rise), float((y - rise * x).min())) for rise in rises]
