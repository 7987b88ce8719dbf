"""From vectors to codes by a linear map, such that a code is a function of its row alone.

The score of row x for bit j is ``s_j = (x - mean) · P_j``, in float64 and in the fixed order of
`kernels.exact`; bit j of a dense code is ``s_j >= 0``, and a sparse code has its ones at the
``n_active`` largest scores, smallest index first among equals. Computing all scores like that would be
slow, and a fast matrix product rounds differently for each shape of the batch. So the product runs in
float32, and whatever its rounding could decide is computed again exactly.

The bound. Let ``c = x - mean`` in float64, u = 2⁻²⁴ and F_j the float32 result. Rounding c and P to
float32 costs a factor (1 + u) each, a float32 dot of d products in any order at most ``γ_d = d u / (1 -
d u)``, the float64 score itself far less than u, hence::

    |F_j - s_j|  <=  γ_(d+16) Σ_k |c_k| |P_kj|  <=  γ_(d+16) ‖c‖ ‖P_j‖

Rows and columns are first brought to ordinary size by powers of two, which change no sign and no order;
gradual or flushed underflow (2⁻¹²⁶ a term) then disappears in the 16, and nothing overflows. If ``P = V
W`` goes through few dimensions, the product runs as ``(c V) W``, and ``c V`` as the sum of p products of
d / p features; then ``d / p + p + r`` takes the place of d and ``‖ |V| |W_j| ‖`` that of ‖P_j‖.

No BLAS has a say in a code, so a saved model gives the same codes on every machine with IEEE arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .kernels.exact import fixed_product, padded_width
from .kernels.fast import (
    centre,
    centred_rows,
    decide_winners,
    exact_scores_of,
    sure_signs,
    sure_winners,
)
from .kernels.pack import list_active, packed_width
from .rows import checked_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

TILE_ROWS = 2048
_TILE_ROWS_OF_FACTORS = 512  # scores of short products stay in the second cache
_PART_FEATURES = 200  # about so many features at a time, where products are short anyway
_SLACK = 16
_FLOAT32_FEATURES = 100_000  # beyond it the bound would leave too much to recompute
_WORST_DETOUR = 1000.0  # factors that cancel more than this leave too much to recompute
_ORDINARY = 2.0**100  # squared lengths within [1/_ORDINARY, _ORDINARY] need no scaling


class ProjectionEncoder:
    """Encode rows by the signs or the largest entries of ``(x - mean) @ projection``.

    Parameters
    ----------
    mean : ndarray, shape (d,)
        Subtracted from every row; zeros for none.
    projection : ndarray, shape (d, b)
        One column per bit, kept as float64.
    n_active : int, optional
        Ones per code; None for dense codes (one sign bit per column).
    factors : pair of ndarrays, shapes (d, r) and (r, b), optional
        Factors with ``projection = factors[0] @ factors[1]`` up to rounding; only speed depends on them.

    Raises
    ------
    ValueError
        If shapes disagree, a number is not finite, the factors do not multiply to the projection, or not
        1 <= n_active < b.
    """

    def __init__(
        self,
        mean: np.ndarray,
        projection: np.ndarray,
        n_active: int | None = None,
        *,
        factors: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        self.mean = np.ascontiguousarray(mean, dtype=np.float64)
        self.projection = np.ascontiguousarray(projection, dtype=np.float64)
        if self.projection.ndim != 2 or 0 in self.projection.shape:
            raise ValueError(f"expected a projection of shape (d, n_bits), got {self.projection.shape}")
        self.n_features, self.n_bits = self.projection.shape
        if self.mean.shape != (self.n_features,):
            raise ValueError(f"expected a mean of shape ({self.n_features},), got {self.mean.shape}")
        if not (np.isfinite(self.mean).all() and np.isfinite(self.projection).all()):
            raise ValueError("expected finite numbers in mean and projection, got NaN or infinity")
        if n_active is not None and not 1 <= n_active < self.n_bits:
            raise ValueError(f"expected 1 <= n_active < n_bits = {self.n_bits}, got n_active={n_active}")
        self.n_active = n_active
        self.factors = None if factors is None else _check_factors(self.projection, factors)
        self._plan = _plan(self.projection, factors, per_column=n_active is None)

    @classmethod
    def from_factors(
        cls, mean: np.ndarray, first: np.ndarray, second: np.ndarray, n_active: int | None = None
    ) -> ProjectionEncoder:
        """Build the encoder of ``projection = first @ second``, the same on every machine."""
        first, second = (np.ascontiguousarray(factor, dtype=np.float64) for factor in (first, second))
        return cls(mean, fixed_product(first, second), n_active, factors=(first, second))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.mean, self.projection, self.n_active, self.factors)

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Return packed codes.

        Parameters
        ----------
        vectors : ndarray, shape (m, d)
            Real numbers of any type; all but integers beyond 2**53 and extended precision are taken exactly.

        Returns
        -------
        ndarray of uint8, shape (m, ceil(n_bits / 8))
            Least significant bit first, padding bits zero.

        Raises
        ------
        ValueError
            If the shape is wrong or a row holds NaN, infinity or numbers that overflow float64.
        """
        vectors = checked_rows(vectors, self.n_features)
        packed = np.empty((len(vectors), packed_width(self.n_bits)), np.uint8)
        encode = self._encode_signs if self.n_active is None else self._encode_winners
        for tile, scores in self._tiles(vectors):
            encode(tile, scores, packed[tile.start : tile.start + len(scores)])
        return packed

    def active(self, vectors: np.ndarray) -> np.ndarray:
        """Return where the ones of sparse codes are, int32, shape (m, n_active), ascending."""
        if self.n_active is None:
            raise ValueError("dense codes have no list of active bits; use encode")
        return list_active(self.encode(vectors), self.n_active)

    def _tiles(self, vectors: np.ndarray) -> Iterator[tuple[_Tile, np.ndarray]]:
        """Yield some rows at a time with their fast scores, in buffers that the next ones overwrite."""
        matrices = self._plan.matrices
        height = min(TILE_ROWS if len(matrices) == 1 else _TILE_ROWS_OF_FACTORS, len(vectors))
        buffers = [np.empty((height, len(matrix)), matrix.dtype) for matrix in matrices]
        buffers.append(np.empty((height, self.n_bits), matrices[0].dtype))
        parts = np.empty((len(self._plan.parts), *buffers[1].shape), matrices[0].dtype)
        for start in range(0, len(vectors), max(1, height)):
            tile = self._tile(vectors[start : start + height], start, buffers[0])
            rounded, *outputs = [buffer[: len(tile.vectors)] for buffer in buffers]
            self._product(rounded, outputs, parts[:, : len(rounded)])
            yield tile, outputs[-1]

    def _product(self, rounded: np.ndarray, outputs: list[np.ndarray], parts: np.ndarray) -> None:
        """Multiply the rows with each matrix in turn, with the first of factors in parts."""
        first, *others = self._plan.matrices
        if len(parts):
            for features, part in zip(self._plan.parts, parts, strict=True):
                np.matmul(rounded[:, features], first[features], out=part)
            np.add.reduce(parts, axis=0, out=outputs[0])
        else:
            np.matmul(rounded, first, out=outputs[0])
        for before, matrix, after in zip(outputs, others, outputs[1:], strict=False):
            np.matmul(before, matrix, out=after)

    def _tile(self, vectors: np.ndarray, start: int, rounded: np.ndarray) -> _Tile:
        """Write the rows minus the mean to ``rounded``, extreme rows brought to size."""
        if vectors.dtype not in (np.float32, np.float64):
            vectors = vectors.astype(np.float64)
        vectors = np.require(vectors, vectors.dtype.newbyteorder("="), ["C", "A"])
        squares = centre(vectors, self.mean, rounded[: len(vectors)])
        tile = _Tile(start, vectors, self.mean, squares, np.zeros(len(vectors), np.int32))
        extreme = np.flatnonzero(~((squares >= 1 / _ORDINARY) & (squares <= _ORDINARY)))
        if len(extreme):
            with np.errstate(over="ignore", invalid="ignore"):
                largest = np.abs(tile.centred(extreme)).max(axis=1)
            if not np.isfinite(largest).all():
                row = start + int(extreme[~np.isfinite(largest)][0])
                raise ValueError(
                    f"expected finite vectors, but row {row} holds NaN, infinity or too large a number"
                )
            tile.exponents[extreme] = -np.frexp(largest)[1]
            resized = tile.centred(extreme)[:, : self.n_features]
            rounded[extreme] = resized
            squares[extreme] = np.einsum("ij,ij->i", resized, resized)
        return tile._replace(lengths=np.sqrt(squares))

    def _encode_signs(self, tile: _Tile, scores: np.ndarray, packed: np.ndarray) -> None:
        limits = self._plan.relative_error * self._plan.lengths
        rows, columns = sure_signs(scores, tile.lengths, limits, packed)
        if len(rows):
            vectors, mean, places = tile.centring(rows)
            exact = exact_scores_of(vectors, mean, places, self._plan.columns, columns)
            for bit in range(8):  # one bit of a byte at a time, so that no byte is written twice at once
                mine = columns % 8 == bit
                bytes_ = rows[mine], columns[mine] // 8
                ones = (exact[mine] >= 0).astype(np.uint8) << np.uint8(bit)
                packed[bytes_] = packed[bytes_] & np.uint8(255 - (1 << bit)) | ones

    def _encode_winners(self, tile: _Tile, scores: np.ndarray, packed: np.ndarray) -> None:
        assert self.n_active is not None
        error = self._plan.relative_error * float(self._plan.lengths.max())
        unsure, brackets = sure_winners(scores, tile.lengths, error, self.n_active, packed)
        if len(unsure):
            margins = 2 * error * tile.lengths[unsure]
            bounds = np.column_stack([brackets[:, 0] - margins, brackets[:, 1] + margins])
            centring = tile.centring(unsure)
            decide_winners(scores, unsure, bounds, centring, self._plan.columns, self.n_active, packed)


class _Tile(NamedTuple):
    start: int  # of its rows in the input
    vectors: np.ndarray  # (m, d) as given
    mean: np.ndarray  # (d,)
    lengths: np.ndarray  # (m,) Euclidean lengths after centring and scaling
    exponents: np.ndarray  # (m,) of the powers of two that bring rows to size

    def centring(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return vectors, mean and places: ``vectors[places] - mean`` are these rows, brought to size."""
        if not self.exponents.any():
            return self.vectors, self.mean, rows
        centred = self.centred(rows)
        return centred, np.zeros(centred.shape[1]), np.arange(len(rows))

    def centred(self, rows: np.ndarray) -> np.ndarray:
        """Return some rows minus the mean, brought to size; float64, zero-padded to whole lanes."""
        padded = centred_rows(self.vectors, rows, self.mean)
        exponents = self.exponents[rows]
        return np.ldexp(padded, exponents[:, None]) if exponents.any() else padded


class _Plan(NamedTuple):
    columns: np.ndarray  # (b, width) float64, the scaled projection, one contiguous zero-padded row per bit
    matrices: tuple[np.ndarray, ...]  # factors of the fast product
    parts: tuple[slice, ...]  # features that the first of two factors takes at a time; none: all at once
    lengths: np.ndarray  # (b,) bounds ‖P_j‖ or ‖ |V| |W_j| ‖
    relative_error: float


def _plan(
    projection: np.ndarray, factors: tuple[np.ndarray, np.ndarray] | None, *, per_column: bool
) -> _Plan:
    """Scale the projection by powers of two and prepare the fast product and its error bound."""
    n_features, n_bits = projection.shape
    largest = np.abs(projection).max(axis=0)
    exponents = np.frexp(largest if per_column else np.full(n_bits, largest.max()))[1]
    scaled = np.ldexp(projection, -exponents)
    columns = np.zeros((n_bits, padded_width(n_features)))
    columns[:, :n_features] = scaled.T
    terms = n_features
    matrices: tuple[np.ndarray, ...] = (scaled,)
    lengths = np.linalg.norm(scaled, axis=0)
    parts: tuple[slice, ...] = ()
    if factors is not None and factors[1].shape[0] * (n_features + n_bits) < n_features * n_bits:
        first, second = factors[0], np.ldexp(factors[1], -exponents)
        detour = np.linalg.norm(np.abs(first) @ np.abs(second), axis=0)
        if detour.max() < _WORST_DETOUR * lengths.max():
            matrices, lengths = (first, second), detour
            parts = _parts(n_features)
            terms = parts[0].stop + len(parts) + first.shape[1]
    single = terms <= _FLOAT32_FEATURES
    matrices = tuple(np.ascontiguousarray(m, np.float32 if single else np.float64) for m in matrices)
    roundings = (terms + _SLACK) * (2.0**-24 if single else 2.0**-52)
    return _Plan(columns, matrices, parts, lengths, roundings / (1 - roundings) * (1 + 2.0**-20))


def _parts(n_features: int) -> tuple[slice, ...]:
    """Cut the features into near equal parts, the first of them the largest."""
    n_parts = max(1, round(n_features / _PART_FEATURES))
    width = -(-n_features // n_parts)
    return tuple(slice(i, min(i + width, n_features)) for i in range(0, n_features, width))


def _check_factors(
    projection: np.ndarray, factors: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    first, second = (np.ascontiguousarray(factor, dtype=np.float64) for factor in factors)
    size = np.abs(first) @ np.abs(second)
    if size.shape != projection.shape or not (np.abs(first @ second - projection) <= 1e-12 * size).all():
        raise ValueError("expected factors whose product is the projection, got others")
    return first, second


def _rebuild(
    mean: np.ndarray,
    projection: np.ndarray,
    n_active: int | None,
    factors: tuple[np.ndarray, np.ndarray] | None,
) -> ProjectionEncoder:
    return ProjectionEncoder(mean, projection, n_active, factors=factors)
