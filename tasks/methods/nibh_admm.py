"""The paper's solver of near-isometric hashing: alternating directions on ``‖u‖∞`` with ``u = λ v(W) - c``.

Over listed secants (i, j), with soft codes ``s = 1 / (1 + exp(-slope · W x))`` and ``v = ‖s_i - s_j‖²``,
the scaled augmented Lagrangian is ``‖u‖∞ + ρ/2 ‖u - λ v + c + y‖²``.  One turn::

    W   lowers ½ ‖λ v(W) - (u + c + y)‖² by accelerated gradient steps
    u = prox_{‖·‖∞ / ρ}(λ v - c - y)
    λ = max(0, ⟨v, u + c + y⟩ / ⟨v, v⟩)
    y = y + η (u - λ v + c)

The paper prints ``-y`` and the squared distance in the step of W alone: both contradict its other three
steps.  The prox removes a mass of 1/ρ from u whatever the number of secants, so ρ is 50 over that number.
After each step of W its columns are brought to projections of root mean square 1, which changes no sign.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..kernels.linf import prox_linf
from ..kernels.secants import pull, squares

STIFFNESS = 50.0  # ρ times the number of secants
_N_GRADIENTS = 5
_MOST_HALVINGS = 40


@dataclass(frozen=True)
class Secants:
    """Pairs of points and their distances.

    Attributes
    ----------
    rows : ndarray of float64, shape (n, r)
    first, second : ndarray of int64, shape (pairs,)
    distances : ndarray of float64, shape (pairs,)
    """

    rows: np.ndarray
    first: np.ndarray
    second: np.ndarray
    distances: np.ndarray

    def soft(self, weights: np.ndarray, slope: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the soft codes, shape (n, b), and the secants' squared lengths between them."""
        codes = 0.5 + 0.5 * np.tanh(slope / 2 * (self.rows @ weights))
        return codes, squares(codes, self.first, self.second)

    def gradient(self, codes: np.ndarray, slope: float, forces: np.ndarray) -> np.ndarray:
        """Return the gradient in the weights of ``Σ forces · v``, shape (r, b)."""
        pulled = pull(codes, self.first, self.second, forces)
        return np.asarray(self.rows.T @ (pulled * (slope * codes * (1 - codes))))


@dataclass(frozen=True)
class Iterate:
    """Everything that a turn changes; ``curvature`` is the inverse of the last gradient step's length."""

    weights: np.ndarray  # (r, b)
    residual: np.ndarray  # u, (pairs,)
    multipliers: np.ndarray  # y, (pairs,)
    scale: float  # λ
    curvature: float = 1.0


def begin(secants: Secants, weights: np.ndarray, slope: float) -> Iterate:
    """Return the first iterate: the given weights, u and y zero, λ by least squares."""
    weights = level(weights, secants.rows)
    _, v = secants.soft(weights, slope)
    zero = np.zeros(len(v))
    return Iterate(weights, zero, zero, least_squares_scale(v, secants.distances, 1.0))


def turn(
    secants: Secants, now: Iterate, slope: float, *, eta: float = 1.0, fix_scale: bool = False
) -> Iterate:
    """Make one turn of the four steps."""
    c, rho = secants.distances, STIFFNESS / max(1, len(secants.distances))
    moved = _lower(secants, now, now.residual + c + now.multipliers, slope)
    weights = level(moved.weights, secants.rows)
    _, v = secants.soft(weights, slope)
    residual = prox_linf(now.scale * v - c - now.multipliers, 1 / rho)
    scale = now.scale if fix_scale else least_squares_scale(v, residual + c + now.multipliers, now.scale)
    multipliers = now.multipliers + eta * (residual - scale * v + c)
    return Iterate(weights, residual, multipliers, scale, moved.curvature)


def least_squares_scale(v: np.ndarray, target: np.ndarray, otherwise: float) -> float:
    """Return ``argmin_{λ >= 0} ‖λ v - target‖``, kept above zero; ``otherwise`` where all v are zero."""
    square = float(v @ v)
    return max(1e-9, float(v @ target) / square) if square > 0 else otherwise


def level(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the weights with projections of root mean square 1; columns without projection as they are."""
    projections = rows.astype(np.float64, copy=False) @ weights
    sizes = np.sqrt(np.einsum("ij,ij->j", projections, projections) / max(1, len(rows)))
    return np.ascontiguousarray(weights / np.where(sizes > 1e-12, sizes, 1.0))


def _lower(secants: Secants, now: Iterate, target: np.ndarray, slope: float) -> Iterate:
    """Make Nesterov's gradient steps with backtracking; start afresh where one would go uphill."""

    def value(weights: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        codes, v = secants.soft(weights, slope)
        error = now.scale * v - target
        return float(error @ error) / 2, codes, error

    weights = ahead = now.weights
    best, curvature, momentum = value(weights)[0], now.curvature, 1.0
    for _ in range(_N_GRADIENTS):
        here, codes, error = value(ahead)
        gradient = secants.gradient(codes, slope, now.scale * error)
        steepness = float(np.einsum("ij,ij->", gradient, gradient))
        if steepness < 1e-30:
            break
        curvature = max(curvature / 2, 1e-12)
        for _ in range(_MOST_HALVINGS):
            tried = ahead - gradient / curvature
            reached = value(tried)[0]
            if reached <= here - steepness / (2 * curvature) * (1 - 1e-9):
                break
            curvature *= 2
        else:
            break
        if reached > best:
            if momentum == 1.0:
                break
            ahead, momentum = weights, 1.0
            continue
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = tried + (momentum - 1) / following * (tried - weights)
        weights, best, momentum = tried, reached, following
    return replace(now, weights=weights, curvature=curvature)
