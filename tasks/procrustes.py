"""The orthogonal Procrustes problem: the matrix with orthonormal columns (or rows) nearest to M.

For ``M = U S Vᵀ`` it is the polar factor ``U Vᵀ``; it also maximises ``tr(Wᵀ M)``, and the maximum is
the sum of the singular values. The quick way is through the Gram matrix, ``W = M (Mᵀ M)^(-1/2)``, which
squares M's condition; in coordinates in which M's columns fall in size (principal components of the
data) the Gram matrix is graded and its eigenvectors keep their accuracy. The result is checked, and
where it is not orthonormal to 1e-9 the SVD decides.

The check of a large W does not form ``R = Wᵀ W - I`` but ``R s`` for 32 vectors s of random signs: if
an entry of a row of R is too large, so is that row's product with at least every second s, as flipping
the entry's sign in s moves it by twice the entry. So it goes unnoticed once in 2³² times.
"""

from __future__ import annotations

import functools

import numpy as np
import scipy.linalg

from .random import stream

_ORTHONORMAL = 1e-9
_PROBED = 128  # up to here the whole residual is cheap
_N_PROBES = 32
_ROUNDING = 2.0**-50
_SMALL = 400  # up to here divide and conquer is both quick and accurate enough


def polar(matrix: np.ndarray, basis: np.ndarray | None = None) -> np.ndarray:
    """Return the polar factor ``U Vᵀ``.

    Parameters
    ----------
    matrix : ndarray of float64, shape (b, r)
    basis : ndarray of float64, shape (r, r), optional
        Orthogonal; the columns of ``matrix @ basis`` are worked on in place of those of ``matrix``.
        Principal components of the data make ill-conditioned problems accurate. Only for b >= r.

    Returns
    -------
    ndarray of float64, shape (b, r)
        Orthonormal columns if b >= r, else orthonormal rows, to 1e-9 or better.  If ``matrix`` is rank
        deficient any completion on its null space is a nearest matrix; LAPACK's singular vectors choose one.

    Raises
    ------
    ValueError
        If ``matrix`` is not finite.
    """
    if not np.isfinite(matrix).all():
        raise ValueError("expected a finite matrix for the Procrustes step, got NaN or infinity")
    if matrix.shape[0] < matrix.shape[1]:
        return np.ascontiguousarray(polar(matrix.T).T)
    scale = np.abs(matrix).max(initial=0.0)
    if scale == 0:
        return np.eye(*matrix.shape)
    scaled = matrix / scale if basis is None else (matrix / scale) @ basis
    factor = _by_gram(scaled)
    if factor is None:
        factor = orthogonal_factor(scaled)
    return factor if basis is None else np.ascontiguousarray(factor @ basis.T)


def orthogonal_factor(matrix: np.ndarray) -> np.ndarray:
    """Return the polar factor by a full SVD: slower than `polar`, orthonormal to rounding."""
    left, _, right = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
    return np.ascontiguousarray(left @ right)


def random_orthonormal(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Draw a uniformly random matrix with orthonormal columns (rows >= columns) or rows.

    It is the Q of the QR factorisation of a normal matrix with the signs of R's diagonal (Mezzadri, 2007).
    """
    if rows < columns:
        return np.ascontiguousarray(random_orthonormal(rng, columns, rows).T)
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    return np.ascontiguousarray(q * np.where(np.diagonal(r) < 0, -1.0, 1.0))


def _by_gram(matrix: np.ndarray) -> np.ndarray | None:
    """Try ``M (MᵀM)^(-1/2)``; None if the outcome is not orthonormal."""
    gram = matrix.T @ matrix
    driver = "evd" if len(gram) <= _SMALL else "evr"
    values, vectors = scipy.linalg.eigh(gram, driver=driver, check_finite=False, overwrite_a=True)
    if not values[0] > 0:
        return None
    half = vectors * values**-0.25
    factor = matrix @ (half @ half.T)
    well = len(gram) * _ROUNDING * values[-1] <= _ORTHONORMAL * values[0]  # the eigenvectors' backward error
    return factor if well or _residual(factor) <= _ORTHONORMAL else None


def _residual(factor: np.ndarray) -> float:
    """Return the largest entry of ``WᵀW - I``, or, of a large W, a bound that no entry is likely to pass."""
    width = factor.shape[1]
    probes = np.eye(width) if width <= _PROBED else _signs(width)
    return float(np.abs(factor.T @ (factor @ probes if width > _PROBED else factor) - probes).max())


@functools.lru_cache(maxsize=4)
def _signs(width: int) -> np.ndarray:
    return np.asarray(stream(0, "procrustes.probes").choice([-1.0, 1.0], (width, _N_PROBES)))
