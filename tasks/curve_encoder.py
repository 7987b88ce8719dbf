"""Codes by signs of functions of single coordinates: of products of them, or of mixtures.

Coordinates ``(x - mean) @ components`` are added up in the fixed order of `kernels.exact`, functions are
taken entry by entry (`curves`), mixtures are added up in fixed order again. So a code is a function of its
row alone, on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .arc_encoder import checked_vectors
from .kernels.exact import padded_width
from .kernels.fast import exact_scores_of
from .kernels.pack import pack_bits, packed_width

if TYPE_CHECKING:
    from .curves import Curves

_TILE_SCORES = 2**19


class CurveEncoder:
    """What encoders by functions of single coordinates share; use one of the subclasses.

    Parameters
    ----------
    mean : ndarray, shape (d,)
    components : ndarray, shape (d, r)
    curves : Curves
        m functions.
    n_bits : int

    Raises
    ------
    ValueError
        If shapes disagree or a number is not finite.
    """

    def __init__(self, mean: np.ndarray, components: np.ndarray, curves: Curves, n_bits: int) -> None:
        self.mean = np.ascontiguousarray(mean, np.float64)
        self.curves, self.n_bits = curves, n_bits
        self.n_active: int | None = None
        components = np.ascontiguousarray(components, np.float64)
        if components.ndim != 2 or self.mean.shape != components.shape[:1] or 0 in components.shape:
            raise ValueError(
                f"expected a mean of d numbers and components of shape (d, r), got {self.mean.shape} "
                f"and {components.shape}"
            )
        self.n_features, width = components.shape
        grid, m = curves.grid, len(curves.places)
        shapes = [array.shape for array in (grid.least, grid.step, curves.low, curves.high)]
        if shapes != [(width,)] * 4 or curves.values.shape != (m, grid.n_bins) or grid.n_bins < 2:
            raise ValueError(f"expected functions of {width} coordinates, got shapes {shapes}")
        if m and not 0 <= curves.places.min() <= curves.places.max() < width:
            raise ValueError(f"expected functions of coordinates 0 to {width - 1}")
        arrays = (self.mean, components, grid.least, grid.step, curves.low, curves.high, curves.values)
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("expected finite numbers, got NaN or infinity")
        self.components = components
        self._columns = _padded(components.T)

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Return packed codes, uint8, shape (n, ceil(n_bits / 8)), least significant bit first.

        Raises
        ------
        ValueError
            If the shape is wrong, or a row holds NaN, infinity or too large a number.
        """
        vectors = checked_vectors(vectors, self.n_features)
        packed = np.empty((len(vectors), packed_width(self.n_bits)), np.uint8)
        height = max(1, _TILE_SCORES // max(len(self._columns), len(self.curves.places), self.n_bits))
        for start in range(0, len(vectors), height):
            tile = vectors[start : start + height]
            coordinates = _products(tile, self.mean, self._columns)
            if not np.isfinite(coordinates).all():
                row = start + int(np.argmin(np.isfinite(coordinates).all(axis=1)))
                raise ValueError(
                    f"expected finite vectors, but row {row} holds NaN, infinity or too large a number"
                )
            packed[start : start + height] = pack_bits(self.bits(self.curves.of(coordinates)))
        return packed

    def bits(self, values: np.ndarray) -> np.ndarray:
        """Return the bits, bool, shape (n, b), from the functions' values, shape (n, m)."""
        raise NotImplementedError


class ProductEncoder(CurveEncoder):
    """Encode rows by the signs of products of functions: a bit is 1 where an even number of them is below 0.

    Parameters
    ----------
    mean, components, curves
        As of `CurveEncoder`.
    factors : ndarray of bool, shape (m, b)
        Which functions are multiplied; none: the bit is 1.
    """

    def __init__(self, mean: np.ndarray, components: np.ndarray, curves: Curves, factors: np.ndarray) -> None:
        super().__init__(mean, components, curves, factors.shape[1])
        if factors.shape[0] != len(curves.places):
            raise ValueError(f"expected factors of {len(curves.places)} functions, got {factors.shape}")
        self.factors = factors
        self._counted = factors.astype(np.float32)

    def __reduce__(self) -> tuple[object, ...]:
        return ProductEncoder, (self.mean, self.components, self.curves, self.factors)

    def bits(self, values: np.ndarray) -> np.ndarray:
        """Return the signs of the products."""
        below = (values < 0).astype(np.float32) @ self._counted  # whole numbers: exact in any order
        return np.asarray(below % 2 == 0)


class MixtureEncoder(CurveEncoder):
    """Encode rows by the signs of weighted sums of functions.

    Parameters
    ----------
    mean, components, curves
        As of `CurveEncoder`.
    centre : ndarray of float64, shape (m,)
        Subtracted from the functions.
    weights : ndarray of float64, shape (m, b)
    """

    def __init__(
        self,
        mean: np.ndarray,
        components: np.ndarray,
        curves: Curves,
        centre: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        super().__init__(mean, components, curves, weights.shape[1])
        m = len(curves.places)
        if weights.shape[0] != m or centre.shape != (m,):
            raise ValueError(f"expected weights of {m} functions, got {weights.shape} and {centre.shape}")
        if not (np.isfinite(weights).all() and np.isfinite(centre).all()):
            raise ValueError("expected finite numbers, got NaN or infinity")
        self.centre, self.weights = centre, weights
        self._weights = _padded(weights.T)

    def __reduce__(self) -> tuple[object, ...]:
        return MixtureEncoder, (self.mean, self.components, self.curves, self.centre, self.weights)

    def bits(self, values: np.ndarray) -> np.ndarray:
        """Return the signs of the sums."""
        return _products(np.ascontiguousarray(values), self.centre, self._weights) >= 0


def _padded(columns: np.ndarray) -> np.ndarray:
    padded = np.zeros((len(columns), padded_width(columns.shape[1])))
    padded[:, : columns.shape[1]] = columns
    return padded


def _products(rows: np.ndarray, mean: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return ``(rows - mean) @ columns.T`` in fixed order, shape (n, b)."""
    numbers, places = (indices.ravel() for indices in np.indices((len(rows), len(columns))))
    return exact_scores_of(rows, mean, numbers, columns, places).reshape(len(rows), len(columns))
