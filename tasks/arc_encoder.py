"""Codes by arcs of a circle: a score goes round it, and the bit says whether it lies within an arc around 0.

Bit j of row x is ``cos(2π u) >= t_j`` with ``u = (x - mean) · P_j + b_j`` in turns, that is, whether the
distance of u to the nearest whole number is at most ``arccos(t_j) / 2π``. Spectral hashing and
shift-invariant kernel hashing are of this kind. Scores are computed in float64 in the fixed order of
`kernels.exact`, the rest by comparisons of IEEE numbers, so that a code is a function of its row alone, on
every machine; for that there is no fast path.
"""

from __future__ import annotations

import numpy as np

from .kernels.exact import padded_width
from .kernels.fast import exact_scores_of
from .kernels.pack import pack_bits, packed_width
from .rows import checked_rows

_TILE_SCORES = 2**20


class ArcEncoder:
    """Encode rows by whether ``(x - mean) @ projection + offset``, in turns, is near a whole number.

    Parameters
    ----------
    mean : ndarray, shape (d,)
    projection : ndarray, shape (d, b)
    offset : ndarray, shape (b,)
        In turns.
    width : ndarray, shape (b,)
        Half the arc of ones, in turns, in [0, ½].

    Raises
    ------
    ValueError
        If shapes disagree or a number is not finite.
    """

    def __init__(
        self, mean: np.ndarray, projection: np.ndarray, offset: np.ndarray, width: np.ndarray
    ) -> None:
        arrays = (mean, projection, offset, width)
        self.mean, self.projection, self.offset, self.width = (
            np.ascontiguousarray(array, np.float64) for array in arrays
        )
        if self.projection.ndim != 2 or 0 in self.projection.shape:
            raise ValueError(f"expected a projection of shape (d, n_bits), got {self.projection.shape}")
        self.n_features, self.n_bits = self.projection.shape
        self.n_active: int | None = None
        found = self.mean.shape, self.offset.shape, self.width.shape
        if found != ((self.n_features,), (self.n_bits,), (self.n_bits,)):
            raise ValueError(
                f"expected {self.n_features} means and {self.n_bits} offsets and widths, got shapes {found}"
            )
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("expected finite numbers, got NaN or infinity")
        self._columns = np.zeros((self.n_bits, padded_width(self.n_features)))
        self._columns[:, : self.n_features] = self.projection.T

    def __reduce__(self) -> tuple[object, ...]:
        return ArcEncoder, (self.mean, self.projection, self.offset, self.width)

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Return packed codes, uint8, shape (m, ceil(n_bits / 8)), least significant bit first.

        Raises
        ------
        ValueError
            If the shape is wrong, or a row holds NaN, infinity or too large a number.
        """
        vectors = checked_vectors(vectors, self.n_features)
        packed = np.empty((len(vectors), packed_width(self.n_bits)), np.uint8)
        columns = np.arange(self.n_bits)
        height = max(1, _TILE_SCORES // self.n_bits)
        for start in range(0, len(vectors), height):
            tile = vectors[start : start + height]
            rows = np.repeat(np.arange(len(tile)), self.n_bits)
            scores = exact_scores_of(tile, self.mean, rows, self._columns, np.tile(columns, len(tile)))
            turns = scores.reshape(len(tile), self.n_bits) + self.offset
            if not np.isfinite(turns).all():
                row = start + int(np.argmin(np.isfinite(turns).all(axis=1)))
                raise ValueError(
                    f"expected finite vectors, but row {row} holds NaN, infinity or too large a number"
                )
            packed[start : start + height] = pack_bits(np.abs(turns - np.rint(turns)) <= self.width)
        return packed


def checked_vectors(vectors: np.ndarray, n_features: int) -> np.ndarray:
    """Return vectors as the exact kernels take them: float32 or float64, native, C-contiguous.

    Raises
    ------
    ValueError
        If they are not numbers, or of another width.
    """
    vectors = checked_rows(vectors, n_features)
    if vectors.dtype not in (np.float32, np.float64):
        vectors = vectors.astype(np.float64)
    return np.require(vectors, vectors.dtype.newbyteorder("="), ["C", "A"])
