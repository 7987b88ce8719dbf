"""One stage of column generation: take in what was found, solve on the active secants, let idle ones go.

On the active secants either solver of near-isometric hashing goes on where it stopped: the smooth one with
Adam's moments, the paper's with u and y of each secant (new secants begin at zero).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..random import stream
from . import nibh_admm
from .nibh_admm import Secants
from .nibh_cg_polish import polish
from .nibh_measure import ByHamming, through_origin
from .nibh_smooth import LENGTH, SHRINK, sharpness, signed_scale

if TYPE_CHECKING:
    from ..protocols import Arrays

_DUALS = ("residual", "multipliers")
_SECANTS = ("first", "second", "distance", "age", *_DUALS)
_TABLE = ("low", "high")


@dataclass(frozen=True)
class Stage:
    """What a stage needs to know beside arrays."""

    solver: str
    slope: float
    number: int  # steps behind
    n_steps: int
    n_total: int
    fix_scale: bool
    threshold: float
    max_age: int
    max_secants: int
    hard: bool
    last: bool = False  # of the searches
    polishing: int = 0  # which round of the polish, from 1; 0 before it
    n_moves: int = 0
    seed: int = 0
    length: float = 1.0  # of steps, as a multiple of their usual length


def stage(
    arrays: Arrays, scalars: dict[str, float], how: Stage, found: Arrays | None
) -> dict[str, np.ndarray]:
    """Return all that the next round needs.

    Parameters
    ----------
    arrays, scalars : mapping
        Of the state, or of what was gathered.
    how : Stage
    found : mapping or None
        Of `Search`; None in the first stage, which has only the random secants.
    """
    summary: dict[str, np.ndarray] = {}
    kept = {name: arrays[name] for name in (*_SECANTS, "point_numbers", "point_rows") if name in arrays}
    kept.setdefault("age", np.zeros(len(kept["first"]), np.int64))
    if found is not None:
        summary = _judged(arrays, scalars, found)
        if how.last:
            return summary
        if how.polishing:
            return summary | _polished({**arrays, **summary}, scalars["unit"], kept, how, found)
        kept = _joined(kept, _chosen(found, how.max_secants - len(kept["first"]), how))
    if how.solver == "admm":
        for name in _DUALS:
            kept.setdefault(name, np.zeros(len(kept["first"])))
    secants = _secants(kept)
    solve = _admm if how.solver == "admm" else _smooth
    solved = solve(secants, {**arrays, **kept}, scalars, how)
    weights, scale = solved["weights"], float(solved["scale"])
    residual = np.abs(scale * _lengths(secants, weights, how) - secants.distances)
    largest = float(residual.max(initial=0.0))
    kept |= {name: solved[name] for name in _DUALS if name in solved}
    kept["age"] = np.where(residual > how.threshold * largest, 0, kept["age"] + 1)
    kept = _without(kept, kept["age"] >= how.max_age)
    summary |= {name: array for name, array in solved.items() if name not in _DUALS}
    summary["most_active"] = np.array(max(len(secants.first), int(scalars.get("most_active", 0))))
    return summary | kept | {"largest_residual": np.array(largest), "n_active": np.array(len(kept["first"]))}


def _polished(
    arrays: Arrays, unit: float, kept: dict[str, np.ndarray], how: Stage, found: Arrays
) -> dict[str, np.ndarray]:
    """Return the best weights after some moves on the pool, and the pool with what the search has found."""
    if how.polishing == 1:  # active secants of the solver are no longer of use
        kept = _without(kept, np.ones(len(kept["first"]), bool))
    room = max(how.max_secants - len(kept["first"]), how.max_secants // 4)
    pool = _joined(kept, _chosen(found, room, how))
    delta, scale = through_origin(*_best_extremes(arrays, unit))
    hard = replace(how, hard=True)
    error = np.abs(scale * _lengths(_secants(pool), arrays["best"], hard) - pool["distance"])
    idle = np.zeros(len(error), bool)
    idle[np.argsort(-error, kind="stable")[how.max_secants :]] = True
    pool = _without(pool, idle)
    rng = stream(how.seed, "nibh.polish", how.polishing)
    weights, n_kept = polish(_secants(pool), arrays["best"], scale, delta, how.n_moves, rng)
    return pool | {
        "weights": weights,
        "scale": np.array(scale),
        "largest_residual": np.array(delta),
        "n_moves": np.array(n_kept),
        "n_active": np.array(len(pool["first"])),
    }


def _secants(kept: dict[str, np.ndarray]) -> Secants:
    first, second = (np.searchsorted(kept["point_numbers"], kept[name]) for name in ("first", "second"))
    return Secants(kept["point_rows"].astype(np.float64), first, second, kept["distance"])


def _chosen(found: Arrays, room: int, how: Stage) -> dict[str, np.ndarray]:
    """Return as many candidates as there is room for: half of them the worst, the others a uniform sample."""
    worst = np.argsort(-found["residual"], kind="stable")
    order = np.argsort(found["hash"], kind="stable")
    room = max(0, room)
    if room < len(worst):
        taken = worst[: room - room // 2]
        others = order[~np.isin(order, taken)][: room // 2]
        worst = np.sort(np.concatenate([taken, others]))
    return {name: found[name][worst] for name in ("first", "second", "distance", "first_row", "second_row")}


def _joined(kept: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return active and new secants in the order of their row numbers, and the points at their ends."""
    size = len(new["first"])
    dtype = kept["point_rows"].dtype
    numbers = np.concatenate([kept["point_numbers"], new["first"], new["second"]])
    rows = np.concatenate(
        [kept["point_rows"], new["first_row"].astype(dtype), new["second_row"].astype(dtype)]
    )
    numbers, where = np.unique(numbers, return_index=True)
    joined = {"point_numbers": numbers, "point_rows": rows[where]}
    empty = {"age": np.zeros(size, np.int64), **{name: np.zeros(size) for name in _DUALS}}
    for name in _SECANTS:
        if name in kept:
            joined[name] = np.concatenate([kept[name], new.get(name, empty.get(name))])
    order = np.lexsort((joined["second"], joined["first"]))
    return joined | {name: joined[name][order] for name in _SECANTS if name in joined}


def _without(kept: dict[str, np.ndarray], idle: np.ndarray) -> dict[str, np.ndarray]:
    """Return the secants that are not idle, and the points at their ends."""
    left = {name: kept[name][~idle] for name in _SECANTS if name in kept}
    ends = np.isin(kept["point_numbers"], np.concatenate([left["first"], left["second"]]))
    return left | {"point_numbers": kept["point_numbers"][ends], "point_rows": kept["point_rows"][ends]}


def _lengths(secants: Secants, weights: np.ndarray, how: Stage) -> np.ndarray:
    """Return the secants' soft distances, or those of the sign codes."""
    if not how.hard:
        return secants.soft(weights, how.slope)[1]
    bits = secants.rows @ weights >= 0
    return np.count_nonzero(bits[secants.first] != bits[secants.second], axis=1).astype(np.float64)


def _smooth(secants: Secants, arrays: Arrays, scalars: dict[str, float], how: Stage) -> dict[str, np.ndarray]:
    """Make the stage's steps on a smooth maximum, as `nibh_smooth` does on batches."""
    c, scale = secants.distances, scalars.get("scale", 0.0)
    weights = arrays["weights"] if "momentum" in arrays else nibh_admm.level(arrays["weights"], secants.rows)
    momentum = arrays.get("momentum", np.zeros_like(weights))
    variance = arrays.get("variance", np.zeros_like(weights))
    for number in range(how.number, how.number + how.n_steps):
        share = number / max(1, how.n_total - 1)
        codes, v = secants.soft(weights, how.slope)
        scale = scale or nibh_admm.least_squares_scale(v, c, 1.0)
        error = scale * v - c
        sizes = np.abs(error)
        forces = np.exp(sharpness(share) * (sizes - sizes.max(initial=0.0))) * np.sign(error)
        mass = np.abs(forces).sum()
        forces /= mass if mass > 0 else 1.0
        gradient = scale * secants.gradient(codes, how.slope, forces)
        if not (how.fix_scale and how.number):
            scale = signed_scale(scale, float(forces @ v))
        momentum = 0.9 * momentum + 0.1 * gradient
        variance = 0.999 * variance + 0.001 * gradient * gradient
        even = np.sqrt(variance / (1 - 0.999 ** (number + 1))) + 1e-12
        length = how.length * LENGTH * (1 - (1 - SHRINK) * share) * float(np.abs(weights).mean())
        weights = weights - length * (momentum / (1 - 0.9 ** (number + 1))) / even
        weights = nibh_admm.level(weights, secants.rows)
    return {"weights": weights, "momentum": momentum, "variance": variance, "scale": np.array(scale)}


def _admm(secants: Secants, arrays: Arrays, scalars: dict[str, float], how: Stage) -> dict[str, np.ndarray]:
    """Make the stage's turns of the paper's solver."""
    now = nibh_admm.begin(secants, arrays["weights"], how.slope)
    if "scale" in scalars:
        residual, multipliers = arrays["residual"], arrays["multipliers"]
        scale, curvature = scalars["scale"], scalars["curvature"]
        now = nibh_admm.Iterate(arrays["weights"], residual, multipliers, scale, curvature)
    for _ in range(how.n_steps):
        now = nibh_admm.turn(secants, now, how.slope, fix_scale=how.fix_scale and how.number > 0)
    return {
        "weights": now.weights,
        "residual": now.residual,
        "multipliers": now.multipliers,
        "scale": np.array(now.scale),
        "curvature": np.array(now.curvature),
    }


def _judged(arrays: Arrays, scalars: dict[str, float], found: Arrays) -> dict[str, np.ndarray]:
    """Return the weights that the search has seen if their sign codes are the best so far."""
    extremes = np.sqrt(found["low"]), np.where(found["high"] >= 0, np.sqrt(np.abs(found["high"])), -np.inf)
    distortion = through_origin(*extremes)[0]
    violating = np.count_nonzero(found["residual"] > scalars["largest_residual"])
    judged = {"n_violators": np.array(violating)}
    if distortion < scalars.get("best_distortion", np.inf):
        judged |= {"best": arrays["weights"], "best_distortion": np.array(distortion)}
        judged["distortion"] = np.array(distortion)
        present = np.isfinite(extremes[0])  # infinite bounds of no pairs do not go into a state
        for name, values in zip(_TABLE, extremes, strict=True):
            judged[f"best_{name}"] = np.where(present, values, -1.0)
    return judged


def _best_extremes(arrays: Arrays, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """Return least and largest distances of the best weights by Hamming distance, in units."""
    low, high = arrays["best_low"], arrays["best_high"]
    return np.where(low >= 0, low / unit, np.inf), np.where(low >= 0, high / unit, -np.inf)


def reported(arrays: Arrays, summary: Arrays) -> dict[str, np.ndarray]:
    """Return the final weights, their distortions over all pairs, and their calibration.

    Parameters
    ----------
    arrays : mapping
        Of the state.
    summary : mapping
        Of `GatherMeasured`.
    """
    least, largest = _best_extremes(arrays, 1.0)
    table = ByHamming(least, largest, summary["pairs"], summary["total"], float(summary["square"]))
    return {"weights": arrays["best"]} | table.reported()
