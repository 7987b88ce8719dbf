"""The round loop: add up over the data, advance the state, commit, repeat until the method is done.

The loop knows neither Dask nor Zarr nor any method.  It ends in the same bits whichever executor adds up and
however often it was interrupted: everything that a round needs is in the committed state.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..cluster.threads import one_blas_thread
from ..tasks.protocols import DataInfo, RoundState
from .errors import ConfigError, Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..tasks.protocols import (
        Arrays,
        BlockReader,
        Executor,
        JSONScalar,
        LeafPlan,
        Method,
        StateReference,
    )


@dataclass(frozen=True)
class RunStarted:
    """Training begins, or goes on after round ``resumed_from``.

    Attributes
    ----------
    method : str
        The method's name.
    n_rows, n_features, n_leaves : int
        The data, and into how many leaves a whole pass is cut.
    resumed_from : int or None
        The last committed round, None for a fresh run.
    rounds : int or None
        The total number of rounds where it is known beforehand.
    """

    method: str
    n_rows: int
    n_features: int
    n_leaves: int
    resumed_from: int | None
    rounds: int | None


@dataclass(frozen=True)
class RoundCommitted:
    """Round ``round`` is on disk.

    Attributes
    ----------
    round : int
    rounds : int or None
        The total where it is known.
    scalars : mapping
        The state's scalars, among them what a person follows (``objective``, ``loss``).
    seconds : float
        How long the round took, its commit included.
    """

    round: int
    rounds: int | None
    scalars: Mapping[str, JSONScalar] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class RunFinished:
    """The method is done; ``model`` is the digest of what it learned."""

    round: int
    model: str


Event: TypeAlias = RunStarted | RoundCommitted | RunFinished


class CheckpointStore(Protocol):
    """Where states are committed: a run directory's checkpoints, or memory."""

    def latest(self) -> Any:
        """Return the last committed state (with ``round``, ``arrays``, ``scalars``), or None."""
        ...

    def commit(self, state: RoundState) -> None:
        """Keep ``state`` for good, or raise."""
        ...

    def reference(self) -> StateReference:
        """Return where the last committed state can be read back from."""
        ...


def ignore(event: Event) -> None:
    """Drop the event."""


def never() -> bool:
    """Never ask for a stop."""
    return False


def train(
    method: Method,
    reader: BlockReader,
    executor: Executor,
    checkpoints: CheckpointStore,
    plan: LeafPlan,
    seed: int,
    emit: Callable[[Event], None] = ignore,
    *,
    moments: Callable[[], Arrays] | None = None,
    should_stop: Callable[[], bool] = never,
) -> RoundState:
    """Train from the last committed round to the end and return the finished state.

    Parameters
    ----------
    method : Method
    reader : BlockReader
    executor : Executor
    checkpoints : CheckpointStore
        Every round is committed here, round 0 included.
    plan : LeafPlan
        How the rows are cut into leaves.
    seed : int
    emit : callable
        Called with each `Event`.
    moments : callable, optional
        Returns the mean and covariance that replace the data's own; called only if the run is fresh.
    should_stop : callable
        Asked after each committed round.

    Raises
    ------
    ConfigError
        If the method refuses this data (no rows, more ones than bits, ...).
    Interrupted
        If ``should_stop`` said so; the last round is committed.
    """
    with one_blas_thread():  # factorisations differ in bits between thread counts
        stored = checkpoints.latest()
        if stored is None:
            info = DataInfo(reader.n_rows, reader.n_features, reader.dtype)
            state = start_state(method, info, seed, None if moments is None else moments())
            checkpoints.commit(state)
        else:
            state = RoundState(stored.round, stored.arrays, stored.scalars)
        emit(_started(method, reader, plan, state, resumed=stored is not None))
        while not method.done(state):
            if should_stop():
                raise Interrupted(state.round)
            begun = time.perf_counter()
            summary = executor.reduce(
                reader, method.blocks(state, plan), method, checkpoints.reference(), fan_in=plan.fan_in
            )
            state = method.advance(state, summary)
            checkpoints.commit(state)
            seconds = time.perf_counter() - begun
            emit(RoundCommitted(state.round, method.rounds(state, plan), state.scalars, seconds))
    return state


def start_state(method: Method, info: DataInfo, seed: int, moments: Arrays | None = None) -> RoundState:
    """Return round 0; `ConfigError` if the method refuses data of this size."""
    try:
        return method.start(info, seed, moments=moments)
    except ValueError as error:
        raise ConfigError(f"{method.name} cannot be trained on this data: {error}") from error


def _started(
    method: Method, reader: BlockReader, plan: LeafPlan, state: RoundState, *, resumed: bool
) -> RunStarted:
    return RunStarted(
        method=method.name,
        n_rows=reader.n_rows,
        n_features=reader.n_features,
        n_leaves=len(plan),
        resumed_from=state.round if resumed else None,
        rounds=method.rounds(state, plan),
    )
