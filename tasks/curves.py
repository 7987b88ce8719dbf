"""Functions of single coordinates, known at evenly spaced places and linear between them.

Numerical eigenfunctions are of this kind: a histogram of every coordinate gives their values at the middles
of its bins. Here are the accumulator of such histograms and the evaluation of the functions, entry by entry,
so that a value is a function of its row alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .sums import Sums

if TYPE_CHECKING:
    from .methods.base import Front
    from .protocols import Block


@dataclass(frozen=True, eq=False)
class Grid:
    """Evenly spaced bins of every coordinate.

    Attributes
    ----------
    least : ndarray of float64, shape (r,)
        Where the first bin begins.
    step : ndarray of float64, shape (r,)
        Width of a bin; 0 where the coordinate does not vary.
    n_bins : int
    """

    least: np.ndarray
    step: np.ndarray
    n_bins: int

    @classmethod
    def between(cls, least: np.ndarray, largest: np.ndarray, n_bins: int) -> Grid:
        """Return ``n_bins`` bins from the least to the largest of each coordinate."""
        return cls(least, (largest - least) / n_bins, n_bins)

    @property
    def varied(self) -> np.ndarray:
        """Which coordinates vary, ascending."""
        return np.flatnonzero(self.step > 0)

    def positions(self, coordinates: np.ndarray) -> np.ndarray:
        """Return where coordinates, shape (n, r), lie: 0 at the beginning of the first bin, 1 at its end."""
        step = np.where(self.step > 0, self.step, 1.0)
        return np.asarray((coordinates - self.least) / step)

    def quantiles(self, counts: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the values that ``share`` of the rows lie below, and above, to the precision of the bins.

        Parameters
        ----------
        counts : ndarray of int64, shape (r, n_bins)
        share : float
            In [0, ½).
        """
        total = np.cumsum(counts, axis=1)
        n_rows = total[:, -1:]
        low = _crossing(total, share * n_rows)
        high = self.n_bins - _crossing(np.cumsum(counts[:, ::-1], axis=1), share * n_rows)
        return self.least + low * self.step, self.least + high * self.step


class Histogram(Sums):
    """Accumulator of how many rows lie in every bin; whole numbers, so in any order the same.

    Parameters
    ----------
    front : Front
        Makes rows coordinates.
    grid : Grid
        Rows beyond it count in its first and last bins.
    """

    def __init__(self, front: Front, grid: Grid) -> None:
        self.front, self.grid = front, grid

    def init(self) -> dict[str, np.ndarray]:
        """Return the counts of no rows."""
        return {"counts": np.zeros((self.front.n_outputs, self.grid.n_bins), np.int64)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        width, n_bins = state["counts"].shape
        first = np.arange(width) * n_bins
        for rows in self.front.tiles(block.vectors, np.float64):
            positions = self.grid.positions(rows)
            if not np.isfinite(positions).all():
                raise ValueError("expected finite vectors, but some hold NaN, infinity or huge numbers")
            bins = np.clip(positions, 0, n_bins - 1).astype(np.int64)
            found = np.bincount((bins + first).ravel(), minlength=width * n_bins)
            state["counts"] += found.reshape(width, n_bins)
        return state

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the counts."""
        return state


@dataclass(frozen=True, eq=False)
class Curves:
    """Functions of single coordinates.

    Attributes
    ----------
    grid : Grid
    low, high : ndarray of float64, shape (r,)
        Coordinates are clipped to these before a function is taken of them.
    places : ndarray of int64, shape (m,)
        The coordinate of each function.
    values : ndarray of float64, shape (m, n_bins)
        At the middles of the bins.
    """

    grid: Grid
    low: np.ndarray
    high: np.ndarray
    places: np.ndarray
    values: np.ndarray

    def of(self, coordinates: np.ndarray) -> np.ndarray:
        """Return the functions' values for rows of coordinates, shape (n, r) to (n, m)."""
        positions = self.grid.positions(np.clip(coordinates, self.low, self.high)) - 0.5
        before = np.clip(np.floor(positions), 0, self.grid.n_bins - 2).astype(np.int64)
        shares = (positions - before)[:, self.places]
        before = before[:, self.places]
        functions = np.arange(len(self.places))
        left, right = self.values[functions, before], self.values[functions, before + 1]
        return np.asarray(left + shares * (right - left))


def _crossing(total: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where cumulated counts reach what is wanted, in bins, linear within a bin."""
    place = (total < wanted).sum(axis=1, keepdims=True).clip(max=total.shape[1] - 1)
    after = np.take_along_axis(total, place, axis=1)
    before = np.where(place > 0, np.take_along_axis(total, np.maximum(place - 1, 0), axis=1), 0)
    share = np.divide(wanted - before, after - before, out=np.zeros(place.shape), where=after > before)
    return np.asarray((place + share)[:, 0])
