"""The proximal step of the ℓ∞ norm, in time O(n), compiled and in NumPy.

By Moreau's decomposition ``prox_{r‖·‖∞}(w) = w - (projection of w on the ℓ1 ball of radius r)``, and that is
``clip(w, -t, t)`` with the t at which ``Σ max(|w_i| - t, 0) = r``.  The loop finds t by Michelot's shrinking
set: ever fewer entries are above a bound that only rises.  The reference sorts.
"""

from __future__ import annotations

import numpy as np

from ._numba import loops


def prox_linf(vector: np.ndarray, radius: float) -> np.ndarray:
    """Return ``argmin_u radius ‖u‖∞ + ½ ‖u - vector‖²``.

    Parameters
    ----------
    vector : ndarray of float64, shape (n,)
    radius : float
        > 0.

    Returns
    -------
    ndarray of float64, shape (n,)
    """
    sizes = np.abs(vector)
    if loops() is None:
        t = threshold_reference(sizes, radius)
    else:
        from . import compiled_secants

        t = compiled_secants.threshold(sizes, float(radius), np.empty_like(sizes))
    return np.clip(vector, -t, t)


def threshold_reference(sizes: np.ndarray, radius: float) -> float:
    """Return t with ``Σ max(sizes - t, 0) = radius`` by sorting; 0 if the sum is not larger."""
    if sizes.sum() <= radius:
        return 0.0
    falling = np.sort(sizes)[::-1]
    candidates = (np.cumsum(falling) - radius) / np.arange(1, len(falling) + 1)
    return float(candidates[np.flatnonzero(falling > candidates)[-1]])
