"""A whole job: train, encode, evaluate, report; what is done already is not done again."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..storage.codes import Codes, open_codes
from ..storage.errors import DestinationExists
from ..storage.run import RunDirectory
from . import runs
from .api import encode_into
from .arrays import as_dataset
from .evaluate import evaluate
from .executors import SERIAL, Where, joined
from .model import Model, load
from .opening import prepare
from .report import write_report
from .results import as_record, read_results, save_results

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from ..storage.datasets import Dataset
    from .config import EncodeTable, EvaluateTable, Job

    Place: TypeAlias = Callable[[], Where]


def run_job(
    job: Job, *, control: runs.Control | None = None, allow_environment_change: bool = False
) -> dict[str, Any]:
    """Do everything that a job file says.

    Returns
    -------
    dict
        ``run``, ``model`` (digest), and as far as the job asks for them ``codes`` (digest), ``metrics`` (name
        to value) and ``report`` (path).

    Raises
    ------
    DestinationExists
        If codes of another model or other data are where the job wants its own.
    """
    control = control or runs.Control()
    with ExitStack() as stack:
        # one cluster for the whole job, started when the first thing needs it
        place = cache(lambda: stack.enter_context(joined(Where(job.cluster), note=control.note)))
        model = _trained(job, place, control, allow_environment_change)
        result: dict[str, Any] = {"run": job.run.path, "model": model.digest}
        codes = None
        if job.encode is not None:
            codes = _encoded(job.encode, job, model, place)
            result["codes"] = codes.digest
        if job.evaluate is not None:
            metrics = _evaluated(job.evaluate, job, model, place, codes)
            result["metrics"] = {entry["name"]: entry["value"] for entry in metrics}
    result["report"] = str(write_report(job.run.path))
    return result


def evaluate_run(
    model: str | os.PathLike[str],
    data: Dataset | str | os.PathLike[str],
    queries: Dataset | str | os.PathLike[str],
    metrics: Sequence[str],
    *,
    codes: Codes | str | os.PathLike[str] | None = None,
    where: Where = SERIAL,
    seed: int = 0,
    refine: int | None = None,
) -> dict[str, Any]:
    """Evaluate a run or model; of a run, keep the result in ``results.json``.

    Returns
    -------
    dict
        ``metrics``: a list of name, value, standard error and definition; and what they are of.
    """
    begun = time.perf_counter()
    result = evaluate(
        load(model),
        data,
        queries,
        metrics,
        codes=codes,
        scheduler=None if where.in_process else where,
        seed=seed,
        refine=refine,
    )
    if RunDirectory.exists(model):
        seconds = time.perf_counter() - begun
        save_results(model, result, data=data, queries=queries, seconds=seconds)
    return as_record(result)


def _trained(job: Job, place: Place, control: runs.Control, allow_environment_change: bool) -> Model:
    """Train, or return the model of the finished run."""
    run = prepare(  # config.json is there before a cluster
        job.data.path,
        job.run.path,
        job.build_method(),
        where=Where(job.cluster),
        seed=job.run.seed,
        block_rows=job.run.block_rows,
        fan_in=job.run.fan_in,
        preprocess_on=job.data.preprocess_on,
    )
    where = SERIAL if (run.path / runs.MODEL).exists() else place()
    return runs.go_on(run, where, control, allow_environment_change=allow_environment_change)


def _encoded(table: EncodeTable, job: Job, model: Model, place: Place) -> Codes:
    """Encode, unless just these codes are there."""
    dataset = as_dataset(table.data or job.data.path)
    if Path(table.path).exists():
        codes = open_codes(table.path)
        if (codes.model_digest, codes.source_digest) != (model.encoder_digest, dataset.digest):
            raise DestinationExists(
                f"{table.path} holds codes of another model or other data; remove them or choose another path"
            )
        return codes
    return encode_into(model, dataset, Path(table.path), place(), active=table.active)


def _evaluated(
    table: EvaluateTable, job: Job, model: Model, place: Place, codes: Codes | None
) -> list[dict[str, Any]]:
    """Evaluate, unless the run keeps just this evaluation."""
    data = as_dataset(table.data or (job.encode and job.encode.data) or job.data.path)
    queries = as_dataset(table.queries)
    kept = read_results(job.run.path) or {}
    found = (kept.get("model"), kept.get("data"), kept.get("queries"), kept.get("seed"))
    if found == (model.digest, data.digest, queries.digest, job.run.seed):
        metrics: list[dict[str, Any]] = kept["metrics"]
        if [entry["name"] for entry in metrics] == list(table.metrics):
            return metrics
    usable = codes is not None and codes.source_digest == data.digest
    return evaluate_run(
        job.run.path,
        data,
        queries,
        table.metrics,
        codes=codes if usable else None,
        where=place(),
        seed=job.run.seed,
    )["metrics"]
