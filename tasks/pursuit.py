"""From vectors to sparse codes by greedy pursuit over a dictionary of unit atoms.

With z the row, seen from the mean and in its principal components if there are any, over its length, and
atoms ``E_j`` of length one, the code is the greedy minimiser of ::

    ‖ z - c Σ_j h_j E_j ‖²,   h in {0, 1}^b with n_active ones,   c = beta / n_active

up to a term that is the same for all bits: scores ``y = E z`` begin as they are for winner-take-all; each
bit that is switched on, the best of those left, takes ``c E_j·E_k`` from every score ``y_k``.  ``beta=0`` is
winner-take-all.  The greedy choice looks at scores alone and leaves ``c² / 2`` out, which no bit can change.
A penalty per bit may be subtracted from the first scores, so that bits are used more evenly.

A code is a function of its row alone.  Scores are rounded to 1 / 8192 and the pursuit runs on integers; the
float64 products that they are rounded from differ between batches by less than ``error`` below, and a row
with any score that near to a half is computed again in the fixed order of `kernels.exact`::

    error = 8 u (d + r + 64) (1 + ‖V‖_F ‖x‖ / ‖V'x‖)     u = 2⁻⁵³, V the components

(each of the two products is off by at most ``γ ‖x‖ ‖V_k‖`` per component and ``γ ‖z‖`` per score, on both
sides; eight covers these, the length, and the rounding of the atoms' own lengths).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .kernels.exact import exact_scores, fixed_product, padded_width
from .kernels.pack import list_active, pack_bits, packed_width
from .kernels.pursuit import SCALE, TAKEN, pursue, quantise
from .kernels.pursuit import padded_width as lanes_of
from .rows import checked_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BETA = 2.8  # with more, scores could leave the range of 16 bits
MOST_PENALTY = 0.19  # and with this


def usual_beta(n_active: int) -> float:
    """Return the beta that by itself suits codes of so many ones, in labels and in neighbours.

    It grows with the number of ones, nearly as √n_active, which is how the length of a sum of directions
    that have little to do with each other grows.  Two decimals, so that it is the same number everywhere.
    """
    return round(min((n_active / 32) ** 0.45, 1.8), 2)


_TILE_ROWS = 512
_ORDINARY = 2.0**400  # lengths within [1/_ORDINARY, _ORDINARY] need no scaling


class PursuitEncoder:
    """Encode rows by greedy pursuit.

    Parameters
    ----------
    mean : ndarray of float64, shape (d,)
        Subtracted from every row.
    components : ndarray of float64, shape (d, r), or None
    atoms : ndarray of float64, shape (b, r)
        Of length one, or zero.
    n_active : int
        Ones per code, 1 <= n_active < b.
    beta : float
        How much of what it explains a bit takes from the others, 0 to 2.8.
    n_rounds : int, optional
        In how many rounds bits are switched on; within a round nothing is taken away.  None: one by one.
    penalty : ndarray of float64, shape (b,), optional
        Subtracted from the scores before the first bit is chosen, at most `MOST_PENALTY` either way.

    Raises
    ------
    ValueError
        If shapes disagree, a number is not finite, or atoms are longer than one.
    """

    # the whole numbers that scores are rounded to, and the kernel that does it
    _scale: ClassVar[int] = SCALE
    _whole: ClassVar[type[np.signedinteger]] = np.int16
    _lanes_of = staticmethod(lanes_of)
    _quantise = staticmethod(quantise)

    def __init__(
        self,
        mean: np.ndarray,
        components: np.ndarray | None,
        atoms: np.ndarray,
        n_active: int,
        beta: float,
        n_rounds: int | None = None,
        penalty: np.ndarray | None = None,
    ) -> None:
        self.mean = np.ascontiguousarray(mean, np.float64)
        self.components = None if components is None else np.ascontiguousarray(components, np.float64)
        self.atoms = np.ascontiguousarray(atoms, np.float64)
        self.n_active: int | None = n_active
        self._n_active, self.beta, self.n_rounds = n_active, beta, n_rounds
        self.n_features, self.n_bits = len(self.mean), len(self.atoms)
        self.penalty = np.zeros(self.n_bits) if penalty is None else np.array(penalty, np.float64)
        self._check()
        width = self.atoms.shape[1]
        self._atoms = np.zeros((self.n_bits, padded_width(width)))
        self._atoms[:, :width] = self.atoms
        self._turned = np.zeros((width, padded_width(self.n_features)))
        if self.components is not None:
            self._turned[:, : self.n_features] = self.components.T
        self._inhibition = _inhibition(self.atoms, beta, n_active)
        self._penalty = np.rint(SCALE * self.penalty).astype(np.int16)
        self._picks = _picks(n_active, n_rounds)

    def __reduce__(self) -> tuple[object, ...]:
        parts = (self.mean, self.components, self.atoms, self._n_active, self.beta, self.n_rounds)
        return type(self), (*parts, self.penalty)

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Return packed codes.

        Parameters
        ----------
        vectors : ndarray, shape (m, d)
            Real numbers of any type.

        Returns
        -------
        ndarray of uint8, shape (m, ceil(n_bits / 8))
            Least significant bit first, padding bits zero.  A row without a direction, such as the mean, has
            its ones in the first places, as with winner-take-all.

        Raises
        ------
        ValueError
            If the shape is wrong or a row holds NaN, infinity or numbers that overflow float64.
        """
        vectors = checked_rows(vectors, self.n_features)
        packed = np.empty((len(vectors), packed_width(self.n_bits)), np.uint8)
        scores = np.empty((min(_TILE_ROWS, len(vectors)), self._lanes_of(self.n_bits)), self._whole)
        for start, rows in self._tiles(vectors):
            mine, codes = scores[: len(rows)], packed[start : start + len(rows)]
            directed = self._score(rows, mine)
            self._choose(mine, codes)
            codes[~directed] = self._without_direction()
        return packed

    def _choose(self, scores: np.ndarray, packed: np.ndarray) -> None:
        """Turn the rounded scores of some rows into codes."""
        scores[:, : self.n_bits] -= self._penalty
        pursue(scores, self._inhibition, self._picks, packed)

    def active(self, vectors: np.ndarray) -> np.ndarray:
        """Return where the ones of the codes are, int32, shape (m, n_active), ascending."""
        return list_active(self.encode(vectors), self._n_active)

    def _tiles(self, vectors: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield some rows at a time minus the mean, in float64; extreme ones brought to ordinary size."""
        for start in range(0, len(vectors), _TILE_ROWS):
            with np.errstate(over="ignore", invalid="ignore"):
                rows = np.subtract(vectors[start : start + _TILE_ROWS], self.mean, dtype=np.float64)
                largest = np.abs(rows).max(axis=1)
            if not np.isfinite(largest).all():
                row = start + int(np.flatnonzero(~np.isfinite(largest))[0])
                raise ValueError(
                    f"expected finite vectors, but row {row} holds NaN, infinity or too large a number"
                )
            extreme = np.flatnonzero((largest > _ORDINARY) | ((largest < 1 / _ORDINARY) & (largest > 0)))
            rows[extreme] = np.ldexp(rows[extreme], -np.frexp(largest[extreme])[1][:, None])
            yield start, rows

    def _score(self, rows: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write the rounded scores of some rows; tell which rows have a direction."""
        inner = rows if self.components is None else rows @ self.components
        length = np.sqrt(np.einsum("ij,ij->i", inner, inner))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            detour = 1.0
            if self.components is not None:
                whole = np.sqrt(np.einsum("ij,ij->i", rows, rows))
                detour = 1 + np.linalg.norm(self.components) * whole / length
            terms = 8 * self._scale * (self.n_features + inner.shape[1] + 64)
            errors = np.broadcast_to(2.0**-53 * terms * detour, length.shape)
            unsure = self._quantise(inner @ self.atoms.T, 1 / length, np.ascontiguousarray(errors), out)
        directed = np.ones(len(rows), np.bool_)
        if len(unsure):
            exact, directed[unsure] = self._exact(rows[unsure])
            out[unsure, : self.n_bits] = np.rint(self._scale * exact)
        return directed

    def _exact(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of some rows, all products in fixed order, and whether they have a direction."""
        inner = self._padded(rows)
        if self.components is not None:
            inner = self._padded(_all_scores(inner, self._turned))
        largest = np.abs(inner).max(axis=1)
        inner = np.ldexp(inner, -np.frexp(largest)[1][:, None])
        every = np.arange(len(rows))
        length = np.sqrt(exact_scores(inner, inner, every, every))
        scores = _all_scores(inner, self._atoms)
        directed = length > 0
        return np.divide(
            scores, length[:, None], out=np.zeros_like(scores), where=directed[:, None]
        ), directed

    def _without_direction(self) -> np.ndarray:
        return pack_bits(np.arange(self.n_bits) < self._n_active)

    @staticmethod
    def _padded(rows: np.ndarray) -> np.ndarray:
        padded = np.zeros((len(rows), padded_width(rows.shape[1])))
        padded[:, : rows.shape[1]] = rows
        return padded

    def _check(self) -> None:
        width = self.n_features if self.components is None else self.components.shape[-1]
        shapes = self.mean.shape, None if self.components is None else self.components.shape, self.atoms.shape
        if shapes[1] not in (None, (self.n_features, width)) or shapes[2] != (self.n_bits, width):
            raise ValueError(f"mean, components and atoms do not fit together: their shapes are {shapes}")
        parts = (
            (self.mean, self.atoms) if self.components is None else (self.mean, self.components, self.atoms)
        )
        if not all(np.isfinite(part).all() for part in parts):
            raise ValueError("expected finite numbers in mean, components and atoms, got NaN or infinity")
        if (np.linalg.norm(self.atoms, axis=1) > 1 + 1e-9).any():
            raise ValueError("expected atoms of length one or zero, got longer ones")
        if not 1 <= self._n_active < self.n_bits:
            raise ValueError(f"expected 1 <= n_active < n_bits = {self.n_bits}, got {self._n_active}")
        if self.penalty.shape != (self.n_bits,) or not (np.abs(self.penalty) <= MOST_PENALTY).all():
            raise ValueError(f"expected a penalty for each bit, at most {MOST_PENALTY} either way")
        if not 0 <= self.beta <= MOST_BETA:
            raise ValueError(f"expected beta in [0, {MOST_BETA}], got {self.beta}")


def _inhibition(atoms: np.ndarray, beta: float, n_active: int) -> np.ndarray:
    """Return ``beta / n_active`` of the atoms' dots in units of 1 / SCALE, int16, as wide as whole lanes.

    Thousands of ones, each rounded up, could still leave 16 bits together; what they may take is bounded.
    """
    out = np.zeros((len(atoms), lanes_of(len(atoms))), np.int16)
    if not beta:
        return out
    dots = fixed_product(atoms, np.ascontiguousarray(atoms.T))
    most = (-TAKEN - 1 - SCALE - round(SCALE * MOST_PENALTY)) // n_active
    out[:, : len(atoms)] = np.clip(np.rint(SCALE * (beta / n_active) * dots), -most, most)
    return out


def _picks(n_active: int, n_rounds: int | None) -> np.ndarray:
    rounds = n_active if n_rounds is None else min(n_rounds, n_active)
    return np.array([len(part) for part in np.array_split(np.arange(n_active), rounds)], np.int64)


def _all_scores(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the dots of all padded rows with all padded columns, in fixed order."""
    pairs = np.meshgrid(np.arange(len(rows)), np.arange(len(columns)), indexing="ij")
    return exact_scores(rows, columns, pairs[0].ravel(), pairs[1].ravel()).reshape(len(rows), len(columns))
