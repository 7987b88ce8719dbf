"""The rounds of near-isometric hashing: in one task each a solver goes on from where the state says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.spatial.distance import squareform

from ..random import stream
from . import nibh_admm, nibh_smooth
from .nibh_measure import through_origin
from .nibh_sums import Points

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..protocols import Arrays, Block


class Solve:
    """Accumulator of nothing; its ``finalize`` makes a round's steps on the points in the state.

    Parameters
    ----------
    round_of : callable
        Makes them, from the state's arrays to the summary.
    """

    sequential: ClassVar[bool] = False

    def __init__(self, round_of: Callable[[], dict[str, np.ndarray]]) -> None:
        self.round_of = round_of

    def init(self) -> dict[str, np.ndarray]:
        """Return nothing."""
        return {}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add nothing."""
        return state

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return nothing."""
        return left

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Make the steps."""
        return self.round_of()


@dataclass(frozen=True)
class Steps:
    """The steps of one round: ``first`` up to ``last`` of ``total``, a candidate after each ``every``-th."""

    first: int
    last: int
    total: int
    every: int
    seed: int
    batch_size: int
    target: str
    unit: float

    def share(self, number: int) -> float:
        """Return how much of all steps is behind before step ``number``."""
        return number / max(1, self.total - 1)

    def is_candidate(self, number: int) -> bool:
        """Tell whether the weights after step ``number`` are one of those to choose from."""
        return (number + 1) % self.every == 0 or number + 1 == self.total


@dataclass
class Best:
    """The candidate whose sign codes have the least distortion so far, in units of the points' spread."""

    weights: np.ndarray
    distortion: float = np.inf

    @classmethod
    def of(cls, arrays: Arrays, scalars: Mapping[str, Any]) -> Best:
        """Take it from a state."""
        if "best" not in arrays:
            return cls(arrays["weights"])
        return cls(arrays["best"], float(scalars["best_distortion"]))

    def offer(self, points: Points, weights: np.ndarray) -> None:
        """Take these weights if their codes are better."""
        found = points.measured(weights)
        distortion = through_origin(found.least, found.largest)[0]
        if distortion < self.distortion:
            self.weights, self.distortion = weights, distortion


def smooth_round(
    arrays: Arrays, scale: float, best: Best | None, loss: nibh_smooth.Loss, steps: Steps
) -> dict[str, np.ndarray]:
    """Make some steps of the smooth solver and return all that the next round needs."""
    points, now = Points.of(arrays), nibh_smooth.Iterate.of(arrays, scale)
    rows = points.rows.astype(np.float64)
    moment = rows.T @ rows / len(rows)
    now = nibh_smooth.levelled(now, moment)
    everything = None if points.pairs is None else _target(squareform(points.pairs), steps)
    for number in range(steps.first, steps.last):
        rows = points.rows
        distances = everything
        if distances is None:
            rng = stream(steps.seed, "nibh.batch", number)
            places = rng.choice(len(rows), steps.batch_size, replace=False, shuffle=False)
            rows, distances = rows[places], _target(points.among(places), steps)
        distances = distances.astype(rows.dtype, copy=False)
        now = nibh_smooth.step(now, loss, rows, distances, number, steps.share(number))
        now = nibh_smooth.levelled(now, moment)
        if best is not None and steps.is_candidate(number):
            best.offer(points, now.weights)
    found = {**now.arrays(), "scale": np.array(now.scale)}
    return {**found, **_judged(points, now.weights, best, steps.unit, last=steps.last == steps.total)}


def batch_steps(
    points: Points, weights: np.ndarray, loss: nibh_smooth.Loss, n_steps: int, batch_size: int, seed: int
) -> tuple[np.ndarray, float]:
    """Return the weights and λ after some steps of the smooth solver on batches of points."""
    size = min(batch_size, len(points.rows))
    steps = Steps(0, n_steps, n_steps, n_steps, seed, size, "euclidean", 1.0)
    arrays = {"rows": points.rows.astype(np.float32), "squares": points.squares.astype(np.float32)}
    found = smooth_round({**arrays, "weights": weights}, 0.0, None, loss, steps)
    return found["weights"], float(found["scale"])


def admm_round(
    arrays: Arrays, scalars: Mapping[str, Any], best: Best, slope: float, steps: Steps
) -> dict[str, np.ndarray]:
    """Make some turns of the paper's solver and return all that the next round needs."""
    points = Points.of(arrays)
    assert points.pairs is not None
    first, second = points.upper
    secants = nibh_admm.Secants(points.rows.astype(np.float64), first, second, _target(points.pairs, steps))
    now = nibh_admm.begin(secants, arrays["weights"], slope)
    if "multipliers" in arrays:
        residual, multipliers = arrays["residual"], arrays["multipliers"]
        scale, curvature = float(scalars["scale"]), float(scalars["curvature"])
        now = nibh_admm.Iterate(arrays["weights"], residual, multipliers, scale, curvature)
    for number in range(steps.first, steps.last):
        now = nibh_admm.turn(secants, now, slope)
        if steps.is_candidate(number):
            best.offer(points, now.weights)
    found = {
        "weights": now.weights,
        "residual": now.residual,
        "multipliers": now.multipliers,
        "scale": np.array(now.scale),
        "curvature": np.array(now.curvature),
    }
    return {**found, **_judged(points, now.weights, best, steps.unit, last=steps.last == steps.total)}


def _judged(
    points: Points, weights: np.ndarray, best: Best | None, unit: float, *, last: bool
) -> dict[str, np.ndarray]:
    """Return the best weights so far and their distortion; at the end all that is reported of them."""
    if best is not None:
        weights = best.weights
    found = points.measured(weights)
    distortion = through_origin(found.least, found.largest)[0]
    judged = {"distortion": np.array(unit * distortion)}
    if best is not None:
        judged |= {"best": weights, "best_distortion": np.array(best.distortion)}
    if last:
        judged |= {"weights": weights} | found.reported(unit)
    return judged


def _target(distances: np.ndarray, steps: Steps) -> np.ndarray:
    return np.square(distances) if steps.target == "sqeuclidean" else distances
