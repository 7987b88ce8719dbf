"""Greedy assignment with explaining-away: the best bit takes its share from all scores, then the next one.

Everything is done in 16-bit integers, so that a code is the same on every machine and in every order of
computation.  Scores are dots of unit vectors in units of ``1 / SCALE``; what a bit takes from the others is
``inhibition``, in the same units.
"""

from __future__ import annotations

import numpy as np

from ._numba import loops
from .pack import pack_active_reference, packed_width

SCALE = 8192  # scores of [-4, 4) fit
LANES = 128  # scores looked through at once: rows are as wide as whole lanes
TAKEN = -32768  # the score of a bit that is on, or of none


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
    out : ndarray of int16, shape (m, width)
        Written over; beyond b it becomes `TAKEN`.  What cannot be scored (NaN, too large) is unsure.

    Returns
    -------
    ndarray of int64
        Ascending.
    """
    out[:, scores.shape[1] :] = TAKEN
    if loops() is None:
        return quantise_reference(scores, factors, errors, out)
    from . import compiled_pursuit

    unsure = np.empty(len(scores), np.bool_)
    compiled_pursuit.quantise(scores, factors, errors, SCALE, out, unsure)
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


def pursue(scores: np.ndarray, inhibition: np.ndarray, picks: np.ndarray, packed: np.ndarray) -> None:
    """Switch on one bit after another, ``picks[r]`` of them before round r takes their shares away.

    Parameters
    ----------
    scores : ndarray of int16, shape (m, width), C-contiguous
        `TAKEN` beyond the bits that there are.
    inhibition : ndarray of int16, shape (b, width), C-contiguous
        What bit j takes from each score when it is on.
    picks : ndarray of int64, shape (rounds,)
    packed : ndarray of uint8, shape (m, ceil(b / 8))
        Written over.  Among equal scores the smallest index wins.
    """
    if loops() is None:
        pursue_reference(scores, inhibition, picks, packed)
        return
    from . import compiled_pursuit

    compiled_pursuit.pursue(scores, inhibition, picks, packed)


def pursue_reference(
    scores: np.ndarray, inhibition: np.ndarray, picks: np.ndarray, packed: np.ndarray
) -> None:
    """Do the same in NumPy, all rows at once."""
    n_bits = len(inhibition)
    left = scores[:, :n_bits].astype(np.int64)
    taken = np.zeros(left.shape, np.bool_)
    rows, chosen = np.arange(len(left)), []
    for n in picks:
        now = []
        for _ in range(n):
            now.append(np.where(taken, TAKEN, left).argmax(axis=1))
            taken[rows, now[-1]] = True
        for best in now:
            left -= inhibition[best, :n_bits]
        chosen += now
    assert packed.shape[1] == packed_width(n_bits)
    packed[...] = pack_active_reference(np.sort(np.stack(chosen, axis=1), axis=1), n_bits)
