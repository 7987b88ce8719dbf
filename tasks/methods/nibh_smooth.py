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
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernels.forces import calibrated_forces, tabulate
from .nibh_measure import calibration

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARPNESS = (20.0, 60.0)  # β at the beginning and the end, for distances of mean square 2
GENTLE = (10.0, 30.0)  # the same where each step sees another batch
_MEMORY = 0.9  # of g, from step to step
_SCALE_STEP = 0.02
LENGTH, SHRINK = 0.2, 0.1  # of the first step through the origin, and what the last is of it
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
    batches : bool
        Whether each step sees other pairs: then the maximum is smoother and steps are half as long.
    """

    slope: float
    power: int | None
    calibrated: bool = False
    share: float = 0.0
    batches: bool = False

    @property
    def step(self) -> float:
        """The first step's length, relative to the mean size of the weights."""
        return 0.1 if self.calibrated else LENGTH / 2 if self.batches else LENGTH

    def sharpness(self, share: float) -> float:
        """Return β of the smooth maximum when this share of all steps is behind."""
        return sharpness(share, GENTLE if self.batches else SHARPNESS)

    @property
    def last_step(self) -> float:
        """The last step's share of the first."""
        return 0.03 if self.calibrated else SHRINK

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
    forces = (
        _smooth_maximum(error, loss.sharpness(share)) if loss.power is None else _power(error, loss.power)
    )
    lean = float(np.vdot(forces, hamming))
    pulled = forces.sum(axis=1)[:, None] * bits - forces @ bits
    return replace(now, scale=signed_scale(scale, lean)), bits.dtype.type(scale) * pulled


def _calibrated(
    now: Iterate, loss: Loss, bits: np.ndarray, distances: np.ndarray
) -> tuple[Iterate, np.ndarray]:
    """Return the iterate with g and λ moved, and the forces on the bits."""
    n_bits, kind = bits.shape[1], bits.dtype.type
    hamming = np.clip(kind(0.5) * (n_bits - bits @ bits.T), 0, n_bits)
    count, total = tabulate(hamming, distances, n_bits)
    now = replace(now, count=_MEMORY * now.count + count, total=_MEMORY * now.total + total)
    table = calibration(now.count, now.total)
    steepness = np.maximum(_moving_mean(np.diff(table), 5), _LEAST_SLOPE)
    forces, mass = calibrated_forces(hamming, distances, table, steepness, loss.power or 2)
    pulled = -kind(_inverse(mass, kind)) * (forces @ bits)
    scale = now.scale or _least_squares(hamming, distances, 1.0)
    if loss.share:
        pulled -= kind(loss.share) * (_unit_mass(kind(scale) * hamming - distances) @ bits)
        scale += _FOLLOW * (_least_squares(hamming, distances, scale) - scale)
    return replace(now, scale=max(1e-6, scale)), pulled


def sharpness(share: float, ends: tuple[float, float] = SHARPNESS) -> float:
    """Return β of the smooth maximum when this share of all steps is behind."""
    first, last = ends
    return float(first * (last / first) ** share)


def signed_scale(scale: float, derivative: float) -> float:
    """Return λ after a step of fixed relative length against the sign of the loss's derivative."""
    return max(1e-6, scale * (1 - _SCALE_STEP * float(np.sign(derivative))))


def _smooth_maximum(error: np.ndarray, beta: float) -> np.ndarray:
    beta, sizes = error.dtype.type(beta), np.abs(error)
    return _unit_mass(np.exp(beta * (sizes - sizes.max(initial=0.0))) * np.sign(error))


def _power(error: np.ndarray, power: int) -> np.ndarray:
    largest = np.abs(error).max(initial=0.0)
    return _unit_mass(_raised(error / largest, power - 1) if largest > 0 else error.copy())


def _raised(values: np.ndarray, exponent: int) -> np.ndarray:
    """Return an integer power by repeated squaring, many times faster than the general one."""
    result, square = np.ones_like(values), values
    while exponent:
        if exponent & 1:
            result = result * square
        square, exponent = square * square, exponent >> 1
    return result


def _unit_mass(forces: np.ndarray) -> np.ndarray:
    """Bring forces, in place, to total mass 1, none from a point to itself."""
    np.fill_diagonal(forces, 0)
    mass = float(np.abs(forces).sum())
    return np.multiply(forces, _inverse(mass, forces.dtype.type), out=forces, casting="unsafe")


def _inverse(mass: float, kind: type[np.floating[Any]]) -> float:
    """Return 1 / mass; 0 where there are no forces, or so small ones that the inverse is none of the type."""
    return 1 / mass if mass > float(np.finfo(kind).tiny) else 0.0


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
