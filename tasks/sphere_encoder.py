"""Codes by the spheres that hold a row, such that a code is a function of its row alone.

Bit j of row x is ``‖x - p_j‖² <= r_j²``, with the squared distance added up in a fixed order of operations.
Where one from a matrix product is nearer to the limit than its error bound (`points`), the exact one decides.
"""

from __future__ import annotations

import numpy as np

from .kernels.pack import pack_bits, packed_width
from .points import Points, tiles


class SphereEncoder:
    """Encode rows by whether they lie in spheres.

    Parameters
    ----------
    pivots : ndarray of float64, shape (b, d)
        Centres.
    squares : ndarray of float64, shape (b,)
        Squared radii.

    Raises
    ------
    ValueError
        If shapes disagree or a number is not finite.
    """

    def __init__(self, pivots: np.ndarray, squares: np.ndarray) -> None:
        self.pivots = Points(np.asarray(pivots, np.float64))
        self.squares = np.ascontiguousarray(squares, np.float64)
        if self.squares.shape != (len(self.pivots),) or not np.isfinite(self.squares).all():
            raise ValueError(f"expected {len(self.pivots)} finite squared radii, got {self.squares.shape}")
        self.n_bits, self.n_features = self.pivots.points.shape
        self.n_active: int | None = None

    @property
    def mean(self) -> np.ndarray:
        """The mean of the pivots."""
        return self.pivots.origin

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Return packed codes, uint8, shape (n, ceil(n_bits / 8)), least significant bit first.

        Raises
        ------
        ValueError
            If the shape is wrong, a row holds NaN or infinity, or distances overflow float64.
        """
        packed = np.empty((len(vectors), packed_width(self.n_bits)), np.uint8)
        for start, tile in tiles(vectors, self.n_features):
            packed[start : start + len(tile)] = pack_bits(self.inside(tile))
        return packed

    def inside(self, rows: np.ndarray) -> np.ndarray:
        """Return which rows lie in which spheres or on them, bool, shape (n, b)."""
        distances, errors = self.pivots.distances(rows)
        inside = distances <= self.squares
        numbers, places = np.nonzero(np.abs(distances - self.squares) <= errors * (1 + 2.0**-20))
        inside[numbers, places] = self.pivots.exact(rows, numbers, places) <= self.squares[places]
        return inside
