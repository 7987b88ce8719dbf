"""Runs: training that is kept in a directory, distributed or not, and goes on after any interruption.

``config.json`` is written before anything starts, each round is committed, the model is saved last; a run is
finished when its model is there.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..storage import events, requests
from ..storage.errors import CorruptObject, DestinationExists
from ..tasks.protocols import DataInfo, RoundState
from .errors import Interrupted
from .executors import SERIAL, Where, choose, open_executor
from .misgivings import tell_misgivings
from .model import Model, load
from .opening import Run, checkpoints_of, open_run, prepare
from .preprocess import moments_of
from .progress import broadcast
from .recording import log_to, record_memory, recorded_run
from .train import Event, RunFinished, ignore, never, train

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from ..storage.checkpoints import Checkpoints
    from ..storage.places import Place
    from ..tasks.protocols import Executor, Method
    from .arrays import Vectors

MODEL = "model.zarr"


@dataclass(frozen=True)
class Control:
    """How a caller follows a run and stops it.

    ``of_job``: training is a part of a job, which gives the signs of life and has taken back an old request
    to stop.  ``submission``: the one whose job it is, which can be asked to stop by name.
    """

    emit: Callable[[Event], None] = ignore
    note: Callable[[str], None] | None = None
    should_stop: Callable[[], bool] = never
    of_job: bool = False
    submission: str | None = None

    def stop_asked(self, run: Place) -> str | None:
        """Return who has asked for a stop through the run's folder and when, None if nobody has."""
        return requests.stop_asked(run, self.submission)


def start(
    data: Vectors,
    path: str | os.PathLike[str],
    method: Method,
    *,
    where: Where = SERIAL,
    seed: int = 0,
    block_rows: int | None = None,
    fan_in: int = 8,
    preprocess_on: Vectors | None = None,
    allow_environment_change: bool = False,
    control: Control | None = None,
) -> Model:
    """Train in the run directory ``path``, or go on there if it holds the same run.

    Raises
    ------
    IdentityMismatch
        If the directory holds a run of another method, seed, tree or data.
    """
    run = prepare(
        data, path, method, where=where, seed=seed, block_rows=block_rows, fan_in=fan_in,
        preprocess_on=preprocess_on,
    )  # fmt: skip
    return go_on(run, where, control, allow_environment_change=allow_environment_change)


def resume(
    path: str | os.PathLike[str],
    *,
    where: Where | None = None,
    data: str | os.PathLike[str] | None = None,
    allow_environment_change: bool = False,
    control: Control | None = None,
) -> Model:
    """Go on with the run at ``path``; a finished one returns its model.

    ``where`` defaults to what the run recorded, and so does ``data``; the data's digest must be the same
    wherever it is now.
    """
    run = open_run(path, data=data)
    where = where or choose(run.config.cluster)
    return go_on(run, where, control, allow_environment_change=allow_environment_change)


def go_on(
    run: Run, where: Where, control: Control | None = None, *, allow_environment_change: bool = False
) -> Model:
    """Train an opened run from its last committed round to the end and save the model."""
    control = control or Control()
    target = run.path / MODEL
    finished = target.exists()
    checkpoints = checkpoints_of(run, allow_environment_change=allow_environment_change or finished)
    stored = checkpoints.latest()  # also compares the identity
    if finished:
        return load(run.path)
    if stored is not None and run.method.done(RoundState(stored.round, stored.arrays, stored.scalars)):
        where = SERIAL  # all rounds are there, only the model is missing
    if not control.of_job:
        requests.withdraw(run.path)
    emit = broadcast(log_to(run.directory.events()), control.emit)
    alive = nullcontext() if control.of_job else events.Heartbeat(run.path)
    with recorded_run(run, of_job=control.of_job), alive:
        with open_executor(
            where, shared=run.path, allow_environment_change=allow_environment_change, note=control.note
        ) as executor:
            state = _train(run, executor, checkpoints, emit, control)
            record_memory(run.directory.events(), executor)
        reader = run.dataset.reader()
        model = Model(run.method, state, DataInfo(reader.n_rows, reader.n_features, reader.dtype))
        model = _save(model, target)
        for sentence in tell_misgivings(run.method, state.scalars, control.note):
            run.directory.events().append("warning", message=sentence)
        emit(RunFinished(state.round, model.digest))
    return model


def _train(
    run: Run,
    executor: Executor,
    checkpoints: Checkpoints,
    emit: Callable[[Event], None],
    control: Control,
) -> RoundState:
    preprocess = run.preprocess
    moments = None
    if preprocess is not None:
        moments = partial(moments_of, preprocess.reader(), executor, run.method, fan_in=run.config.fan_in)
    try:
        return train(
            run.method,
            run.dataset.reader(),
            executor,
            checkpoints,
            run.plan,
            run.config.seed,
            emit,
            moments=moments,
            should_stop=lambda: control.should_stop() or control.stop_asked(run.path) is not None,
        )
    except Interrupted as stop:
        raise Interrupted(stop.round, run.path, control.stop_asked(run.path)) from None


def _save(model: Model, target: Place) -> Model:
    """Save the model; if another driver did so first, it must have got the same bits."""
    try:
        model.save(target)
    except DestinationExists:
        if load(target).digest != model.digest:
            raise CorruptObject(f"{target} is not the model of this run; remove it and resume") from None
    return replace(model, path=target)
