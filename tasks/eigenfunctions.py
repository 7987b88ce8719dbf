"""Numerical eigenfunctions of one coordinate, from a histogram of it.

With p the shares of the bins and ``w(u, v) = exp(-(u - v)² / 2σ²)`` between their middles, there are two
kinds:

- of the affinity (`affinity_functions`): ``Σ_v w(u, v) p(v) φ(v) = λ φ(u)``, by falling λ. Then
  ``w(u, v) = Σ_j λ_j φ_j(u) φ_j(v)``, with ``Σ_v p φ² = 1`` and ``Σ_j λ_j = 1``. Where coordinates are
  independent, products of these are the eigenfunctions of ``exp(-‖x - y‖² / 2σ²)``, with products of the λ;
- of the smoothed graph Laplacian (`laplacian_functions`; Fergus, Weiss and Torralba, 2009, equation 2):
  ``(D̃ - P W P) g = s P D̂ g``, by rising s, with P the shares after ``smoothing`` was added to each, D̃ the
  row sums of PWP, and D̂ those of PW.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

_NOISE = 1e-10  # of the largest eigenvalue: functions below it are rounding


def affinity_functions(
    counts: np.ndarray, step: float, sigma: float, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading eigenvalues and eigenfunctions of the affinity.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_bins,)
        At least one is not 0.
    step : float
        Width of a bin.
    sigma : float
    limit : int
        How many at most; less where eigenvalues are below 10⁻¹⁰ of the largest.

    Returns
    -------
    values : ndarray of float64, shape (k,)
        Falling, positive, together at most 1.
    functions : ndarray of float64, shape (k, n_bins)
        Also in empty bins: φ(u) = Σ_v w(u, v) p(v) φ(v) / λ.  The first is positive, the largest entry of
        every other.
    """
    w, roots = _affinities(len(counts), step, sigma), np.sqrt(counts / counts.sum())
    values, vectors = scipy.linalg.eigh(roots[:, None] * w * roots, driver="evr", check_finite=False)
    values, vectors = values[::-1][:limit], vectors[:, ::-1][:, :limit]
    kept = values > _NOISE * values[0]
    values, vectors = values[kept], vectors[:, kept]
    return values, _signed((w @ (roots[:, None] * vectors) / values).T)


def laplacian_functions(
    counts: np.ndarray, step: float, sigma: float, smoothing: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues and eigenfunctions of the smoothed graph Laplacian, without the constant one.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_bins,)
    step, sigma : float
    smoothing : float
        Added to the share of every bin, > 0.

    Returns
    -------
    values : ndarray of float64, shape (k,)
        Rising, above 10⁻¹⁰.
    functions : ndarray of float64, shape (k, n_bins)
        The largest entry of each is positive.
    """
    w = _affinities(len(counts), step, sigma)
    p = counts / counts.sum() + smoothing
    p /= p.sum()
    product = p[:, None] * w * p
    scale = 1 / np.sqrt(p * (p @ w))
    laplacian = np.diag(product.sum(axis=1)) - product
    values, vectors = scipy.linalg.eigh(scale[:, None] * laplacian * scale, driver="evr", check_finite=False)
    kept = values > _NOISE
    return values[kept], _signed((scale[:, None] * vectors[:, kept]).T)


def _affinities(n_bins: int, step: float, sigma: float) -> np.ndarray:
    places = np.arange(n_bins) * (step / sigma)
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(-0.5 * np.square(places[:, None] - places)))


def _signed(functions: np.ndarray) -> np.ndarray:
    """Turn functions so that the largest entry of each, the first among equals, is positive."""
    largest = np.abs(functions).argmax(axis=1)
    turned = functions[np.arange(len(functions)), largest] < 0
    return np.where(turned[:, None], -functions, functions)
