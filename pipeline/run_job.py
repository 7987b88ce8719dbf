"""A whole job: train, encode, evaluate, report; what is done already is not done again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..storage.codes import Codes, open_codes
from ..storage.errors import DestinationExists
from ..storage.run import RunDirectory
from . import runs
from .api import encode_into
from .arrays import as_dataset
from .evaluate import evaluate
from .executors import SERIAL, Where
from .model import Model, load
from .results import as_record, save_results

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from .config import EncodeTable, EvaluateTable, Job


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
    where = Where(job.cluster)
    model = runs.start(
        job.data.path,
        job.run.path,
        job.build_method(),
        where=where,
        seed=job.run.seed,
        block_rows=job.run.block_rows,
        fan_in=job.run.fan_in,
        preprocess_on=job.data.preprocess_on,
        allow_environment_change=allow_environment_change,
        control=control,
    )
    result: dict[str, Any] = {"run": job.run.path, "model": model.digest}
    codes = None
    if job.encode is not None:
        codes = _encoded(job.encode, job, model, where)
        result["codes"] = codes.digest
    if job.evaluate is not None:
        record = _evaluated(job.evaluate, job, where, codes)
        result["metrics"] = {entry["name"]: entry["value"] for entry in record["metrics"]}
    from .report import write_report

    result["report"] = str(write_report(job.run.path))
    return result


def evaluate_run(
    model: str | os.PathLike[str],
    data: str | os.PathLike[str],
    queries: str | os.PathLike[str],
    metrics: Sequence[str],
    *,
    codes: str | os.PathLike[str] | None = None,
    where: Where = SERIAL,
    seed: int = 0,
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
    )
    if RunDirectory.exists(model):
        seconds = time.perf_counter() - begun
        save_results(model, result, data=data, queries=queries, seconds=seconds)
    return as_record(result)


def _encoded(table: EncodeTable, job: Job, model: Model, where: Where) -> Codes:
    """Encode, unless just these codes are there."""
    dataset = as_dataset(table.data or job.data.path)
    if Path(table.path).exists():
        codes = open_codes(table.path)
        if (codes.model_digest, codes.source_digest) != (model.digest, dataset.digest):
            raise DestinationExists(
                f"{table.path} holds codes of another model or other data; remove them or choose another path"
            )
        return codes
    return encode_into(model, dataset, Path(table.path), where, active=table.active)


def _evaluated(table: EvaluateTable, job: Job, where: Where, codes: Codes | None) -> dict[str, Any]:
    encoded = job.data.path if job.encode is None or job.encode.data is None else job.encode.data
    data = table.data or encoded
    usable = codes is not None and data == encoded
    return evaluate_run(
        job.run.path,
        data,
        table.queries,
        table.metrics,
        codes=codes.path if usable and codes is not None else None,
        where=where,
        seed=job.run.seed,
    )
