"""Greedy sparse coding over atoms of any length, and the exchange of single atoms, in 32-bit integers.

Numbers are in units of ``1 / SCALE``.  A score is what an atom that is off would take from half the squared
residual: ``D_j · r - ‖D_j‖² / 2``; atom k on takes ``D_j · D_k`` from it.
"""

from __future__ import annotations

import numpy as np

from ._numba import loops
from .pack import pack_active_reference

SCALE = 1 << 20
LANES = 64  # scores looked through at once: rows are as wide as whole lanes
MOST_ACTIVE = 1000  # atoms of length one: no score leaves 30 bits
BARRED = -(1 << 30)  # added to the scores of atoms that are on, or of none


def padded_width(n_bits: int) -> int:
    """Return the number of bits, rounded up to whole lanes."""
    return -(-n_bits // LANES) * LANES


def quantise(scores: np.ndarray, factors: np.ndarray, errors: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Round ``SCALE * factors[i] * scores[i, j]`` to integers; return the rows that an error could change.

    Parameters
    ----------
    scores : ndarray of float64, shape (m, b), C-contiguous
    factors, errors : ndarray of float64, shape (m,)
        What row i is multiplied with, and how far its products may be off, in units of ``1 / SCALE``.
    out : ndarray of int32, shape (m, width)
        Written over, zero beyond b.  What cannot be scored (NaN, too large) is unsure.

    Returns
    -------
    ndarray of int64
        Ascending.
    """
    out[:, scores.shape[1] :] = 0
    if loops() is None:
        return quantise_reference(scores, factors, errors, out)
    from . import compiled_coding

    unsure = np.empty(len(scores), np.bool_)
    compiled_coding.quantise(scores, factors, errors, SCALE, out, unsure)
    return np.flatnonzero(unsure)


def quantise_reference(
    scores: np.ndarray, factors: np.ndarray, errors: np.ndarray, out: np.ndarray
) -> np.ndarray:
    """Do the same in NumPy."""
    with np.errstate(invalid="ignore", over="ignore"):
        values = SCALE * factors[:, None] * scores
        rounded = np.rint(values)
        unsure = ~(np.abs(values - rounded) < 0.5 - errors[:, None]).all(axis=1)
        unsure |= ~(np.abs(rounded) <= 2 * SCALE).all(axis=1)
    out[:, : scores.shape[1]] = np.where(unsure[:, None], 0, rounded)
    return np.flatnonzero(unsure)


def code_rows(
    scores: np.ndarray, gram: np.ndarray, n_active: int, n_exchanges: int, packed: np.ndarray
) -> None:
    """Switch on the best atom, one after another; then let each give way to a better one.

    Parameters
    ----------
    scores : ndarray of int32, shape (m, width), C-contiguous
        Of no atom on.
    gram : ndarray of int32, shape (b, width), C-contiguous
    n_active : int
        At most `MOST_ACTIVE`.
    n_exchanges : int
        How often all atoms that are on are looked at again, in the order in which they came.
    packed : ndarray of uint8, shape (m, ceil(b / 8))
        Written over.  Among equal scores the smallest index wins.
    """
    if loops() is None:
        code_rows_reference(scores, gram, n_active, n_exchanges, packed)
        return
    from . import compiled_coding

    compiled_coding.code_rows(scores, gram, n_active, n_exchanges, packed)


def code_rows_reference(
    scores: np.ndarray, gram: np.ndarray, n_active: int, n_exchanges: int, packed: np.ndarray
) -> None:
    """Do the same in NumPy, all rows at once."""
    n_bits, rows = len(gram), np.arange(len(scores))
    left, square = scores[:, :n_bits].astype(np.int64), gram[:, :n_bits]
    barred = np.zeros(left.shape, np.int64)
    chosen = np.zeros((len(scores), n_active), np.intp)
    for p in range(n_active):
        chosen[:, p] = (left + barred).argmax(axis=1)
        barred[rows, chosen[:, p]] = BARRED
        left -= square[chosen[:, p]]
    for _ in range(n_exchanges):
        for p in range(n_active):
            left += square[chosen[:, p]]
            barred[rows, chosen[:, p]] = 0
            chosen[:, p] = (left + barred).argmax(axis=1)
            barred[rows, chosen[:, p]] = BARRED
            left -= square[chosen[:, p]]
    packed[...] = pack_active_reference(np.sort(chosen, axis=1), n_bits)
