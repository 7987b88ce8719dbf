"""Keeping codes comparable while the directions behind them are still being learned.

Directions are eigenvectors of a sketch B (see `sketch`) of n rows: V (m, k), with eigenvalues λ, the Δ of its
certificate, and more of both beyond the k that are used. As rows come in, single eigenvectors turn within
the space that they span, and codes with them, although that space hardly moves. So a code's projection P is
not V but the basis of V's space that is nearest to the P before,

    P' = V polar(Vᵀ P)          (orthogonal Procrustes),

with as many directions as bits, or some more, among which P' then may stay. What is left to change is told
by the sketch alone, as a share of bits that flip.
"""

from __future__ import annotations

import numpy as np

from .procrustes import orthogonal_factor


def aligned(vectors: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return the k orthonormal vectors in the span of ``vectors`` that are nearest to those before.

    Parameters
    ----------
    vectors : ndarray of float64, shape (m, q), q >= k
    before : ndarray of float64, shape (m, k)
        Both with orthonormal columns.
    """
    return np.ascontiguousarray(vectors @ orthogonal_factor(vectors.T @ before))


def predicted_flips(values: np.ndarray, n_bits: int, n: float, later: float = np.inf) -> float:
    """Return the share of bits that will flip between n rows and ``later`` ones of the same distribution.

    Parameters
    ----------
    values : ndarray of float64, shape (r,), r >= n_bits
        Eigenvalues, falling; with half the certificate added, ``λ_b = s_b² + Δ / 2``.
    n_bits : int
    n, later : float
        Numbers of rows.

    Notes
    -----
    To first order, for Gaussian rows, direction a mixes with those beyond the k in use (Procrustes undoes
    what it mixes with the others)::

        flips_a = arctan √((1/n - 1/N) Σ_{b > k} λ_b² / (λ_a - λ_b)²) / π

    Directions that the sketch does not hold are left out, and drift is none of it.
    """
    kept, beyond = values[:n_bits, None], values[None, n_bits:]
    if not beyond.size or not kept.size:
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        mixing = np.where(beyond > 0, np.square(beyond / (kept - beyond)), 0.0).sum(axis=1)
    angles = np.sqrt(np.minimum(mixing * max(1 / n - 1 / later, 0.0), 1.0))
    return float(np.mean(np.arctan(angles)) / np.pi)


def flips_between(sketch: np.ndarray, certificate: float, old: np.ndarray, new: np.ndarray) -> float:
    """Return the share of bits in which two projections of the rows seen disagree, from their sketch.

    Parameters
    ----------
    sketch : ndarray, shape (l, m)
    certificate : float
    old, new : ndarray of float64, shape (m, k)

    Notes
    -----
    With ``G = BᵀB + Δ/2 I`` and ρ_j the correlation ``pᵀGq / √(pᵀGp · qᵀGq)`` of the two scores of bit j,
    they differ in sign for a share ``arccos(ρ_j) / π`` of Gaussian rows.
    """
    a, b, half = sketch @ old, sketch @ new, certificate / 2

    def inner(p: np.ndarray, q: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.sum(p * q, axis=0) + half * np.sum(x * y, axis=0)

    lengths = np.sqrt(inner(a, a, old, old) * inner(b, b, new, new))
    cosines = np.divide(inner(a, b, old, new), lengths, out=np.ones(len(lengths)), where=lengths > 0)
    return float(np.mean(np.arccos(np.clip(cosines, -1, 1))) / np.pi)


def mixing_index(sketch: np.ndarray, values: np.ndarray, basis: np.ndarray) -> float:
    """Return how much a basis of the leading eigenvectors' space mixes them.

    ``Σ_j ‖B p_j‖ / Σ_j √λ_j`` is 1 for the eigenvectors in any order and grows as they are mixed. Of vectors
    that are not in their space it says nothing: what they lack in energy makes up for what they mix.
    """
    best = np.sqrt(values[: basis.shape[1]]).sum()
    return float(np.linalg.norm(sketch @ basis, axis=0).sum() / best) if best > 0 else 1.0


def energy_share(sketch: np.ndarray, values: np.ndarray, projection: np.ndarray) -> float:
    """Return ``Σ_j ‖B p_j‖² / Σ_j λ_j``: 1 for any basis of the leading eigenvectors' space, less outside."""
    best = values[: projection.shape[1]].sum()
    return float(np.square(sketch @ projection).sum() / best) if best > 0 else 1.0
