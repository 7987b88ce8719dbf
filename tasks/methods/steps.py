"""Union steps: a pass over the data in several groups of whole leaves, so that no block is read twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import data_info, integer

if TYPE_CHECKING:
    import numpy as np

    from ..protocols import BlockAddress, JSONScalar, LeafPlan, RoundState

STEPS_PER_PASS = 5
LEAST_STEP = 1000


def rows_of_a_step(plan: LeafPlan, n_bits: int) -> int:
    """Return how many rows a step has at least: a fifth of the data, but not fewer than what a fit needs."""
    return max(LEAST_STEP, n_bits, -(-plan.n_rows // STEPS_PER_PASS))


def deal(plan: LeafPlan, rows: int, rng: np.random.Generator) -> list[list[int]]:
    """Deal the leaves of a pass into steps of at least ``rows`` rows, at random; ascending in a step."""
    steps: list[list[int]] = [[]]
    dealt, left = 0, plan.n_rows
    for leaf in rng.permutation(len(plan)).tolist():
        if dealt >= rows and left >= rows:
            steps.append([])
            dealt = 0
        steps[-1].append(leaf)
        dealt += len(plan.leaf(leaf))
        left -= len(plan.leaf(leaf))
    return [sorted(step) for step in steps]


def current(state: RoundState, plan: LeafPlan, steps: list[list[int]]) -> list[BlockAddress]:
    """Return the leaves of the step that the state has come to in its pass."""
    behind = counter(state, "rows_in_epoch")
    for step in steps:
        if behind <= 0:
            return [plan.leaf(i) for i in step]
        behind -= sum(len(plan.leaf(i)) for i in step)
    raise ValueError("the state and the plan of leaves do not belong together")


def counter(state: RoundState, key: str) -> int:
    """Return a scalar that begins at 0."""
    return integer(state, key) if key in state.scalars else 0


def count_rows(state: RoundState, count: int) -> dict[str, JSONScalar]:
    """Return in which pass and where in it training stands after ``count`` more rows."""
    epoch, rows = counter(state, "epoch"), counter(state, "rows_in_epoch") + count
    if rows >= data_info(state).n_rows:
        epoch, rows = epoch + 1, 0
    return {"epoch": epoch, "rows_in_epoch": rows}
