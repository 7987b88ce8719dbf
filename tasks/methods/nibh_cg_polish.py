"""The discrete polish of near-isometric codes: flip single bits of the worst pairs.

On a pool of pairs that nearly violate, the cost of weights is ``Σ exp(β (|λ h - c| - δ))`` with h of the
sign codes. A move takes one of the worst pairs, a bit that would bring its h nearer to c / λ, and that one
of its two points that is nearest to the bit's hyperplane, and turns the hyperplane just past the point; it
is kept if the cost falls. Pairs outside the pool may come to violate; the next search of all pairs finds
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .nibh_admm import Secants

_SHARPNESS = 30.0  # β, for distances of mean square 2
_WORST = 20  # pairs among which one is taken
_NEAREST = 5  # bits among which one is taken
_PAST = 1.02  # how far a hyperplane is turned: 1 is onto the point


def polish(
    secants: Secants, weights: np.ndarray, scale: float, delta: float, n_moves: int, rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    """Return the weights after ``n_moves`` tried moves, and how many were kept.

    Parameters
    ----------
    secants : Secants
        The pool.
    weights : ndarray of float64, shape (r, b)
    scale, delta : float
        λ and the largest residual over all pairs.
    n_moves : int
    rng : Generator
    """
    rows, first, second, c = secants.rows, secants.first, secants.second, secants.distances
    if not len(c):
        return weights, 0
    weights = weights.copy()
    bits = rows @ weights >= 0
    differing = bits[first] != bits[second]
    hamming = differing.sum(axis=1).astype(np.float64)
    error = scale * hamming - c
    cost, kept = _cost(error, delta), 0
    for _ in range(n_moves):
        worst = np.argsort(-np.abs(error), kind="stable")[:_WORST]
        pair = int(worst[rng.integers(len(worst))])
        useful = np.flatnonzero(differing[pair] == (error[pair] > 0))
        ends = np.array([first[pair], second[pair]])
        scores = rows[ends] @ weights[:, useful]
        order = np.argsort(np.abs(scores), axis=None, kind="stable")[:_NEAREST]
        if not len(order):
            continue
        end, place = np.unravel_index(int(order[rng.integers(len(order))]), scores.shape)
        point, bit = rows[ends[end]], int(useful[place])
        length = float(point @ point)
        if length == 0:
            continue
        turned = weights[:, bit] - (_PAST * scores[end, place] / length) * point
        new_bits = rows @ turned >= 0
        new_differing = new_bits[first] != new_bits[second]
        new_hamming = hamming - differing[:, bit] + new_differing
        new_cost = _cost(scale * new_hamming - c, delta)
        if new_cost < cost * (1 - 1e-9):
            weights[:, bit], differing[:, bit] = turned, new_differing
            hamming, error, cost, kept = new_hamming, scale * new_hamming - c, new_cost, kept + 1
    return weights, kept


def _cost(error: np.ndarray, delta: float) -> float:
    return float(np.exp(_SHARPNESS * np.minimum(np.abs(error) - delta, 10.0)).sum())
