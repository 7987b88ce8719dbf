"""Codes by the signs of weighted affinities, such that a code is a function of its row alone.

Bit j of row x is ``s_j >= 0`` with ``s_j = Σ_i (w_i(x) - μ_i) V_ij``, exactly as `affinity.Affinities.exact`
and `kernels.exact` compute it. That takes too long for all rows. So scores come from float32 products
first; where one is nearer to zero than their error bound its row is done again in float64, and where that
cannot tell either, exactly. No BLAS and no exponential function of a library has a say in a code.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from .kernels.exact import exact_scores, padded_width
from .kernels.fast import centre, sure_signs
from .kernels.pack import packed_width
from .points import tiles

if TYPE_CHECKING:
    from .affinity import Affinities

_EXACT_AT_ONCE = 16  # rows whose distances to all anchors are listed at a time


class AffinityEncoder:
    """Encode rows by the signs of ``(w(x) - μ) @ weights``.

    Parameters
    ----------
    affinities : Affinities
    weights : ndarray of float64, shape (m, b)
        A column per bit.

    Raises
    ------
    ValueError
        If shapes disagree or a number is not finite.
    """

    def __init__(self, affinities: Affinities, weights: np.ndarray) -> None:
        self.affinities = affinities
        self.weights = np.ascontiguousarray(weights, np.float64)
        m, d = affinities.anchors.shape
        if self.weights.ndim != 2 or len(self.weights) != m or 0 in self.weights.shape:
            raise ValueError(f"expected weights of shape ({m}, n_bits), got {self.weights.shape}")
        if affinities.origin.shape != (d,) or affinities.mean.shape != (m,):
            raise ValueError(
                f"expected an origin of {d} and a mean of {m} numbers, got "
                f"{affinities.origin.shape} and {affinities.mean.shape}"
            )
        arrays = (affinities.origin, affinities.anchors, affinities.mean, self.weights)
        if not all(np.isfinite(a).all() for a in arrays) or not 0 < affinities.sigma < np.inf:
            raise ValueError("expected finite anchors, weights and means, and a positive sigma")
        self.n_features, self.n_bits = d, self.weights.shape[1]
        self.n_active: int | None = None
        self._single = affinities.fast(np.dtype(np.float32), parts=True)
        self._double = affinities.fast(np.dtype(np.float64))
        self._prepare()

    @property
    def mean(self) -> np.ndarray:
        """The origin of the rows, which is subtracted from them and from the anchors."""
        return self.affinities.origin

    def with_weights(self, weights: np.ndarray) -> AffinityEncoder:
        """Return an encoder of other weights of the same shape, quickly."""
        if weights.shape != self.weights.shape or not np.isfinite(weights).all():
            raise ValueError(f"expected finite weights of shape {self.weights.shape}, got {weights.shape}")
        other = copy.copy(self)
        other.weights = np.ascontiguousarray(weights, np.float64)
        other._prepare()
        return other

    def __reduce__(self) -> tuple[object, ...]:
        return AffinityEncoder, (self.affinities, self.weights)

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Return packed codes, uint8, shape (n, ceil(n_bits / 8)), least significant bit first.

        Raises
        ------
        ValueError
            If the shape is wrong, a row holds NaN or infinity, or distances overflow float64.
        """
        packed = np.empty((len(vectors), packed_width(self.n_bits)), np.uint8)
        for start, tile in tiles(vectors, self.n_features):
            self._encode(tile, start, packed[start : start + len(tile)])
        return packed

    def encode_tile(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return packed codes of at most `TILE_ROWS` rows and the float32 affinities that they came from."""
        packed = np.empty((len(vectors), packed_width(self.n_bits)), np.uint8)
        [(start, tile)] = tiles(vectors, self.n_features)
        return packed, self._encode(tile, start, packed)

    def affinities_of(self, vectors: np.ndarray) -> np.ndarray:
        """Return the affinities that `encode_tile` would, of the same rows, without coding them."""
        [(start, tile)] = tiles(vectors, self.n_features)
        return self._affinities(tile, start)[0]

    def _prepare(self) -> None:
        m = len(self.weights)
        self._weights32 = self.weights.astype(np.float32)
        self._limits = np.linalg.norm(self.weights, axis=0) * (1 + 2.0**-20)
        self._columns = np.zeros((self.n_bits, padded_width(m)))
        self._columns[:, :m] = self.weights.T

    def _affinities(self, tile: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
        """Return fast affinities and the rows' squared lengths."""
        rounded = np.empty(tile.shape, np.float32)
        squares = centre(tile, self.affinities.origin, rounded)
        finite = np.isfinite(squares)
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise ValueError(
                f"expected finite vectors, but row {row} holds NaN, infinity or too large a number"
            )
        w = self.affinities.of_centred(self._single, rounded, squares)
        return self.affinities.mended(w, self._single, tile, squares), squares

    def _encode(self, tile: np.ndarray, start: int, packed: np.ndarray) -> np.ndarray:
        """Write the codes of a tile, and return its fast affinities."""
        w, squares = self._affinities(tile, start)
        scores = self._single.scores(w, self._weights32)
        errors = self.affinities.error(self._single, np.sqrt(squares), _norms(w))
        hopeless = ~np.isfinite(errors) | ~np.isfinite(scores).all(axis=1)
        scores[hopeless], errors[hopeless] = 0, 1e30  # float32 must hold what it is multiplied with
        limits = np.maximum(self._limits, 1e-30) if hopeless.any() else self._limits
        rows, columns = sure_signs(scores, errors, limits, packed)
        if len(rows):
            _set_bits(packed, rows, columns, self._decide(tile, rows, columns))
        return w

    def _decide(self, tile: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return whether these scores are >= 0, by float64 where that suffices."""
        distinct, places = np.unique(rows, return_inverse=True)
        centred = tile[distinct].astype(np.float64) - self.affinities.origin
        squares = np.einsum("ij,ij->i", centred, centred)
        w = self.affinities.of_centred(self._double, centred, squares)
        scores = self._double.scores(w, self.weights)[places, columns]
        errors = self.affinities.error(self._double, np.sqrt(squares), _norms(w))[places]
        errors = np.minimum(errors, 1e300)  # infinite ones times a limit of zero would be nothing
        unsure = np.flatnonzero(~(np.abs(scores) > errors * self._limits[columns]))
        decided = scores >= 0
        decided[unsure] = self._exact(tile, rows[unsure], columns[unsure]) >= 0
        return decided

    def _exact(self, tile: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the scores that define the bits."""
        scores = np.empty(len(rows))
        distinct, places = np.unique(rows, return_inverse=True)
        for first in range(0, len(distinct), _EXACT_AT_ONCE):
            exact = self.affinities.exact(tile[distinct[first : first + _EXACT_AT_ONCE]])
            mine = np.flatnonzero((places >= first) & (places < first + _EXACT_AT_ONCE))
            scores[mine] = exact_scores(exact, self._columns, places[mine] - first, columns[mine])
        return scores


def _norms(w: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return np.sqrt(np.einsum("ij,ij->i", w, w).astype(np.float64))


def _set_bits(packed: np.ndarray, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
    for bit in range(8):  # one bit of a byte at a time, so that no byte is written twice at once
        mine = columns % 8 == bit
        places = rows[mine], columns[mine] // 8
        ones = values[mine].astype(np.uint8) << np.uint8(bit)
        packed[places] = packed[places] & np.uint8(255 - (1 << bit)) | ones
