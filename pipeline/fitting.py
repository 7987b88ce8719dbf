"""Training for estimators: in memory, or as a run."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cluster.serial import SerialExecutor
from ..storage.memory import MemoryCheckpoints
from ..tasks.leaves import plan_leaves
from ..tasks.protocols import DataInfo
from .arrays import as_dataset, is_dataset, make_reader
from .errors import ConfigError
from .executors import choose
from .labelled import bare, check_needed, split
from .misgivings import tell_misgivings
from .model import Model
from .preprocess import moments_of
from .runs import start
from .train import train

if TYPE_CHECKING:
    import os

    from ..tasks.protocols import Arrays, Method
    from .arrays import Vectors


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
    vectors, labels = split(vectors, "data")
    bare(vectors, labels)
    labelled = as_dataset(vectors).has_labels if is_dataset(vectors) else labels is not None
    check_needed(method, there=labelled)
    reader = make_reader(vectors, scratch / "data", labels)
    plan = plan_leaves(reader.n_rows, reader.n_features, min_leaves=method.min_leaves)
    executor = SerialExecutor()

    def moments() -> Arrays:
        return moments_of(
            make_reader(preprocess_on, scratch / "preprocess"), executor, method, fan_in=plan.fan_in
        )

    state = train(
        method, reader, executor, MemoryCheckpoints(), plan, seed,
        moments=None if preprocess_on is None else moments,
    )  # fmt: skip
    tell_misgivings(method, state.scalars)
    return Model(method, state, DataInfo(reader.n_rows, reader.n_features, reader.dtype))
