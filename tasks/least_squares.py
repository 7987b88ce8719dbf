"""Linear least squares from sums: ``min ‖A D - B‖² + ridge ‖D‖²`` given ``AᵀA`` and ``AᵀB`` alone.

The sums are all that one pass over the data has to add up.  Their price is that a Gram matrix has the squared
condition of A: what is below ``CUTOFF`` of the largest eigenvalue counts as zero without a ridge.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

#: eigenvalues of the Gram matrix up to this share of the largest, times its size, count as zero
CUTOFF = 2.0**-50


def solve_gram(gram: np.ndarray, target: np.ndarray, ridge: float = 0.0) -> np.ndarray:
    """Return ``(gram + ridge I)⁻¹ target``, with the pseudo-inverse where ``ridge`` is zero.

    Parameters
    ----------
    gram : ndarray of float64, shape (b, b)
        ``AᵀA``, symmetric.
    target : ndarray of float64, shape (b, r)
        ``AᵀB``.
    ridge : float
        At least 0.  With 0 the solution of least length is returned; eigenvalues of at most ``b · CUTOFF``
        times the largest count as zero (singular values of A up to ``(b · CUTOFF)^½`` times the largest).

    Returns
    -------
    ndarray of float64, shape (b, r)

    Raises
    ------
    ValueError
        If a sum is not finite, or ``ridge`` is negative.
    """
    if not (np.isfinite(gram).all() and np.isfinite(target).all()):
        raise ValueError("expected finite sums for least squares, got NaN or infinity")
    if not (np.isfinite(ridge) and ridge >= 0):
        raise ValueError(f"expected ridge >= 0, got {ridge!r}")
    if ridge > 0:
        regular = np.array(gram)
        regular.flat[:: len(gram) + 1] += ridge
        try:
            factor = scipy.linalg.cho_factor(regular, lower=True, overwrite_a=True, check_finite=False)
            return np.ascontiguousarray(scipy.linalg.cho_solve(factor, target, check_finite=False))
        except np.linalg.LinAlgError:  # a ridge lost in the rounding of a huge Gram matrix
            pass
    values, vectors = scipy.linalg.eigh(gram, driver="evr", check_finite=False)
    kept = values > len(gram) * CUTOFF * max(values[-1], 0.0)
    vectors = vectors[:, kept]
    return np.ascontiguousarray((vectors / (values[kept] + ridge)) @ (vectors.T @ target))
