"""Which pairs of rows may have a large residual ``|λ v - c|``, c their distance: with proof.

v is the squared distance of any codes s, soft or of zeros and ones.  It is as cheap a matrix product as that
of the first coordinates, and its rounding is bounded like theirs; for c² there is the interval of
`screening`.

Two thresholds are given, since of many pairs only some are wanted: the worst ones, and those that a hash of
their numbers picks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .screened_rows import UNIT_ROUNDOFF, factors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .screened_rows import ScreenedRows

TILE = 256  # rows of two tiles of products, which stay in the second cache
ROOM = 1 << 15  # pairs returned at a time, at least one row of a tile
EVERY_HASH = 2**64 - 1


@dataclass
class Wanted:
    """What is looked for; the last two may be narrowed while pairs are being yielded.

    Attributes
    ----------
    scale : float
        λ of distances in units of the basis.
    least : float
        The residual, in these units, from which a pair counts.
    n_rows, key : int
        The hash of rows i and j is that of ``i · n_rows + j + key``.
    worst : float
        At least ``least``; pairs of smaller residuals are left out ...
    sampled : int
        ... unless their hash is at most this.
    """

    scale: float
    least: float
    n_rows: int
    key: int
    worst: float = 0.0
    sampled: int = EVERY_HASH


def large_residuals(
    left: ScreenedRows,
    right: ScreenedRows,
    codes: tuple[np.ndarray, np.ndarray],
    first_numbers: tuple[int, int],
    wanted: Wanted,
    levels: np.ndarray,
    *,
    same: bool,
    room: int = ROOM,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, float]]:
    """Yield the pairs that may be wanted.

    Parameters
    ----------
    left, right : ScreenedRows
    codes : pair of ndarrays of float64, shapes (m, b) and (n, b)
        s, in [0, 1].
    first_numbers : pair of int
        The numbers of both sides' first rows; the others follow.
    wanted : Wanted
    levels : ndarray of int64, shape (l,)
        Of the basis.
    same : bool
        Left and right are the same rows: each pair counts once, the smaller number on the left.
    room : int
        About how many pairs are yielded at a time.

    Yields
    ------
    pairs : ndarray of int32, shape (p, 2)
        Positions in ``left`` and ``right``.
    bounds : ndarray of float64, shape (p, 2)
        c² is in this interval, in squares of the unit.
    predicted : ndarray of float64, shape (p,)
        λ v in units, up to ...
    wide : float
    """
    from .compiled_residuals import scan_tile

    error = 8 * UNIT_ROUNDOFF
    rounding = 4 * (left.coordinates.shape[1] + 16) * UNIT_ROUNDOFF
    extra = (rounding * (left.squares + right.squares.max(initial=0.0)) + 1e-36).astype(np.float32)
    b = codes[0].shape[1]
    wide = 8 * (b + 16) * UNIT_ROUNDOFF * (wanted.scale * b + wanted.least)
    k = int(levels[0])
    heads = factors(left, k, -2.0), factors(right, k, 1.0)[:, [*range(k), k + 1, k]]
    lengths = [wanted.scale * np.einsum("ij,ij->i", side, side) for side in codes]
    ones = [np.ones(len(side)) for side in codes]
    predictors = (
        np.column_stack([-2 * wanted.scale * codes[0], lengths[0], ones[0]]).astype(np.float32),
        np.column_stack([codes[1], ones[1], lengths[1]]).astype(np.float32),
    )
    sides = (
        (left.tails, left.coordinates, left.squares, extra),
        (right.tails, right.coordinates, right.squares),
    )
    numbers = tuple(np.uint64(number) for number in (*first_numbers, wanted.n_rows, wanted.key))
    room = max(room, TILE)
    pairs, bounds, values = np.empty((room, 2), np.int32), np.empty((room, 2)), np.empty(room)
    buffers = np.empty((2, TILE * TILE), np.float32)
    count = 0
    for a in range(0, len(left), TILE):
        for at in range(a if same else 0, len(right), TILE):
            tile = (slice(a, a + TILE), slice(at, at + TILE))
            shape = len(heads[0][tile[0]]), len(heads[1][tile[1]])
            products, predicted = (buffer[: shape[0] * shape[1]].reshape(shape) for buffer in buffers)
            np.matmul(heads[0][tile[0]], heads[1][tile[1]].T, out=products)
            np.matmul(predictors[0][tile[0]], predictors[1][tile[1]].T, out=predicted)
            start = 0
            while True:
                limits = wanted.least, max(wanted.least, wanted.worst), np.uint64(wanted.sampled)
                start, count = scan_tile(
                    products, predicted, *sides, (a, at), numbers, limits, levels, error, wide,
                    same and a == at, start, pairs, bounds, values, count,
                )  # fmt: skip
                if start == shape[0]:
                    break
                yield pairs[:count].copy(), bounds[:count].copy(), values[:count].copy(), wide
                count = 0
        if count:
            yield pairs[:count].copy(), bounds[:count].copy(), values[:count].copy(), wide
            count = 0


def hashed(numbers: np.ndarray, key: int) -> np.ndarray:
    """Return SplitMix64 of pairs' numbers, uint64: a permutation of them that looks random."""
    z = numbers.astype(np.uint64) + np.uint64(key)
    z += np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
