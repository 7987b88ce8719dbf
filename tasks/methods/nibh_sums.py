"""What near-isometric hashing adds up: the training points; then one task a round goes on with the solver.

The problem couples all pairs of points, so it does not come apart into blocks.  The points are gathered
once and live in the state, with all that the solver needs to go on, until training ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.spatial.distance import pdist, squareform

from ..procrustes import orthogonal_factor
from ..random import stream
from . import nibh_admm, nibh_smooth
from .base import Front
from .nibh_measure import ByHamming, calibration, monotone, through_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..protocols import Arrays, Block

_ITQ_STEPS = 50
_MEASURED_ROWS = 2000  # of many points so many, evenly spaced, say how near the codes are


class GatherPoints:
    """Accumulator of the training points, in order; ``finalize`` learns ITQ's rotation from them.

    Parameters
    ----------
    front : Front
    chosen : ndarray of int64, shape (t,), or None
        Row numbers, ascending; None for all rows.
    whole : bool
        Keep all features until the end, for exact distances of all pairs.
    rotation : ndarray of float64, shape (k, b)
        Where ITQ begins, on the first k components.
    dtype : str
        Of the points in the state.
    """

    sequential: ClassVar[bool] = False

    def __init__(
        self, front: Front, chosen: np.ndarray | None, rotation: np.ndarray, dtype: str, *, whole: bool
    ) -> None:
        self.front, self.chosen, self.rotation, self.dtype, self.whole = front, chosen, rotation, dtype, whole

    def init(self) -> dict[str, np.ndarray]:
        """Return no points."""
        width = len(self.front.mean) if self.whole else self.front.n_outputs
        return {"rows": np.zeros((0, width)), "squares": np.zeros(0)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Append the chosen rows of a block."""
        vectors, components = block.vectors, self.front.components
        if self.chosen is not None:
            if not np.isfinite(vectors).all():  # rows that are not looked at may not be broken either
                raise ValueError("expected finite vectors, but some hold NaN or infinity")
            vectors = vectors[np.isin(block.rows, self.chosen)]
        rows, squares = [state["rows"]], [state["squares"]]
        for tile in Front(self.front.mean).tiles(vectors, np.float64):
            with np.errstate(over="ignore", invalid="ignore"):
                squares.append(np.einsum("ij,ij->i", tile, tile))
                rows.append(tile if self.whole or components is None else tile @ components)
        return {"rows": np.concatenate(rows), "squares": np.concatenate(squares)}

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Append the later points."""
        return {key: np.concatenate([left[key], right[key]]) for key in left}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the points in units of their spread, their distances if all are kept, and the rotation."""
        rows, squares = state["rows"], state["squares"]
        if not np.isfinite(squares).all():
            raise ValueError("expected finite vectors, but some hold NaN, infinity or huge numbers")
        unit = _spread(rows, squares)
        summary = {"unit": np.array(unit)}
        if self.whole:
            summary["distances"] = pdist(rows / unit)
            rows = rows if self.front.components is None else rows @ self.front.components
        summary["rows"] = (rows / unit).astype(self.dtype)
        summary["squares"] = (squares / unit**2).astype(self.dtype)
        summary["weights"] = _itq(rows / unit, self.rotation)
        return summary


@dataclass(frozen=True)
class Points:
    """The training points in units of their spread: distances have mean square 2.

    Attributes
    ----------
    rows : ndarray, shape (t, r)
        In the space of the weights.
    squares : ndarray, shape (t,)
        Of the whole rows' lengths.
    pairs : ndarray of float64, shape (t (t - 1) / 2,), or None
        Exact distances of all pairs, or None where the points are too many.
    """

    rows: np.ndarray
    squares: np.ndarray
    pairs: np.ndarray | None = None
    upper: tuple[np.ndarray, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        measured = self.rows[:: self._stride()]
        object.__setattr__(self, "upper", np.triu_indices(len(measured), 1))

    @classmethod
    def of(cls, arrays: Arrays) -> Points:
        """Take them from a state."""
        return cls(arrays["rows"], arrays["squares"], arrays.get("distances"))

    def among(self, places: np.ndarray | slice) -> np.ndarray:
        """Return the distances among some points, from the coordinates kept of them, shape (m, m)."""
        rows, squares = self.rows[places], self.squares[places]
        distances = squares[:, None] + squares - 2 * (rows @ rows.T)
        np.fill_diagonal(distances, 0)
        return np.sqrt(np.maximum(distances, 0, out=distances), out=distances)

    def measured(self, weights: np.ndarray) -> ByHamming:
        """Compare Hamming distances of the sign codes with distances, over all pairs or those of a sample."""
        rows = self.rows[:: self._stride()]
        signs = np.where(rows.astype(np.float64) @ weights >= 0, 1.0, -1.0).astype(np.float32)
        hamming = (0.5 * (weights.shape[1] - signs @ signs.T))[self.upper].astype(np.intp)
        distances = self.pairs
        if distances is None:
            distances = self.among(slice(None, None, self._stride()))[self.upper]
        return ByHamming.of_pairs(hamming, distances, weights.shape[1])

    def _stride(self) -> int:
        return 1 if self.pairs is not None else -(-len(self.rows) // _MEASURED_ROWS)


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
    distortion, scale = through_origin(found.least, found.largest)
    judged = {"distortion": np.array(unit * distortion)}
    if best is not None:
        judged |= {"best": weights, "best_distortion": np.array(best.distortion)}
    if last:
        judged |= {
            "weights": weights,
            "calibration": unit * calibration(found.pairs, found.total),
            "distortion_scale": np.array(unit * scale),
            "distortion_monotone": np.array(unit * monotone(found.least, found.largest)),
            "distortion_constant": np.array(unit * found.half_range()),
        }
        if (least_bits := found.least_bits()) is not None:
            judged["least_bits"] = np.array(least_bits)
    return judged


def _target(distances: np.ndarray, steps: Steps) -> np.ndarray:
    return np.square(distances) if steps.target == "sqeuclidean" else distances


def _spread(rows: np.ndarray, squares: np.ndarray) -> float:
    """Return the unit in which the points' distances have mean square 2; 1 where they are all the same."""
    centred = rows - rows.mean(axis=0)
    hidden = np.maximum(squares - np.einsum("ij,ij->i", rows, rows), 0)  # in what no coordinate shows
    square = float(np.einsum("ij,ij->", centred, centred) + hidden.sum()) / max(1, len(rows) - 1)
    return float(np.sqrt(square)) if 0 < square < np.inf else 1.0


def _itq(rows: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """Return ITQ's rotation of the leading columns, zero for the others, shape (r, b)."""
    leading = rows[:, : len(rotation)]
    for _ in range(_ITQ_STEPS):
        correlation = leading.T @ np.where(leading @ rotation >= 0, 1.0, -1.0)
        if not correlation.any():
            break
        rotation = orthogonal_factor(correlation)
    weights = np.zeros((rows.shape[1], rotation.shape[1]))
    weights[: len(rotation)] = rotation
    return weights
