"""What an evaluation is given, brought into one shape and checked before anything is computed."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.codes import Codes, open_codes
from .arrays import as_dataset, is_dataset, make_reader, spool, unwrap
from .errors import ConfigError
from .executors import choose, open_executor
from .labelled import checked, split

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..storage.places import Place
    from ..tasks.metrics import Metric
    from ..tasks.protocols import BlockReader, Executor
    from .model import Model


@dataclass(frozen=True)
class Rows:
    """One side of an evaluation: vectors by address, labels int64 or None, digest if it is a data set."""

    reader: BlockReader
    labels: np.ndarray | None
    digest: str | None


def rows_of(given: Any, name: str, scratch: Place, *, in_process: bool) -> Rows:
    """Return what a caller gave as ``name``: a data set, vectors, or a pair (vectors, labels).

    Arrays are spooled into ``scratch`` where workers of other processes have to read them.
    """
    given, labels = split(given, name)
    if is_dataset(given):
        dataset = as_dataset(given)
        labels = dataset.labels() if labels is None and dataset.has_labels else labels
        return Rows(dataset.reader(), checked(labels, dataset.n_rows, name), dataset.digest)
    vectors = unwrap(given)
    if in_process:
        reader = make_reader(vectors, scratch / name)
    else:
        vectors = vectors if hasattr(vectors, "dtype") else np.asarray(vectors)
        reader = spool(vectors, scratch / name / "data.zarr").reader()
    return Rows(reader, checked(labels, reader.n_rows, name), None)


def opened(executor: Executor | None, scheduler: Any, scratch: Place) -> AbstractContextManager[Executor]:
    """Return the executor that is there already, or open what ``scheduler`` means."""
    if executor is None:
        return open_executor(choose(scheduler), shared=scratch)
    if scheduler is not None:
        raise ConfigError("expected scheduler= or executor=, got both")
    return nullcontext(executor)


def folder_for(model: Model, scheduler: Any) -> Place | None:
    """Return where scratch files go so that every worker sees them; None is this machine's own place."""
    if scheduler is None or choose(scheduler).on_this_machine:
        return None
    if model.path is None:
        raise ConfigError(
            "workers on other machines read the model and the queries from a folder that all of them see: "
            "save the model there first and give its path"
        )
    return model.path.parent


def check_fit(model: Model, database: Rows, queries: Rows, asked: tuple[Metric, ...]) -> None:
    """Raise unless there is something to evaluate, of the model's width, with the labels that are needed."""
    for rows, name in ((database, "data"), (queries, "queries")):
        if not rows.reader.n_rows:
            raise ConfigError(f"the {name} have no rows: there is nothing to evaluate")
        if rows.reader.n_features != model.encoder().n_features:
            raise ConfigError(
                f"the model encodes rows of {model.encoder().n_features} features, "
                f"the {name} have {rows.reader.n_features}"
            )
    for metric in asked:
        if metric.kind == "gap" and metric.neighbors > database.reader.n_rows:
            raise ConfigError(
                f"{metric.name} compares neighbours {metric.cutoff} and {metric.neighbors}, "
                f"the data have {database.reader.n_rows} rows"
            )
    wanting = [metric.name for metric in asked if metric.needs_labels]
    if not wanting:
        return
    need = "needs" if len(wanting) == 1 else "need"
    for rows, name in ((database, "data"), (queries, "queries")):
        if rows.labels is None:
            raise ConfigError(
                f"{', '.join(wanting)} {need} labels and the {name} have none; "
                "give labels (ingest --labels, or a pair (vectors, labels)), or ask for metrics without, "
                "such as recall10@100 (--metrics recall10@100)"
            )
    assert queries.labels is not None
    bare = np.flatnonzero(queries.labels < 0)
    if len(bare):
        raise ConfigError(
            f"{', '.join(wanting)} need a label for every query, {len(bare)} have none (−1), "
            f"first in row {bare[0]}; leave these queries out or ask for recall alone"
        )


def codes_of(codes: Codes | str | os.PathLike[str], model: Model, database: Rows) -> Codes:
    """Open codes and make sure that they are this model's, of this data."""
    codes = open_codes(codes) if isinstance(codes, str | os.PathLike) else codes
    if codes.model_digest != model.encoder_digest:
        raise ConfigError(
            f"{codes.path} was encoded by the model {codes.model_digest[:12]}, not by "
            f"{model.encoder_digest[:12]}; encode the data again, or leave codes out"
        )
    if codes.n_rows != database.reader.n_rows or database.digest not in (None, codes.source_digest):
        raise ConfigError(f"{codes.path} are codes of other data; encode this data, or leave codes out")
    return codes
