"""The two minimisations of binary optimal sparse lifting (POSH paper, appendix C), on rows in memory.

With unit rows X (n, r), lifted rows Y (n, b), codes H (n, b) of ``n_active`` ones, multipliers L and a
penalty λ the augmented Lagrangian is::

    ¼ ‖X Xᵀ - Y Yᵀ‖² + λ/2 ‖H - Y + L/λ‖²,   0 <= Y <= 1

Over the codes it is least at ``H = wta(λ Y - L)`` (the paper's Algorithm 3 prints ``+``: then the codes
never move).  Over Y it is a symmetric factorisation with bounds.  No n × n matrix is needed, since

    ‖X Xᵀ - Y Yᵀ‖² = ‖XᵀX‖² - 2 ‖YᵀX‖² + ‖YᵀY‖²,   gradient of the first term  Y (YᵀY) - X (YᵀX)ᵀ.

Y descends along projected gradients of Barzilai and Borwein's length (Birgin, Martínez, Raydan 2000).
Along such a direction the Lagrangian is a polynomial of degree four, known from a few more sums; its
least value on the segment is taken, so that every step goes down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels.wta import top_active

_SHORTEST, _LONGEST = 1e-10, 1e10  # bounds of the gradient step


def best_codes(lifted: np.ndarray, multipliers: np.ndarray, penalty: float, n_active: int) -> np.ndarray:
    """Return the codes of least Lagrangian, ``wta(λ Y - L)``, as index lists, int32, shape (n, n_active)."""
    return top_active(np.ascontiguousarray(penalty * lifted - multipliers), n_active)


def target_of(codes: np.ndarray, multipliers: np.ndarray, penalty: float) -> np.ndarray:
    """Return ``H + L/λ``, shape (n, b), of codes given as index lists."""
    target = multipliers / multipliers.dtype.type(penalty)
    target[np.arange(len(codes))[:, None], codes] += 1
    return target


def lagrangian(rows: np.ndarray, lifted: np.ndarray, target: np.ndarray, penalty: float) -> float:
    """Return the augmented Lagrangian, its sums in float64; ``target`` is ``H + L/λ``."""
    gram = _square(rows.T @ rows)
    similar = gram - 2 * _square(lifted.T @ rows) + _square(lifted.T @ lifted)
    return similar / 4 + penalty / 2 * _square(lifted - target)


@dataclass(frozen=True)
class Descent:
    """What `descend` found: the lifted rows and the Lagrangian before the first and after each step."""

    lifted: np.ndarray
    values: list[float]


def descend(
    rows: np.ndarray, lifted: np.ndarray, target: np.ndarray, penalty: float, n_steps: int
) -> Descent:
    """Lower the Lagrangian over ``0 <= Y <= 1``, at most ``n_steps`` steps, none of them upwards.

    Parameters
    ----------
    rows : ndarray, shape (n, r)
    lifted : ndarray, shape (n, b)
        Where to begin; entries outside the bounds are moved to them first.
    target : ndarray, shape (n, b)
        ``H + L/λ``.
    penalty : float
    n_steps : int
    """
    lifted = np.clip(lifted, 0, 1)
    square, cross = lifted.T @ lifted, lifted.T @ rows
    values = [lagrangian(rows, lifted, target, penalty)]
    length = 1 / (penalty + float(np.linalg.norm(square, 2)))
    before = step = None
    for _ in range(n_steps):
        gradient = lifted @ square - rows @ cross.T + penalty * (lifted - target)
        if before is not None:
            length = _spectral_length(step, gradient - before)
        move = np.clip(lifted - lifted.dtype.type(length) * gradient, 0, 1) - lifted
        moved_square, moved_cross = move.T @ move, move.T @ rows
        mixed = lifted.T @ move
        mixed += mixed.T.copy()
        polynomial = (
            _dot(gradient, move),
            (_square(mixed) + 2 * _dot(square, moved_square)) / 4
            - _square(moved_cross) / 2
            + penalty / 2 * _square(move),
            _dot(mixed, moved_square) / 2,
            _square(moved_square) / 4,
        )
        share, change = _least(polynomial)
        if not change < 0:
            break
        scale = lifted.dtype.type(share)
        step, before = scale * move, gradient
        lifted = np.clip(lifted + step, 0, 1)  # rounding must not leave the bounds
        square += scale * mixed + scale * scale * moved_square
        cross += scale * moved_cross
        values.append(values[-1] + change)
    return Descent(lifted, values)


def _least(polynomial: tuple[float, float, float, float]) -> tuple[float, float]:
    """Return where on (0, 1] ``c₁t + c₂t² + c₃t³ + c₄t⁴`` is least, and its value there."""
    c1, c2, c3, c4 = polynomial
    scale = max(abs(c1), abs(c2), abs(c3), abs(c4))
    if not (np.isfinite(scale) and c1 < 0):
        return 0.0, 0.0
    coefficients = np.array([4 * c4, 3 * c3, 2 * c2, c1]) / scale
    roots = np.roots(np.where(np.abs(coefficients) < 1e-14, 0.0, coefficients))
    real = roots[np.abs(roots.imag) < 1e-9].real
    places = np.concatenate([real[(real > 0) & (real < 1)], [1.0]])
    changes = places * (c1 + places * (c2 + places * (c3 + places * c4)))
    best = int(np.argmin(changes))
    return float(places[best]), float(changes[best])


def _spectral_length(step: np.ndarray | None, bend: np.ndarray) -> float:
    """Return Barzilai and Borwein's step length ``⟨s, s⟩ / ⟨s, y⟩``, long where there is no curvature."""
    assert step is not None
    curvature = _dot(step, bend)
    if not curvature > 0:
        return _LONGEST
    return min(max(_square(step) / curvature, _SHORTEST), _LONGEST)


def _dot(left: np.ndarray, right: np.ndarray) -> float:
    """Return the sum of products; each row in its own precision, rows added in float64."""
    return float(np.einsum("ij,ij->i", left, right).sum(dtype=np.float64))


def _square(matrix: np.ndarray) -> float:
    return _dot(matrix, matrix)
