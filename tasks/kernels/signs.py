"""Signs as numbers: +1 where a score is at least zero, -1 elsewhere."""

from __future__ import annotations

import numpy as np


def as_signs(scores: np.ndarray) -> np.ndarray:
    """Overwrite finite scores by their signs, ±1, in place, and return them.

    Three passes over the numbers where they are, instead of a mask and a choice: less than half the time.
    What is not a number becomes either of ±1.

    Parameters
    ----------
    scores : ndarray of float32 or float64

    Returns
    -------
    ndarray
        ``scores`` itself.
    """
    scores += 0.0  # of -0 that makes 0, whose sign is +
    return np.copysign(scores.dtype.type(1), scores, out=scores)


def as_signs_reference(scores: np.ndarray) -> np.ndarray:
    """Return the same in a new array."""
    return np.where(scores >= 0, 1.0, -1.0).astype(scores.dtype)
