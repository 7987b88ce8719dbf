"""A whole job: train, encode, evaluate, report; what is done already is not done again."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ..storage import requests
from ..storage.claims import abandoned
from ..storage.codes import Codes, open_codes
from ..storage.errors import CorruptObject, DestinationExists
from ..storage.places import is_remote
from ..storage.places import place as at
from ..storage.run import RunDirectory, is_stream
from . import runs
from .api import encode_into
from .arrays import as_dataset
from .errors import Interrupted, one_line
from .evaluate import default_metrics, evaluate
from .executors import SERIAL, Where, joined
from .model import Model, load
from .opening import Run, prepare
from .recording import recorded_job
from .refine import fit_decoder
from .report import write_report
from .results import as_record, read_results, save_results

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from ..storage.datasets import Dataset
    from .config import EncodeTable, EvaluateTable, Job

    Place: TypeAlias = Callable[[], Where]

DECODER = "decoder.zarr"


logger = logging.getLogger("bitfleet.pipeline")


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
    run = prepared(job)
    requests.withdraw(run.path)
    with recorded_job(run) as finished, ExitStack() as stack:
        # one cluster for the whole job, started when the first thing needs it
        place = cache(lambda: stack.enter_context(joined(Where(job.cluster), note=control.note)))
        result = perform(job, run, place, control, allow_environment_change=allow_environment_change)
        finished(result)
    return result


def prepared(job: Job) -> Run:
    """Put the job's run in place, before there is a cluster."""
    return prepare(
        job.data.path,
        job.run.path,
        job.build_method(),
        where=Where(job.cluster),
        seed=job.run.seed,
        block_rows=job.run.block_rows,
        fan_in=job.run.fan_in,
        preprocess_on=job.data.preprocess_on,
    )


def perform(
    job: Job, run: Run, place: Place, control: runs.Control, *, allow_environment_change: bool = False
) -> dict[str, Any]:
    """Do what `run_job` does, in a run that is in place and with somebody who records how it ends."""
    log = run.directory.events()

    def enter(stage: str) -> None:
        cancelled = control.stop_asked(run.path)
        if stage != "train" and (cancelled is not None or control.should_stop()):
            raise Interrupted(model.state.round, run.path, cancelled)
        log.append("stage", stage=stage)

    enter("train")
    where = SERIAL if (run.path / runs.MODEL).exists() else place()
    model = runs.go_on(
        run, where, replace(control, of_job=True), allow_environment_change=allow_environment_change
    )
    result: dict[str, Any] = {"run": job.run.path, "model": model.digest}
    codes = None
    if job.encode is not None:
        enter("encode")
        codes = _encoded(job.encode, job, model, place)
        result["codes"] = codes.digest
    if job.evaluate is not None:
        enter("evaluate")
        metrics = _evaluated(job.evaluate, job, model, place, codes)
        result["metrics"] = {entry["name"]: entry["value"] for entry in metrics}
    result["report"] = str(write_report(job.run.path))
    return result


def evaluate_run(
    model: str | os.PathLike[str],
    data: Dataset | str | os.PathLike[str],
    queries: Dataset | str | os.PathLike[str],
    metrics: Sequence[str] | None,
    *,
    codes: Codes | str | os.PathLike[str] | None = None,
    where: Where = SERIAL,
    seed: int = 0,
    distance: str = "euclidean",
    refine: int | None = None,
    asymmetric: bool = False,
    rescore: int | None = None,
    keep_in: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Evaluate a run or model; of a run, or in the run ``keep_in``, keep the result in ``results.json``.

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
        distance=distance,
        refine=refine,
        asymmetric=asymmetric,
        rescore=rescore,
    )
    keep_in = model if keep_in is None else keep_in
    if RunDirectory.exists(keep_in) and not is_stream(keep_in):
        seconds = time.perf_counter() - begun
        try:
            save_results(keep_in, result, data=data, queries=queries, seconds=seconds)
        except OSError as error:  # the result itself is not lost
            logger.warning("the run %s does not keep this evaluation: %s", keep_in, one_line(error))
    return as_record(result)


def _encoded(table: EncodeTable, job: Job, model: Model, place: Place) -> Codes:
    """Encode, unless just these codes are there."""
    dataset = as_dataset(table.data or job.data.path)
    path = at(table.path)
    if (path / "zarr.json").exists() if is_remote(path) else path.exists() and not abandoned(path):
        codes = open_codes(table.path)
        if (codes.model_digest, codes.source_digest) != (model.encoder_digest, dataset.digest):
            raise DestinationExists(
                f"{table.path} holds codes of another model or other data; remove them or choose another path"
            )
        return codes
    return encode_into(model, dataset, path, place(), active=table.active)


def _evaluated(
    table: EvaluateTable, job: Job, model: Model, place: Place, codes: Codes | None
) -> list[dict[str, Any]]:
    """Evaluate, unless the run keeps just this evaluation."""
    data = as_dataset(table.data or (job.encode and job.encode.data) or job.data.path)
    queries = as_dataset(table.queries)
    evaluated = job.run.path
    if table.refine is not None:
        model = _with_decoder(job, model, place)
        evaluated = str(model.path)
    kept = read_results(job.run.path) or {}
    asked = table.metrics or default_metrics(labelled=data.has_labels and queries.has_labels)
    options = {"refine": table.refine, "asymmetric": table.asymmetric, "rescore": table.rescore}
    wanted = {
        "model": model.digest,
        "data": data.digest,
        "queries": queries.digest,
        "seed": job.run.seed,
        "true_neighbors": f"{table.distance} distance",
        **{key: value or None for key, value in options.items()},
    }
    if all(kept.get(key) == value for key, value in wanted.items()):
        metrics: list[dict[str, Any]] = kept["metrics"]
        if [entry["name"] for entry in metrics] == list(asked):
            return metrics
    usable = codes is not None and codes.source_digest == data.digest
    return evaluate_run(
        evaluated,
        data,
        queries,
        asked,
        codes=codes if usable else None,
        where=place(),
        seed=job.run.seed,
        distance=table.distance,
        refine=table.refine,
        asymmetric=table.asymmetric,
        rescore=table.rescore,
        keep_in=job.run.path,
    )["metrics"]


def _with_decoder(job: Job, model: Model, place: Place) -> Model:
    """Return the model with a decoder fitted to the training data, from the run if it is there already."""
    path = at(job.run.path) / DECODER
    if not path.exists():
        where = place()
        fitted = fit_decoder(model, job.data.path, scheduler=None if where.in_process else where)
        with suppress(DestinationExists):  # by another driver meanwhile; the digest below tells
            fitted.save(path)
    found = load(path)
    if found.encoder_digest != model.digest:
        raise CorruptObject(f"{path} is no decoder of this run's model; remove it and run the job again")
    return found
