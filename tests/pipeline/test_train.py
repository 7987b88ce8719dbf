"""The round loop, with a method whose result can be written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.cluster.threads import controller
from bitfleet.pipeline.errors import ConfigError, Interrupted
from bitfleet.pipeline.train import Event, RoundCommitted, RunStarted, train
from bitfleet.storage.datasets import ArrayReader
from bitfleet.storage.memory import MemoryCheckpoints
from bitfleet.tasks.protocols import DataInfo, LeafPlan, RoundState
from hypothesis import given, settings
from hypothesis import strategies as st

ROWS = np.arange(60, dtype=np.float64).reshape(20, 3)
PLAN = LeafPlan(20, 6, 2)


@dataclass(frozen=True)
class Totals:
    scale: float
    sequential: ClassVar[bool] = False

    def init(self) -> dict[str, np.ndarray]:
        return {"total": np.zeros(3)}

    def update(self, state: dict[str, np.ndarray], block: Any) -> dict[str, np.ndarray]:
        return {"total": state["total"] + self.scale * block.vectors.sum(axis=0)}

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"total": left["total"] + right["total"]}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return state


@dataclass(frozen=True)
class Walk:
    """Round r adds r + 1 times the column sums: after R rounds there are R (R + 1) / 2 of them."""

    n_rounds: int
    name: ClassVar[str] = "walk"
    sparse: ClassVar[bool] = False
    min_leaves: ClassVar[int] = 1

    def start(self, info: DataInfo, seed: int, moments: Any = None) -> RoundState:
        if info.n_features != 3:
            raise ValueError("expected three features")
        offset = np.zeros(3) if moments is None else moments["mean"]
        return RoundState(0, {"w": offset}, {"seed": seed})

    def blocks(self, state: RoundState, plan: LeafPlan) -> Any:
        return plan.leaves()

    def accumulator(self, state: RoundState) -> Totals:
        return Totals(state.round + 1.0)

    def advance(self, state: RoundState, summary: Any) -> RoundState:
        w = state.arrays["w"] + summary["total"]
        return RoundState(state.round + 1, {"w": w}, {**state.scalars, "loss": float(w[0])})

    def done(self, state: RoundState) -> bool:
        return state.round >= self.n_rounds

    def rounds(self, state: RoundState, plan: LeafPlan) -> int:
        return self.n_rounds

    def encoder(self, state: RoundState) -> Any:
        raise NotImplementedError


def expected(n_rounds: int) -> np.ndarray:
    return ROWS.sum(axis=0) * n_rounds * (n_rounds + 1) / 2


def run(n_rounds: int, checkpoints: MemoryCheckpoints | None = None, **options: Any) -> RoundState:
    store = MemoryCheckpoints() if checkpoints is None else checkpoints
    return train(Walk(n_rounds), ArrayReader(ROWS), SerialExecutor(), store, PLAN, 5, **options)


def test_it_runs_every_round_and_reports_each() -> None:
    events: list[Event] = []
    checkpoints = MemoryCheckpoints()
    state = run(4, checkpoints, emit=events.append)
    np.testing.assert_array_equal(state.arrays["w"], expected(4))
    assert [row["round"] for row in checkpoints.history()] == [0, 1, 2, 3, 4]
    assert isinstance(events[0], RunStarted)
    assert (events[0].resumed_from, events[0].n_leaves, events[0].rounds) == (None, 4, 4)
    committed = [event for event in events if isinstance(event, RoundCommitted)]
    assert [event.round for event in committed] == [1, 2, 3, 4]
    assert [event.scalars["loss"] for event in committed] == [expected(r)[0] for r in (1, 2, 3, 4)]


@settings(deadline=None, max_examples=25)
@given(stops=st.lists(st.integers(0, 3), max_size=4))
def test_stops_anywhere_change_nothing(stops: list[int]) -> None:
    checkpoints = MemoryCheckpoints()
    for after in stops:
        latest = checkpoints.latest()
        expected_stop = after + (0 if latest is None else latest.round)
        if expected_stop >= 6:
            break
        answers = iter([False] * after + [True])
        with pytest.raises(Interrupted) as stop:
            run(6, checkpoints, should_stop=lambda answers=answers: next(answers))
        assert stop.value.round == expected_stop
    state = run(6, checkpoints)
    np.testing.assert_array_equal(state.arrays["w"], expected(6))
    assert [row["round"] for row in checkpoints.history()] == list(range(7))


def test_a_finished_run_computes_nothing() -> None:
    checkpoints = MemoryCheckpoints()
    run(2, checkpoints)
    events: list[Event] = []
    run(2, checkpoints, emit=events.append, should_stop=lambda: True)
    assert [type(event) for event in events] == [RunStarted]


def test_moments_are_asked_for_only_at_the_start() -> None:
    checkpoints = MemoryCheckpoints()
    asked = []

    def moments() -> dict[str, np.ndarray]:
        asked.append(1)
        return {"mean": np.full(3, 7.0)}

    with pytest.raises(Interrupted):
        run(3, checkpoints, moments=moments, should_stop=lambda: True)
    state = run(3, checkpoints, moments=moments)
    assert asked == [1]
    np.testing.assert_array_equal(state.arrays["w"], expected(3) + 7)


def test_data_that_the_method_refuses_is_a_configuration_error() -> None:
    reader = ArrayReader(ROWS[:, :2])
    with pytest.raises(ConfigError, match=r"walk cannot be trained on this data: expected three features"):
        train(Walk(1), reader, SerialExecutor(), MemoryCheckpoints(), PLAN, 0)


def test_factorisations_of_a_round_see_one_blas_thread() -> None:
    import threadpoolctl

    def blas_threads() -> list[int]:  # of NumPy's and SciPy's; another library may have brought its own
        return [pool["num_threads"] for pool in controller().info() if pool["user_api"] == "blas"]

    seen: list[list[int]] = []

    class Watching(Walk):
        def advance(self, state: RoundState, summary: Any) -> RoundState:
            seen.append(blas_threads())
            return super().advance(state, summary)

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        train(Watching(3), ArrayReader(ROWS), SerialExecutor(), MemoryCheckpoints(), PLAN, 0)
        assert blas_threads() == before
    assert len(before) > 0
    assert seen == [[1] * len(before)] * 3
