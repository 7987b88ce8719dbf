"""The smooth solver of near-isometric hashing: gradient steps on all pairs of a batch of points.

Soft bits are ``t = tanh(slope/2 · W x)`` in (-1, 1), soft Hamming distances h of the pairs either ``¼ ‖t -
t'‖²`` (the paper's) or ``½ (b - t·t')``.  A loss is a force on every pair, its derivative by h, brought to
total mass 1 so that losses of any power and scale mix by shares::

    through the origin   e = λ h - c     force sign(e) exp(β |e|), a smooth maximum, β growing; or e^(p-1)
    calibrated           e = g(h) - c    force e^(p-1) g'(h)

g is the nondecreasing function that fits c best at the soft distances (rounded) of the last few batches,
weighted with a memory that fades.  The forces F (b, b symmetric) act on the bits as ``-F t``, or ``diag(F
1) t - F t``, and through tanh' and the rows on the weights.  Steps are Adam's, relative to the mean size of
the weights, and shrink with time; each column of W is kept at projections of root mean square 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .nibh_measure import calibration

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHARPNESS = (20.0, 60.0)  # β at the beginning and the end, for distances of mean square 2
_MEMORY = 0.9  # of g, from step to step
_SCALE_STEP = 0.02
_FOLLOW = 0.3  # how far λ follows its least squares in one step
_LEAST_SLOPE = 1e-4


@dataclass(frozen=True)
class Loss:
    """What is minimised.

    Attributes
    ----------
    slope : float
        Of the soft bits.
    power : int or None
        p of the norm; None: the smooth maximum.
    calibrated : bool
        Compare g(h) with c; else λ h.
    share : float
        How much squared error through the origin is added to a calibrated loss.
    """

    slope: float
    power: int | None
    calibrated: bool = False
    share: float = 0.0

    @property
    def step(self) -> float:
        """The first step's length, relative to the mean size of the weights."""
        return 0.05 if self.calibrated else 0.2

    @property
    def last_step(self) -> float:
        """The last step's share of the first."""
        return 0.03 if self.calibrated else 0.1

    @property
    def second_memory(self) -> float:
        """Adam's second constant."""
        return 0.99 if self.calibrated else 0.999


@dataclass(frozen=True)
class Iterate:
    """Everything that a step changes."""

    weights: np.ndarray  # (r, b) float64
    momentum: np.ndarray  # Adam's moments of the gradient
    variance: np.ndarray
    count: np.ndarray  # (b + 1,) pairs by rounded soft distance, and the sums of their c
    total: np.ndarray
    scale: float = 0.0  # λ; 0 before the first step

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name."""
        names = ("weights", "momentum", "variance", "count", "total")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], scale: float) -> Iterate:
        """Build the iterate whose `arrays` these are; only the weights at the beginning."""
        weights = arrays["weights"]
        if "momentum" not in arrays:
            zero, table = np.zeros_like(weights), np.zeros(weights.shape[1] + 1)
            return cls(weights, zero, zero, table, table, scale)
        return cls(weights, arrays["momentum"], arrays["variance"], arrays["count"], arrays["total"], scale)


def step(
    now: Iterate, loss: Loss, rows: np.ndarray, distances: np.ndarray, number: int, share: float
) -> Iterate:
    """Make step ``number`` (from 0), the ``share`` of all steps being behind.

    Parameters
    ----------
    now : Iterate
    loss : Loss
    rows : ndarray of float32 or float64, shape (n, r)
        The batch's points.
    distances : ndarray of the same type, shape (n, n)
        Among them, mean square about 2.
    """
    bits = np.tanh(rows.dtype.type(loss.slope / 2) * (rows @ now.weights.astype(rows.dtype)))
    if loss.calibrated:
        now, pulled = _calibrated(now, loss, bits, distances)
    else:
        now, pulled = _through_origin(now, loss, bits, distances, share)
    pulled *= rows.dtype.type(loss.slope / 2) * (1 - bits * bits)
    gradient = (rows.T @ pulled).astype(np.float64)
    momentum = 0.9 * now.momentum + 0.1 * gradient
    variance = loss.second_memory * now.variance + (1 - loss.second_memory) * gradient * gradient
    even = np.sqrt(variance / (1 - loss.second_memory ** (number + 1))) + 1e-12
    length = loss.step * (1 - (1 - loss.last_step) * share) * float(np.abs(now.weights).mean())
    weights = now.weights - length * (momentum / (1 - 0.9 ** (number + 1))) / even
    return replace(now, weights=weights, momentum=momentum, variance=variance)


def levelled(now: Iterate, moment: np.ndarray) -> Iterate:
    """Bring each column's projections to root mean square 1, given the points' second moment, (r, r)."""
    sizes = np.sqrt(np.maximum(np.einsum("ij,ij->j", now.weights, moment @ now.weights), 0))
    return replace(now, weights=now.weights / np.where(sizes > 1e-12, sizes, 1.0))


def _through_origin(
    now: Iterate, loss: Loss, bits: np.ndarray, distances: np.ndarray, share: float
) -> tuple[Iterate, np.ndarray]:
    """Return the iterate with its λ moved, and the forces on the bits."""
    sizes = np.einsum("ij,ij->i", bits, bits)
    hamming = 0.25 * (sizes[:, None] + sizes) - 0.5 * (bits @ bits.T)
    np.fill_diagonal(hamming, 0)
    scale = now.scale or _least_squares(hamming, distances, 1.0)
    error = hamming.dtype.type(scale) * hamming - distances
    forces = _smooth_maximum(error, share) if loss.power is None else _power(error, loss.power)
    lean = float(np.vdot(forces, hamming))  # the loss falls the other way
    following = max(1e-6, scale * (1 - _SCALE_STEP * float(np.sign(lean))))
    pulled = forces.sum(axis=1)[:, None] * bits - forces @ bits
    return replace(now, scale=following), bits.dtype.type(scale) * pulled


def _calibrated(
    now: Iterate, loss: Loss, bits: np.ndarray, distances: np.ndarray
) -> tuple[Iterate, np.ndarray]:
    """Return the iterate with g and λ moved, and the forces on the bits."""
    n_bits = bits.shape[1]
    hamming = np.clip(0.5 * (n_bits - bits @ bits.T), 0, n_bits)
    now = _recalibrated(now, hamming, distances)
    table = calibration(now.count, now.total)
    below = np.minimum(hamming.astype(np.intp), n_bits - 1)
    rise = np.diff(table).astype(bits.dtype)
    error = table.astype(bits.dtype)[below] + rise[below] * (hamming - below) - distances
    smooth = np.maximum(_moving_mean(rise, 5), bits.dtype.type(_LEAST_SLOPE))
    forces = error ** (_exponent(loss) - 1) * smooth[below]
    pulled = -_unit_mass(forces) @ bits
    scale = now.scale or _least_squares(hamming, distances, 1.0)
    if loss.share:
        straight = bits.dtype.type(scale) * hamming - distances
        pulled -= bits.dtype.type(loss.share) * (_unit_mass(straight) @ bits)
        scale += _FOLLOW * (_least_squares(hamming, distances, scale) - scale)
    return replace(now, scale=max(1e-6, scale)), pulled


def _recalibrated(now: Iterate, hamming: np.ndarray, distances: np.ndarray) -> Iterate:
    """Let g forget a little and learn the batch's pairs."""
    upper = np.triu_indices(len(hamming), 1)
    places = np.rint(hamming[upper]).astype(np.intp)
    count = np.bincount(places, minlength=len(now.count))
    total = np.bincount(places, distances[upper], len(now.total))
    return replace(now, count=_MEMORY * now.count + count, total=_MEMORY * now.total + total)


def _smooth_maximum(error: np.ndarray, share: float) -> np.ndarray:
    first, last = _SHARPNESS
    sharpness = error.dtype.type(first * (last / first) ** share)
    sizes = np.abs(error)
    return _unit_mass(np.exp(sharpness * (sizes - sizes.max(initial=0.0))) * np.sign(error))


def _power(error: np.ndarray, power: int) -> np.ndarray:
    largest = np.abs(error).max(initial=0.0)
    return _unit_mass((error / largest) ** (power - 1) if largest > 0 else error.copy())


def _exponent(loss: Loss) -> int:
    assert loss.power is not None
    return loss.power


def _unit_mass(forces: np.ndarray) -> np.ndarray:
    """Bring forces, in place, to total mass 1, none from a point to itself."""
    np.fill_diagonal(forces, 0)
    mass = float(np.abs(forces).sum())
    return np.multiply(forces, 1 / mass if mass > 0 else 0.0, out=forces, casting="unsafe")


def _least_squares(hamming: np.ndarray, distances: np.ndarray, otherwise: float) -> float:
    """Return the λ of least ``Σ (λ h - c)²`` over all pairs but those of a point with itself."""
    own = np.diagonal(hamming)
    square = float(np.vdot(hamming, hamming)) - float(own @ own)
    return float(np.vdot(hamming, distances)) / square if square > 0 else otherwise


def _moving_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Return the mean of ``width`` neighbours, of fewer at the ends."""
    kernel = np.ones(width)
    return (np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same")).astype(
        values.dtype
    )
