"""A run before and between its drivers: what it is, where its data is, and what it must agree with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster import fingerprint
from ..storage.errors import IdentityMismatch
from ..storage.identity import describe, differences
from ..storage.places import inside, place, remove_tree
from ..storage.run import RunDirectory, is_stream
from ..tasks.leaves import plan_leaves
from ..tasks.protocols import DataInfo, LeafPlan
from .arrays import as_dataset, check_shape, is_dataset, spool, unwrap
from .config import RunConfig, method_table, resolve_path
from .errors import ConfigError
from .executors import SERIAL, Where
from .labelled import bare, check_needed, checked, split
from .rehearsal import Needs, rehearse
from .train import start_state
from .validation import validated

if TYPE_CHECKING:
    import os

    from ..storage.checkpoints import Checkpoints
    from ..storage.datasets import Dataset
    from ..storage.places import Place
    from ..tasks.protocols import Method
    from .arrays import Vectors


@dataclass(frozen=True)
class Run:
    """An opened run: its directory, its configuration and its data."""

    directory: RunDirectory
    config: RunConfig
    method: Method
    dataset: Dataset
    preprocess: Dataset | None

    @property
    def path(self) -> Place:
        """The run directory."""
        return self.directory.path

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
    path = place(path)
    spooled = [folder for folder in (path / "data.zarr", path / "preprocess.zarr") if not folder.exists()]
    try:
        dataset = _placed(data, path / "data.zarr")
        check_needed(method, there=dataset.has_labels)
        preprocess = None if preprocess_on is None else _placed(preprocess_on, path / "preprocess.zarr")
        reader = dataset.reader()
        start_state(method, DataInfo(reader.n_rows, reader.n_features, reader.dtype), seed)
        plan = plan_of(dataset, method, block_rows, fan_in)
        if where.table.memory_limit is not None:
            check_memory(rehearse(method, reader, plan, seed), where)
        table = {
            "data": _recorded_path(dataset, path),
            "data_digest": dataset.digest,
            "method": method_table(method),
            "seed": seed,
            "block_rows": plan.block_rows,
            "fan_in": plan.fan_in,
            "preprocess_on": None if preprocess is None else _recorded_path(preprocess, path),
            "preprocess_digest": None if preprocess is None else preprocess.digest,
            "cluster": where.table,
        }
        config = validated(RunConfig, table, "the run")
        directory, config = _directory(path, config)
    except BaseException:
        for folder in spooled:
            remove_tree(folder)
        raise
    return Run(directory, config, method, dataset, preprocess)


def open_run(path: str | os.PathLike[str], *, data: str | os.PathLike[str] | None = None) -> Run:
    """Open an existing run and its data.

    Raises
    ------
    ConfigError
        If there is no run, or its configuration cannot be read by this version.
    """
    path = place(path)
    if not RunDirectory.exists(path):
        raise ConfigError(f"there is no run at {path}; start one with: bitfleet train DATA {path}")
    if is_stream(path):
        raise ConfigError(f"{path} is a stream; go on with: bitfleet stream SOURCE {path}")
    directory = RunDirectory.open(path)
    config = RunConfig.from_json(directory.config)
    dataset = _expected(resolve_path(config.data, path) if data is None else data, config.data_digest)
    preprocess = None
    if config.preprocess_on is not None:
        preprocess = _expected(resolve_path(config.preprocess_on, path), config.preprocess_digest)
    return Run(directory, config, config.build_method(), dataset, preprocess)


def foresee(
    data: str | os.PathLike[str] | Dataset,
    method: Method,
    *,
    seed: int = 0,
    block_rows: int | None = None,
    fan_in: int = 8,
    where: Where = SERIAL,
) -> dict[str, Any]:
    """Tell what training would do, without writing anything; its first rounds are rehearsed on one block.

    Returns
    -------
    dict
        ``method``, ``rows``, ``features``, ``rounds`` (None if unknown), ``blocks``, ``block_rows``;
        ``block_bytes``, what a block takes in a worker's memory; ``worker_peak_bytes``, the projected peak of
        a worker (with the blocks that it keeps, if its limit is known); ``driver_peak_bytes``, what the step
        between rounds allocates.

    Raises
    ------
    ConfigError
        If workers of the limit that ``where`` names could not do it.
    """
    dataset = as_dataset(data)
    check_needed(method, there=dataset.has_labels)
    reader = dataset.reader()
    state = start_state(method, DataInfo(reader.n_rows, reader.n_features, reader.dtype), seed)
    plan = plan_of(dataset, method, block_rows, fan_in)
    rows = min(plan.block_rows, plan.n_rows)
    needs = rehearse(method, reader, plan, seed)
    limit = check_memory(needs, where)
    return {
        "method": method.name,
        "rows": dataset.n_rows,
        "features": dataset.n_features,
        "rounds": method.rounds(state, plan),
        "blocks": len(plan),
        "block_rows": plan.block_rows,
        "block_bytes": rows * dataset.n_features * np.dtype(reader.dtype).itemsize,
        "worker_peak_bytes": needs.peak(where.table.threads_per_worker, limit),
        "driver_peak_bytes": needs.driver_bytes,
    }


def check_memory(needs: Needs, where: Where) -> int | None:
    """Return the memory limit of the workers that ``where`` will start, None if it names none.

    Raises
    ------
    ConfigError
        If they could not do what is needed; says with how much they could.
    """
    if where.table.memory_limit is None:
        return None
    from ..cluster.limits import n_bytes

    limit = n_bytes(where.table.memory_limit)
    needs.check(where.table.threads_per_worker, limit, "a worker")
    return limit


def checkpoints_of(run: Run, *, allow_environment_change: bool = False) -> Checkpoints:
    """Return the run's checkpoints, bound to its identity."""
    return run.directory.checkpoints(run.identity(), allow_environment_change=allow_environment_change)


def recorded_seed(path: str | os.PathLike[str] | None) -> int | None:
    """Return the seed of the run at ``path``, None where there is no run."""
    if path is None or not RunDirectory.exists(path):
        return None
    return RunConfig.from_json(RunDirectory.open(path).config).seed


def plan_of(dataset: Dataset, method: Method, block_rows: int | None, fan_in: int) -> LeafPlan:
    """Cut a data set into the leaves of a method."""
    try:
        return plan_leaves(
            dataset.n_rows,
            dataset.n_features,
            min_leaves=method.min_leaves,
            block_rows=block_rows,
            fan_in=fan_in,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _placed(vectors: Vectors, path: Place) -> Dataset:
    """Return the data set that ``vectors`` is, or write what is in memory or to be computed to ``path``."""
    vectors, labels = split(vectors, "data")
    bare(vectors, labels)
    if is_dataset(vectors):
        return as_dataset(vectors)
    vectors = unwrap(vectors)
    check_shape(vectors)
    return spool(vectors, path, checked(labels, vectors.shape[0], "data"))


def _recorded_path(dataset: Dataset, run: Place) -> str:
    """Return what ``config.json`` says: relative to the run for data inside it, else absolute."""
    return inside(dataset.path, run) or str(dataset.path)


def _expected(path: str | os.PathLike[str], digest: str | None) -> Dataset:
    dataset = as_dataset(path)
    if dataset.digest != digest:
        raise IdentityMismatch(
            f"{dataset.path} is not the data of this run: expected digest {digest}, got {dataset.digest}"
        )
    return dataset


def _directory(path: Place, config: RunConfig) -> tuple[RunDirectory, RunConfig]:
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
