"""Rows as certified screening sees them: few coordinates that hold most of the length, and what is left.

In an orthonormal basis whose first directions carry most of the length, the inner product of the first k
coordinates is a cheap matrix product, and that of the rest is at most the product of what is left of the
two lengths (Cauchy-Schwarz).  `screening` and `residuals` compare pairs of such rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .hamming import as_words

_SQUARES = 2  # columns of the factors beside coordinates; products are fastest in whole eights
UNIT_ROUNDOFF = 2.0**-24
_ROWS_AT_ONCE = 2048
_LONGEST = 2.0**50  # in units of the basis: squares stay within float32


@dataclass(frozen=True)
class Basis:
    """Orthonormal directions, the longest first, and where screening looks again.

    Attributes
    ----------
    shift : ndarray of float64, shape (d,)
        Subtracted from every row.
    components : ndarray of float64, shape (d, k)
    levels : ndarray of int64, shape (l,)
        Ascending numbers of coordinates, the last one k.
    unit : float
        A power of two near the rows' lengths; screening works in multiples of it.
    """

    shift: np.ndarray
    components: np.ndarray
    levels: np.ndarray
    unit: float


@dataclass(frozen=True)
class ScreenedRows:
    """Rows as screening sees them, in multiples of the basis's unit.

    Attributes
    ----------
    coordinates : ndarray of float32, shape (m, k)
    squares : ndarray of float64, shape (m,)
        Squared lengths.
    tails : ndarray of float32, shape (l, m)
        √2 times what is left of the length after each level, rounded up.
    words : ndarray of uint32 or uint64, shape (w, m)
        The codes.
    """

    coordinates: np.ndarray
    squares: np.ndarray
    tails: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.squares)


def make_basis(sample: np.ndarray, first: float = 0.15, last: float = 0.05) -> Basis:
    """Return the principal directions of some rows.

    Parameters
    ----------
    sample : ndarray of float, shape (m, d)
    first, last : float
        The share of the squared length that may be left after the first and after the last level.

    Notes
    -----
    Results of screening do not depend on the basis, only its speed does.
    """
    shift = sample.mean(axis=0, dtype=np.float64)
    centred = sample - shift
    unit = _unit(centred)
    centred /= unit
    if len(sample) >= sample.shape[1]:
        values, components = np.linalg.eigh(centred.T @ centred)
        values, components = np.maximum(values[::-1], 0.0), components[:, ::-1]
    else:
        _, values, rows = np.linalg.svd(centred, full_matrices=False)
        values, components = values**2, rows.T
    return _cut(shift, components, values, values.sum(), unit, first, last)


def given_basis(
    sample: np.ndarray, shift: np.ndarray, components: np.ndarray, first: float = 0.15, last: float = 0.05
) -> Basis:
    """Return orthonormal directions that are known, cut by how some rows spread along them.

    Parameters
    ----------
    sample : ndarray of float, shape (m, d)
    shift : ndarray of float64, shape (d,)
    components : ndarray of float64, shape (d, k)
        The direction of most variance first.
    first, last : float
        As in `make_basis`.
    """
    centred = sample - shift
    unit = _unit(centred)
    centred /= unit
    values = np.square(centred @ components).sum(axis=0)
    return _cut(shift, components, values, np.square(centred).sum(), unit, first, last)


def screened(vectors: np.ndarray, packed: np.ndarray, basis: Basis) -> ScreenedRows:
    """Return rows and their codes as screening needs them.

    Parameters
    ----------
    vectors : ndarray of float, shape (m, d)
    packed : ndarray of uint8, shape (m, n_bytes)
    basis : Basis

    Raises
    ------
    ValueError
        If a row is longer than 10¹⁵ times those that the basis was made from, or not finite.
    """
    m, k = len(vectors), basis.components.shape[1]
    coordinates, squares = np.empty((m, k), np.float32), np.empty(m)
    tails = np.empty((len(basis.levels), m), np.float32)
    error = 4 * UNIT_ROUNDOFF
    components, starts = basis.components / basis.unit, np.append(0, basis.levels[:-1])
    for at in range(0, m, _ROWS_AT_ONCE):
        part = slice(at, at + _ROWS_AT_ONCE)
        with np.errstate(over="ignore", invalid="ignore"):
            centred = vectors[part] - basis.shift
            squares[part] = np.einsum("ij,ij->i", centred, centred) / basis.unit / basis.unit
        if not (squares[part] < _LONGEST**2).all():
            raise ValueError(
                "expected finite rows of comparable lengths, got one that is longer than 10^15 times others; "
                "remove it or rescale the vectors"
            )
        coordinates[part] = centred @ components
        taken = np.add.reduceat(coordinates[part].astype(np.float64) ** 2, starts, axis=1).cumsum(axis=1).T
        left = np.maximum(squares[part] - taken, 0.0) + error * squares[part]
        tails[:, part] = np.nextafter(np.sqrt(2 * left).astype(np.float32), np.float32(np.inf))
    return ScreenedRows(coordinates, squares, tails, word_rows(packed))


def hamming_matrix(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the Hamming distances of all pairs of codes, words of shapes (w, m) and (w, n), as int64."""
    total = np.zeros((left.shape[1], right.shape[1]), np.int64)
    for mine, other in zip(left, right, strict=True):
        total += np.bitwise_count(mine[:, None] ^ other)
    return total


def hamming_pairs(left: np.ndarray, right: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the Hamming distances of the listed pairs, positions of shape (p, 2), as int64."""
    differing = np.bitwise_count(left[:, pairs[:, 0]] ^ right[:, pairs[:, 1]])
    return differing.sum(axis=0, dtype=np.int64)


def word_rows(packed: np.ndarray) -> np.ndarray:
    """Return codes word by word, in the narrowest words that the loops are fast with."""
    if packed.shape[1] > 4:
        return np.ascontiguousarray(as_words(packed).T)
    padded = np.zeros((len(packed), 4), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint32).reshape(1, -1)


def factors(rows: ScreenedRows, k: int, scale: float) -> np.ndarray:
    """Return [scale · coordinates, squared length, 1], whose products are squared distances of heads."""
    out = np.empty((len(rows), k + 2), np.float32)
    np.multiply(rows.coordinates[:, :k], np.float32(scale), out=out[:, :k])
    out[:, k] = rows.squares
    out[:, k + 1] = 1
    return out


def _unit(centred: np.ndarray) -> float:
    longest = float(np.sqrt(np.einsum("ij,ij->i", centred, centred).max(initial=0.0)))
    return float(2.0 ** np.ceil(np.log2(longest))) if longest > 0 else 1.0


def _cut(
    shift: np.ndarray, components: np.ndarray, values: np.ndarray, total: float, unit: float, first: float,
    last: float,
) -> Basis:  # fmt: skip
    """Return as many of the components, with squared lengths along them, as leave the given shares."""
    left = 1 - np.cumsum(values) / max(float(total), np.finfo(float).tiny)
    left[-1] = min(left[-1], first, last)  # if none leaves so little, all are taken
    k = min(-(-(int(np.argmax(left <= last)) + 1) // 32) * 32, components.shape[1])
    head = min(-(-(int(np.argmax(left <= first)) + 1 + _SQUARES) // 8) * 8 - _SQUARES, k)
    steps = [head, *(level for level in range(32, k, 32) if head < level < k)]
    if k > head:
        steps.append(k)
    return Basis(shift, np.ascontiguousarray(components[:, :k]), np.array(steps, np.int64), unit)
