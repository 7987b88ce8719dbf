"""How far Hamming distances are from true distances at worst: exact, from M + 1 pairs of numbers.

Over any set of pairs let lo_h and hi_h be the least and the greatest distance c among those whose codes
differ in h of M bits.  Then ``inf max |g(h) - c|`` follows from them alone, for three kinds of g:

``scale``
    g(h) = λh, the NIBH paper's δ = inf_{λ≥0} ‖λv - c‖_∞
    = max( hi_0, max_{h1≥0, h2≥1} (h1·hi_{h2} - h2·lo_{h1}) / (h1 + h2) ), with the maximising pair's
    λ = (hi_{h2} + lo_{h1}) / (h1 + h2) (Helly's theorem on the line: two constraints decide).
``affine``
    g(h) = λh + b, λ ≥ 0: ½ min_λ [ max_h (hi_h - λh) - min_h (lo_h - λh) ]; convex and piecewise linear in λ,
    so the minimum is at 0 or at a slope of the upper hull of hi or of the lower hull of lo.
``monotone``
    any g that does not decrease: ½ max_{h1≤h2} (hi_{h1} - lo_{h2}).

Each is at most the one before it, and the last two at most T = (c_max - c_min) / 2, the cost of a constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

FITS = ("scale", "affine", "monotone")
TARGETS = ("euclidean", "sqeuclidean")


@dataclass(frozen=True)
class Calibration:
    """A worst-case optimal prediction of distances from Hamming distances.

    Attributes
    ----------
    delta : float
        The greatest error over the pairs.
    scale : float or None
        λ; None for a monotone fit.
    offset : float or None
        b; None for a monotone fit.
    table : ndarray of float64, shape (M + 1,)
        The predicted distance at each Hamming distance.
    """

    delta: float
    scale: float | None
    offset: float | None
    table: np.ndarray


def calibrate(low: np.ndarray, high: np.ndarray, fit: str = "scale") -> Calibration:
    """Return the best prediction of one kind.

    Parameters
    ----------
    low, high : ndarray of float64, shape (M + 1,)
        Least and greatest distance at each Hamming distance; ``inf`` and ``-inf`` where there is no pair.
    fit : {"scale", "affine", "monotone"}

    Raises
    ------
    ValueError
        If the kind is unknown, or there is no pair at all.

    Examples
    --------
    >>> calibrate(np.array([0.0, 1.0, 2.0]), np.array([0.5, 1.0, 3.0])).delta
    0.5
    """
    if fit not in FITS:
        raise ValueError(f"expected fit to be one of {', '.join(FITS)}, got {fit!r}")
    h = np.flatnonzero(np.isfinite(high))
    if not len(h):
        raise ValueError("expected at least one pair of rows, got none")
    return {"scale": _scale, "affine": _affine, "monotone": _monotone}[fit](h, low, high)


def constant_distortion(low: np.ndarray, high: np.ndarray) -> float:
    """Return T = (c_max - c_min) / 2, the distortion of the best constant."""
    return float((high.max() - low.min()) / 2)


def critical_bits(mean: float, mean_square: float) -> float:
    """Return M* = (E c / sd c)², twice the intrinsic dimension of Chavez et al.; inf if all are equal.

    Codes of fewer bits cannot be near-isometric through the origin, whatever they are (`scale_bound`).
    """
    variance = max(mean_square - mean * mean, 0.0)
    return mean * mean / variance if variance > 0 else math.inf


def scale_bound(n_bits: int, n_rows: int, mean: float, mean_square: float) -> float:
    """Return a number that δ of a ``scale`` fit cannot be below for any codes of so many bits.

    Over the pairs of n rows, E h² / (E h)² ≥ (1 - 1/n)(1 + 1/M) for any M bits, and E c² / (E c)² = 1 + 1/M*.
    If the first is greater, the vectors h and c (in L₂ over the pairs) enclose at least the difference of
    the angles arctan r_h - arctan r_c with the constant vector, so that

        δ ≥ √(E (λh - c)²) ≥ √(E c²) · sin(arctan r_h - arctan r_c),   r = sd / mean.

    Parameters
    ----------
    n_bits, n_rows : int
    mean, mean_square : float
        E c and E c² over all pairs.
    """
    spread_h = math.sqrt(max((1 - 1 / n_rows) * (1 + 1 / n_bits) - 1, 0.0))
    spread_c = math.sqrt(1 / critical_bits(mean, mean_square)) if mean > 0 else math.inf
    return math.sqrt(mean_square) * math.sin(max(math.atan(spread_h) - math.atan(spread_c), 0.0))


def doubts(delta: float, constant: float, n_bits: int, critical: float, bound: float) -> tuple[str, ...]:
    """Return what makes δ useless or unattainable, in sentences.

    Parameters
    ----------
    delta, constant : float
        δ, and T of `constant_distortion`.
    n_bits : int
    critical, bound : float
        Of `critical_bits` and `scale_bound`.
    """
    said = []
    if delta > constant:
        said.append(
            f"δ = {delta:.4g} is above T = {constant:.4g}: predicting one constant for all pairs is better "
            'at worst; look at fit="affine" or "monotone"'
        )
    if n_bits < critical and bound > 0:  # of few or equal rows nothing follows from M*
        said.append(
            f"{n_bits} bits are fewer than M* = {critical:.4g}: no near-isometry through the origin is "
            f'possible, whatever the codes; with fit="scale" δ ≥ {bound:.4g}'
        )
    return tuple(said)


def _scale(h: np.ndarray, low: np.ndarray, high: np.ndarray) -> Calibration:
    lo, hi = low[h], high[h]
    first, second = h[:, None], h[None, :]
    total = np.where(second > 0, first + second, 1)
    excess = np.where(second > 0, (first * hi[None, :] - second * lo[:, None]) / total, -np.inf)
    at = np.unravel_index(np.argmax(excess), excess.shape)
    collided = float(high[0]) if h[0] == 0 else 0.0
    if excess[at] > collided:
        delta, scale = float(excess[at]), float((hi[at[1]] + lo[at[0]]) / total[at])
    else:  # a pair of equal codes decides: every λ in an interval is as good, its middle is taken
        delta, some = max(collided, 0.0), h > 0
        least = max(float(np.max((hi[some] - delta) / h[some], initial=0.0)), 0.0)
        most = float(np.min((lo[some] + delta) / h[some], initial=math.inf))
        scale = (least + most) / 2 if math.isfinite(most) else 0.0
    return Calibration(delta, scale, 0.0, scale * np.arange(len(low)))


def _affine(h: np.ndarray, low: np.ndarray, high: np.ndarray) -> Calibration:
    lo, hi = low[h], high[h]
    slopes = np.unique(np.concatenate([[0.0], _hull_slopes(h, hi), -_hull_slopes(h, -lo)]))
    slopes = slopes[slopes >= 0]
    above = (hi - slopes[:, None] * h).max(axis=1)
    below = (lo - slopes[:, None] * h).min(axis=1)
    best = int(np.argmin(above - below))
    delta = float(max((above[best] - below[best]) / 2, 0.0))
    scale, offset = float(slopes[best]), float((above[best] + below[best]) / 2)
    return Calibration(delta, scale, offset, scale * np.arange(len(low)) + offset)


def _monotone(h: np.ndarray, low: np.ndarray, high: np.ndarray) -> Calibration:
    above = np.maximum.accumulate(high[h])
    below = np.minimum.accumulate(low[h][::-1])[::-1]
    delta = float(max(np.max(above - below) / 2, 0.0))
    table = np.interp(np.arange(len(low)), h, (above + below) / 2)
    return Calibration(delta, None, None, np.maximum.accumulate(table))


def _hull_slopes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the slopes of the upper hull of the points (x, y), x ascending."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) > (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return np.diff(y[hull]) / np.diff(x[hull])
