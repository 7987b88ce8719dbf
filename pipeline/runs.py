"""Runs: training that is kept in a directory, distributed or not, and goes on after any interruption.

``config.json`` is written before anything starts, each round is committed, the model is saved last; a run is
finished when its model is there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cluster import fingerprint
from ..cluster.serial import SerialExecutor
from ..storage import events
from ..storage.errors import DestinationExists, IdentityMismatch
from ..storage.identity import describe, differences
from ..storage.memory import MemoryCheckpoints
from ..storage.run import RunDirectory
from ..tasks.leaves import plan_leaves
from ..tasks.protocols import DataInfo, LeafPlan, RoundState
from .arrays import as_dataset, is_dataset, make_reader, spool, unwrap
from .config import RunConfig, method_table, resolve_path
from .errors import ConfigError, Interrupted, one_line
from .executors import SERIAL, Where, choose, open_executor
from .model import Model, load
from .preprocess import moments_of
from .progress import broadcast
from .train import Event, RoundCommitted, RunFinished, RunStarted, ignore, never, start_state, train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..storage.checkpoints import Checkpoints
    from ..storage.datasets import Dataset
    from ..tasks.protocols import Arrays, Executor, Method
    from .arrays import Vectors

MODEL = "model.zarr"


@dataclass(frozen=True)
class Control:
    """How a caller follows a run and stops it."""

    emit: Callable[[Event], None] = ignore
    note: Callable[[str], None] | None = None
    should_stop: Callable[[], bool] = never


@dataclass(frozen=True)
class Run:
    """An opened run: its directory, its configuration and its data."""

    directory: RunDirectory
    config: RunConfig
    method: Method
    dataset: Dataset
    preprocess: Dataset | None

    @property
    def path(self) -> Path:
        """The run directory."""
        return Path(self.directory.path)

    @property
    def plan(self) -> LeafPlan:
        """How the data is cut."""
        return LeafPlan(self.dataset.n_rows, self.config.block_rows, self.config.fan_in)

    def identity(self) -> dict[str, Any]:
        """Return everything that the run's bits depend on, as JSON values."""
        return {
            **self.config.identity(),
            "data": self.dataset.digest,
            "preprocess_on": None if self.preprocess is None else self.preprocess.digest,
            "environment": fingerprint.environment(),
        }


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
    return _go_on(run, where, control or Control(), allow_environment_change)


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
    return _go_on(run, where or choose(run.config.cluster), control or Control(), allow_environment_change)


def prepare(
    data: Vectors,
    path: str | os.PathLike[str],
    method: Method,
    *,
    where: Where = SERIAL,
    seed: int = 0,
    block_rows: int | None = None,
    fan_in: int = 8,
    preprocess_on: Vectors | None = None,
) -> Run:
    """Put data and configuration in place without starting anything."""
    path = Path(os.path.abspath(path))
    spooled = [folder for folder in (path / "data.zarr", path / "preprocess.zarr") if not folder.exists()]
    try:
        dataset = _placed(data, path / "data.zarr")
        preprocess = None if preprocess_on is None else _placed(preprocess_on, path / "preprocess.zarr")
        reader = dataset.reader()
        start_state(method, DataInfo(reader.n_rows, reader.n_features, reader.dtype), seed)
        plan = plan_leaves(
            dataset.n_rows,
            dataset.n_features,
            min_leaves=method.min_leaves,
            block_rows=block_rows,
            fan_in=fan_in,
        )
        config = RunConfig(
            data=_recorded_path(dataset, path),
            data_digest=dataset.digest,
            method=method_table(method),
            seed=seed,
            block_rows=plan.block_rows,
            fan_in=plan.fan_in,
            preprocess_on=None if preprocess is None else _recorded_path(preprocess, path),
            preprocess_digest=None if preprocess is None else preprocess.digest,
            cluster=where.table,
        )
        directory, config = _directory(path, config)
    except BaseException:
        for folder in spooled:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return Run(directory, config, method, dataset, preprocess)


def open_run(path: str | os.PathLike[str], *, data: str | os.PathLike[str] | None = None) -> Run:
    """Open an existing run and its data.

    Raises
    ------
    ConfigError
        If there is no run, or its configuration cannot be read by this version.
    """
    path = Path(os.path.abspath(path))
    if not RunDirectory.exists(path):
        raise ConfigError(f"there is no run at {path}; start one with: bitfleet train DATA {path}")
    directory = RunDirectory.open(path)
    config = RunConfig.from_json(directory.config)
    dataset = _expected(resolve_path(config.data, path) if data is None else data, config.data_digest)
    preprocess = None
    if config.preprocess_on is not None:
        preprocess = _expected(resolve_path(config.preprocess_on, path), config.preprocess_digest)
    return Run(directory, config, config.build_method(), dataset, preprocess)


def checkpoints_of(run: Run, *, allow_environment_change: bool = False) -> Checkpoints:
    """Return the run's checkpoints, bound to its identity."""
    return run.directory.checkpoints(run.identity(), allow_environment_change=allow_environment_change)


def recorded_seed(path: str | os.PathLike[str] | None) -> int | None:
    """Return the seed of the run at ``path``, None where there is no run."""
    if path is None or not RunDirectory.exists(Path(path)):
        return None
    return RunConfig.from_json(RunDirectory.open(Path(path)).config).seed


def fit_run(
    vectors: Vectors,
    path: str | os.PathLike[str] | None,
    method: Method,
    *,
    scheduler: Any,
    seed: int,
    preprocess_on: Vectors | None,
) -> Model:
    """Train for an estimator: like `start`, with a temporary run on this machine if ``path`` is None."""
    where = choose(scheduler)
    if path is not None:
        return start(vectors, path, method, where=where, seed=seed, preprocess_on=preprocess_on)
    if not where.on_this_machine:
        raise ConfigError(
            f"workers of {where.table.scheduler} read data and state from a folder that all of them see: "
            "give checkpoint=, a path on a shared file system"
        )
    with tempfile.TemporaryDirectory(prefix="bitfleet-") as folder:
        model = start(
            vectors, Path(folder) / "run", method, where=where, seed=seed, preprocess_on=preprocess_on
        )
        return replace(model, path=None)


def fit_in_memory(
    vectors: Vectors, method: Method, seed: int, scratch: Path, *, preprocess_on: Vectors | None = None
) -> Model:
    """Train in this process and keep nothing on disk but what is too large for memory."""
    reader = make_reader(vectors, scratch / "data")
    plan = plan_leaves(reader.n_rows, reader.n_features, min_leaves=method.min_leaves)
    executor = SerialExecutor()

    def moments() -> Arrays:
        return moments_of(make_reader(preprocess_on, scratch / "preprocess"), executor, fan_in=plan.fan_in)

    state = train(
        method, reader, executor, MemoryCheckpoints(), plan, seed,
        moments=None if preprocess_on is None else moments,
    )  # fmt: skip
    return Model(method, state, DataInfo(reader.n_rows, reader.n_features, reader.dtype))


def _go_on(run: Run, where: Where, control: Control, allow_environment_change: bool) -> Model:
    """Train from the last committed round to the end and save the model."""
    target = run.path / MODEL
    finished = target.exists()
    checkpoints = checkpoints_of(run, allow_environment_change=allow_environment_change or finished)
    stored = checkpoints.latest()  # also compares the identity
    if finished:
        return load(target)
    if stored is not None and run.method.done(RoundState(stored.round, stored.arrays, stored.scalars)):
        where = SERIAL  # all rounds are there, only the model is missing
    emit = broadcast(_log_to(run.directory.events()), control.emit)
    with _recorded(run), events.Heartbeat(run.path):
        with open_executor(
            where, shared=run.path, allow_environment_change=allow_environment_change, note=control.note
        ) as executor:
            state = _train(run, executor, checkpoints, emit, control.should_stop)
        reader = run.dataset.reader()
        model = Model(run.method, state, DataInfo(reader.n_rows, reader.n_features, reader.dtype))
        model = _save(model, target)
        emit(RunFinished(state.round, model.digest))
    return model


def _train(
    run: Run,
    executor: Executor,
    checkpoints: Checkpoints,
    emit: Callable[[Event], None],
    should_stop: Callable[[], bool],
) -> RoundState:
    preprocess = run.preprocess
    moments = None
    if preprocess is not None:
        moments = partial(moments_of, preprocess.reader(), executor, fan_in=run.config.fan_in)
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
            should_stop=should_stop,
        )
    except Interrupted as stop:
        raise Interrupted(stop.round, run.path) from None


def _save(model: Model, target: Path) -> Model:
    """Save the model; if another driver did so first, it must have got the same bits."""
    try:
        model.save(target)
    except DestinationExists:
        if load(target).digest != model.digest:
            raise
    return replace(model, path=target)


@contextmanager
def _recorded(run: Run) -> Iterator[None]:
    """Write into the run's events that a driver began, and how it ended unless it finished."""
    log = run.directory.events()
    log.append(events.RUN_STARTED, method=run.method.name, rows=run.dataset.n_rows)
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as stop:
        log.append(events.RUN_INTERRUPTED, reason=one_line(stop))
        raise
    except BaseException as error:
        log.append(events.RUN_FAILED, error=one_line(error), type=type(error).__name__)
        raise


def _log_to(log: events.EventLog) -> Callable[[Event], None]:
    """Return a sink that writes events into the run's log."""

    def emit(event: Event) -> None:
        match event:
            case RunStarted():
                log.append("training", **asdict(event))
            case RoundCommitted():
                log.append("round", **(asdict(event) | {"scalars": dict(event.scalars)}))
            case RunFinished():
                log.append(events.RUN_FINISHED, **asdict(event))

    return emit


def _placed(vectors: Vectors, path: Path) -> Dataset:
    """Return the data set that ``vectors`` is, or write what is in memory or to be computed to ``path``."""
    return as_dataset(vectors) if is_dataset(vectors) else spool(unwrap(vectors), path)


def _recorded_path(dataset: Dataset, run: Path) -> str:
    """Return what ``config.json`` says: relative to the run for data inside it, else absolute."""
    path = Path(dataset.path)
    return str(path.relative_to(run)) if path.is_relative_to(run) else str(path)


def _expected(path: str | os.PathLike[str], digest: str | None) -> Dataset:
    dataset = as_dataset(path)
    if dataset.digest != digest:
        raise IdentityMismatch(
            f"{dataset.path} is not the data of this run: expected digest {digest}, got {dataset.digest}"
        )
    return dataset


def _directory(path: Path, config: RunConfig) -> tuple[RunDirectory, RunConfig]:
    """Make the run, or open the one that is there if it differs at most in where it computes."""
    if not RunDirectory.exists(path):
        return RunDirectory.create(path, config.to_json()), config
    there = RunDirectory.open(path)
    stored = RunConfig.from_json(there.config)
    found = list(differences(stored.identity(), config.identity()))
    if found:
        raise IdentityMismatch(
            f"{path} belongs to another run:\n{describe(found)}\n"
            "choose another run directory, or give what the run was started with"
        )
    return there, stored
