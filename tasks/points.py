"""Distances of rows to some points, such that what is concluded from them is a function of the row alone.

Squared distances to all points come from one matrix product, with a bound on their error; what the error
leaves in doubt is computed again by `kernels.euclidean.pair_distances`, in a fixed order of operations.

The bound. With c = x - o and b = p - o in float64 and u = 2⁻⁵³, the three terms of ``‖c‖² - 2 c·b + ‖b‖²``
are wrong by at most ``γ_(d+3) (‖c‖ + ‖b‖)²`` together, the two subtractions cost ``2 u (‖c‖ + ‖b‖)²`` and
the exact way itself ``γ_(d+2)`` times the distance, which is at most ``(‖c‖ + ‖b‖)²``::

    |fast - exact|  <=  2 (d + 16) u (‖c‖ + ‖b‖)²
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .kernels.euclidean import pair_distances
from .rows import checked_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

TILE_ROWS = 512
_TINY = 2.0**-1000  # more than all that underflow can take away


class Points:
    """Some points that rows are compared with.

    Parameters
    ----------
    points : ndarray of float32 or float64, shape (m, d)

    Raises
    ------
    ValueError
        If there are none, or a number is not finite.
    """

    def __init__(self, points: np.ndarray) -> None:
        if points.ndim != 2 or 0 in points.shape:
            raise ValueError(f"expected points of shape (m, d), got {points.shape}")
        if not np.isfinite(points).all():
            raise ValueError("expected finite points, got NaN or infinity")
        self.points = np.ascontiguousarray(points)
        self.origin = middle(points)
        shifted = self.points.astype(np.float64) - self.origin
        with np.errstate(over="ignore"):
            self._squares = np.einsum("ij,ij->i", shifted, shifted)
        self._lengths = np.sqrt(self._squares)
        self._columns = np.ascontiguousarray(shifted.T)
        self._error = 2 * (points.shape[1] + 16) * 2.0**-53 * (1 + 2.0**-20)

    def __len__(self) -> int:
        return len(self.points)

    def distances(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return squared distances, shape (n, m), and how far each may be from the exact one.

        Raises
        ------
        ValueError
            If one overflows float64.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            centred = rows.astype(np.float64) - self.origin
            squares = np.einsum("ij,ij->i", centred, centred)
            distances = centred @ self._columns
            distances *= -2
            distances += squares[:, None]
            distances += self._squares
            errors = np.sqrt(squares)[:, None] + self._lengths
            errors *= errors
        if not np.isfinite(errors.max(initial=0.0)):
            raise ValueError(
                "expected finite distances, but squared ones overflow float64; rescale the vectors"
            )
        errors *= self._error
        errors += _TINY
        return distances, errors

    def exact(self, rows: np.ndarray, numbers: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the exact squared distances of ``rows[numbers[p]]`` and ``points[places[p]]``."""
        return pair_distances(rows, self.points, numbers, places)

    def nearest(self, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``k`` nearest points of each row, equally near ones by number, and how near they are.

        Parameters
        ----------
        rows : ndarray of float32 or float64, shape (n, d)
        k : int
            At most m.

        Returns
        -------
        places : ndarray of int64, shape (n, k)
        distances : ndarray of float64, shape (n, k)
            Exact squared distances, ascending.
        """
        distances, errors = self.distances(rows)
        limits = np.partition(distances + errors, k - 1, axis=1)[:, k - 1]
        numbers, places = np.nonzero(distances - errors <= limits[:, None])
        exact = self.exact(rows, numbers, places)
        order = np.lexsort((places, exact, numbers))
        firsts = np.searchsorted(numbers, np.arange(len(rows)))
        chosen = order[firsts[:, None] + np.arange(k)]
        return places[chosen].astype(np.int64), exact[chosen]


def middle(rows: np.ndarray) -> np.ndarray:
    """Return the mean of some rows, exactly the rows' value where they all have the same."""
    first = rows[0].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = first + (rows - first).mean(axis=0)
    return np.where(np.isfinite(mean), mean, first)


def tiles(vectors: np.ndarray, n_features: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row and the rows, float32 or float64, of a few hundred rows at a time to be encoded.

    Raises
    ------
    ValueError
        If the shape or type is wrong, or a row holds NaN or infinity.
    """
    vectors = checked_rows(vectors, n_features)
    for start in range(0, len(vectors), TILE_ROWS):
        tile = vectors[start : start + TILE_ROWS]
        if tile.dtype not in (np.float32, np.float64):
            tile = tile.astype(np.float64)
        tile = np.require(tile, tile.dtype.newbyteorder("="), ["C", "A"])
        finite = np.isfinite(tile).all(axis=1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise ValueError(f"expected finite vectors, but row {row} holds NaN or infinity")
        yield start, tile
