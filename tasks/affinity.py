"""Gaussian affinities of rows to some anchors: the features of spectral codes.

The affinity of row x to anchor a_i is

    w_i(x) = exp(-‖x - a_i‖² / σ²),

and of all of them together ``w(x) - μ`` is taken, with a fixed mean μ, or zeros. Two ways lead there. The
fast one takes the squared distances from one matrix product, in the blocks' own precision; sums over rows
are made of it. The exact one is float64 in a fixed order of operations that no library has a say in: by it
a code is defined. `Affinities.error` bounds by how much a score of the fast way may differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .kernels.euclidean import pair_distances
from .kernels.exact import padded_width
from .kernels.fast import centre

if TYPE_CHECKING:
    from collections.abc import Iterator

TILE_ROWS = 512
_PART = 200  # about so many terms are multiplied and added at a time where the error counts
_PER_LN2 = 1.4426950408889634
_LN2_HIGH = 0.693145751953125  # 16 bits, so that its products with whole numbers are exact
_LN2_LOW = 1.42860682030941723212e-6
_EXPONENTIAL = tuple(1.0 / f for f in np.cumprod([1.0, *range(1, 14)])[::-1].tolist())
_ROOM = 16  # times what is added up may be less than the largest number
_WORST = 0.01  # relative errors beyond it are not bounded but called hopeless


@dataclass(frozen=True, eq=False)
class Affinities:
    """The map from a row to its centred affinities.

    Attributes
    ----------
    origin : ndarray of float64, shape (d,)
        Subtracted from rows and anchors for the sake of precision alone.
    anchors : ndarray of float32 or float64, shape (m, d)
    sigma : float
    mean : ndarray of float64, shape (m,)
        μ; zeros for none.
    """

    origin: np.ndarray
    anchors: np.ndarray
    sigma: float
    mean: np.ndarray

    def tiles(self, vectors: np.ndarray, dtype: Any) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the first row and the centred affinities of a fixed number of rows at a time.

        What a tile is depends on the place of its rows in ``vectors`` alone, and so do its bits.
        """
        fast = self.fast(np.dtype(dtype))
        for start in range(0, len(vectors), TILE_ROWS):
            part = np.ascontiguousarray(vectors[start : start + TILE_ROWS])
            rows = np.empty(part.shape, dtype)
            squares = centre(part, self.origin, rows)
            yield start, self.mended(self.of_centred(fast, rows, squares), fast, part, squares)

    def of_centred(self, fast: Fast, rows: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """Return the affinities of rows from which the origin is subtracted, given their squared lengths."""
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            w = _product(rows, fast.matrix, fast.parts)
            w -= fast.squares
            w -= (squares / self.sigma**2).astype(w.dtype)[:, None]
            np.exp(w, out=w)
            w -= fast.mean
        return w

    def mended(self, w: np.ndarray, fast: Fast, vectors: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """Return affinities of `of_centred`, exact ones in rows where these have over- or underflowed.

        Raises
        ------
        ValueError
            If a squared distance overflows float64.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            length, per_square = np.sqrt(squares.max(initial=0.0)), 2 / self.sigma**2
            largest = per_square * np.maximum(fast.longest, length) * np.maximum(length, 1)
            if max(largest, length, per_square * fast.longest) < np.finfo(w.dtype).max / _ROOM:
                return w
        for row in np.flatnonzero(~np.isfinite(w).all(axis=1)):  # a NaN of the vectors stays one
            w[row] = self.exact(vectors[row : row + 1])[0, : w.shape[1]]
        return w

    def error(self, fast: Fast, lengths: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """Return what a score of each row may be wrong by, for weights of length one; infinite if hopeless.

        Parameters
        ----------
        fast : Fast
        lengths : ndarray of float64, shape (n,)
            ``‖x - origin‖``.
        norms : ndarray of float64, shape (n,)
            Lengths of the fast centred affinities.

        Notes
        -----
        With c = x - o, b = a - o and u the unit roundoff, the exponent comes out wrong by at most
        ``η = (2 γ_(t+8) ‖c‖ ‖b‖ + (4 u + 3 (d + 8) 2⁻⁵³) (‖c‖² + ‖b‖²)) / σ²``: t terms are added up in
        one product, and the exact way itself rounds d times.  So each affinity is wrong by the factor
        ``exp(η + 16 u)``, and a score with weights v by

            ‖v‖ (expm1(η + 16 u) ‖w‖ + (γ_(s+8) + (m + 8) 2⁻⁵³) ‖w - μ‖ + 2 u ‖μ‖ + underflow)

        with s terms added up in the product with the weights, and ``‖w‖ <= ‖w - μ‖ + ‖μ‖``.
        """
        u, u64 = fast.roundoff, 2.0**-53
        m, d = self.anchors.shape
        longest = fast.longest
        with np.errstate(over="ignore", invalid="ignore"):
            crossed = 2 * _gamma(fast.terms + 8, u) * lengths * longest
            squares = (4 * u + 3 * (d + 8) * u64) * (lengths**2 + longest**2)
            relative = np.expm1(np.minimum((crossed + squares) / self.sigma**2 + 16 * u, 1))
            norms = norms * (1 + 2 * m * u)
            mean = float(np.linalg.norm(self.mean))
            rounded = _gamma(_terms(m, fast.parts) + 8, u) + (m + 8) * u64
            error = relative * (norms + mean) + rounded * norms + 2 * u * mean + fast.tiny * m
        return np.where(relative <= _WORST, 1.05 * error, np.inf)

    def fast(self, dtype: np.dtype[Any], *, parts: bool = False) -> Fast:
        """Return what the fast way needs; ``parts`` makes products in short pieces, for a better bound."""
        shifted = self.anchors.astype(np.float64) - self.origin
        squares = np.einsum("ij,ij->i", shifted, shifted)
        with np.errstate(over="ignore"):  # see `mended`
            scaled = shifted * (2 / self.sigma**2)
            return Fast(
                np.ascontiguousarray(scaled.T, dtype),
                (squares / self.sigma**2).astype(dtype),
                self.mean.astype(dtype),
                float(np.sqrt(squares.max())) * (1 + 2.0**-40),
                parts,
            )

    def exact(self, vectors: np.ndarray) -> np.ndarray:
        """Return the centred affinities by which codes are defined, float64, zero-padded to whole lanes.

        Raises
        ------
        ValueError
            If a squared distance overflows float64.
        """
        m = len(self.anchors)
        rows = np.repeat(np.arange(len(vectors)), m)
        distances = pair_distances(vectors, self.anchors, rows, np.tile(np.arange(m), len(vectors)))
        padded = np.zeros((len(vectors), padded_width(m)))
        padded[:, :m] = exponential(-distances.reshape(-1, m) / self._square) - self.mean
        return padded

    @cached_property
    def _square(self) -> float:
        return self.sigma * self.sigma


class Fast(NamedTuple):
    """Anchors as the fast way multiplies rows with them."""

    matrix: np.ndarray  # (d, m), 2 (a - o) / σ²
    squares: np.ndarray  # (m,), ‖a - o‖² / σ²
    mean: np.ndarray  # (m,)
    longest: float  # of the anchors, from the origin
    parts: bool  # whether products are made in pieces

    @property
    def terms(self) -> int:
        """How many roundings a product with the matrix makes at most."""
        return _terms(len(self.matrix), self.parts)

    @property
    def roundoff(self) -> float:
        """The unit roundoff."""
        return 2.0**-24 if self.matrix.dtype == np.float32 else 2.0**-53

    @property
    def tiny(self) -> float:
        """What an affinity that underflows may have been, with room to spare."""
        return 2.0**-120 if self.matrix.dtype == np.float32 else 2.0**-1000

    def scores(self, affinities: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the product with weights of the same type, shape (m, k)."""
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return _product(affinities, weights, self.parts)


def exponential(x: np.ndarray) -> np.ndarray:
    """Return ``exp(x)`` of numbers x <= 0, the same bits on every machine, right to 4 units in the last.

    ``x = k ln 2 + f`` with |f| <= ln 2 / 2, a polynomial of degree 13 in f by Horner's rule, a shift by k:
    additions and multiplications of float64 alone.
    """
    x = np.maximum(x, -800.0)  # where it is 0 for good
    k = np.rint(x * _PER_LN2)
    f = (x - k * _LN2_HIGH) - k * _LN2_LOW
    p = np.full_like(f, _EXPONENTIAL[0])
    for coefficient in _EXPONENTIAL[1:]:
        p = p * f + coefficient
    return np.ldexp(p, k.astype(np.int32))


def _product(left: np.ndarray, right: np.ndarray, parts: bool) -> np.ndarray:
    if not parts or len(right) < 2 * _PART:
        return left @ right
    width = _width(len(right))
    total = left[:, :width] @ right[:width]
    piece = np.empty_like(total)
    for i in range(width, len(right), width):
        total += np.matmul(left[:, i : i + width], right[i : i + width], out=piece)
    return total


def _width(n: int) -> int:
    return -(-n // max(1, round(n / _PART)))


def _terms(n: int, parts: bool) -> int:
    if not parts or n < 2 * _PART:
        return n
    width = _width(n)
    return width + -(-n // width)


def _gamma(n: int, u: float) -> float:
    return n * u / (1 - n * u)
