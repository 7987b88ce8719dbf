"""What runs on the cluster after `bitfleet submit`: the driver of a job, as a task of a worker.

If the worker dies, Dask runs the task again on another one.  The second run hands over a successor under a
new key and ends, for Dask gives up a key on which a few workers have died; the successor is the next
generation of the driver and goes on from the last committed round.  A driver that was only cut off finds its
round committed by another and its place taken, and stops.
"""

from __future__ import annotations

import logging
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..cluster.errors import ClusterLost
from ..cluster.limits import this_worker
from ..cluster.submission import hand_over, own_client
from ..storage import claims, events, requests
from ..storage.digest import json_digest
from ..storage.errors import ManifestConflict
from ..storage.places import make_folder, place
from ..storage.run import newest_manifest
from .arrays import as_dataset
from .config import Job
from .errors import exit_code, one_line
from .executors import Where
from .opening import plan_of
from .recording import recorded_job
from .rehearsal import rehearse
from .run_job import perform, prepared
from .runs import Control
from .validation import validated

if TYPE_CHECKING:
    from ..storage.places import Place
    from .opening import Run

logger = logging.getLogger("bitfleet.pipeline")

RETRIES = 3  # without a committed round between them
PAUSE_SECONDS = 1.0


def accept(document: dict[str, Any], submission: str) -> None:
    """Validate a job where it will run and put its run in place, before the client leaves."""
    job = validated(Job, document, "the submitted job")
    name, threads, limit = this_worker()
    if limit is not None:
        dataset, method = as_dataset(job.data.path), job.build_method()
        plan = plan_of(dataset, method, job.run.block_rows, job.run.fan_in)
        needs = rehearse(method, dataset.reader(), plan, job.run.seed)
        needs.check(threads, limit, f"worker {name}", hosts_driver=True)
    run = prepared(job)
    requests.withdraw(run.path)
    run.directory.events().append(events.JOB_SUBMITTED, submission=submission)
    events.Heartbeat(run.path).beat()  # "running" until the driver gives signs of its own


def drive(document: dict[str, Any], submission: str, generation: int, allow_environment_change: bool) -> None:
    """Do the job, or hand it over to a successor if this task has been run before.

    Parameters
    ----------
    document : dict
        The job, resolved, as JSON values.
    submission : str
        Names what one `submit` has started, all generations of its driver.
    generation : int
    allow_environment_change : bool
    """
    if _cancelled(place(document["run"]["path"]), submission):
        return
    with own_client() as client:
        job, run = _taken_up(document, submission)
        found = requests.announced_driver(run.path)
        latest = found["generation"] if found and found.get("submission") == submission else -1
        if latest == generation:
            successor = (document, submission, generation + 1, allow_environment_change)
            hand_over(client, driver_key(submission, generation + 1), drive, *successor)
        if latest >= generation:
            return
        me = uuid.uuid4().hex
        requests.announce_driver(run.path, submission, generation, me)
        try:
            about = {"submission": submission, "generation": generation, "driver": me}
            _record(job, run, client, about, allow_environment_change)
        except Exception as error:  # it is in the run's events, where people look for it
            logger.warning("the job of %s has ended: %s", run.path, error)


def driver_key(submission: str, generation: int) -> str:
    """Return the key of a driver's task."""
    return f"bitfleet-driver-{submission}-{generation}"


def _cancelled(path: Place, submission: str) -> bool:
    """Tell whether a submission was cancelled before it began, and write so: it touches nothing else."""
    by = requests.withdrawn_for_good(path, submission)
    if by is None or _accepted(path, submission):
        return False
    reason = f"cancelled ({by}) before it began; submit it again"
    events.open_events(path).append(events.JOB_CANCELLED, submission=submission, reason=reason)
    return True


def _accepted(path: Place, submission: str) -> bool:
    log = events.open_events(path).read()
    return any(e["kind"] == events.JOB_SUBMITTED and e.get("submission") == submission for e in log)


def _taken_up(document: dict[str, Any], submission: str) -> tuple[Job, Run]:
    """Return the job with its run, accepted if that is still to be done; write why if it cannot be begun."""
    path = place(document["run"]["path"])
    try:
        if not _accepted(path, submission):
            accept(document, submission)
        job = validated(Job, document, "the submitted job")
        return job, prepared(job)
    except Exception as error:
        kind = events.JOB_FAILED if _accepted(path, submission) else events.JOB_REFUSED
        with suppress(OSError):
            make_folder(path)
        told = {"error": one_line(error), "type": type(error).__name__, "exit_code": exit_code(error)}
        events.open_events(path).append(kind, submission=submission, **told)
        raise


def _record(job: Job, run: Run, client: Any, about: dict[str, Any], allow_environment_change: bool) -> None:
    owner = json_digest(job.model_dump(mode="json", exclude={"cluster"}))
    with recorded_job(run, **about) as finished, claims.owned_by(owner, about["driver"]):
        finished(_persevere(job, run, client, about, allow_environment_change))


def _persevere(
    job: Job, run: Run, client: Any, about: dict[str, Any], allow_environment_change: bool
) -> dict[str, Any]:
    """Do the job; where workers died or a former driver was in the way, go on from the last round."""
    me = about["driver"]
    control = Control(should_stop=lambda: requests.replaced(run.path, me), submission=about["submission"])
    where, left = Where(job.cluster, client), RETRIES
    while True:
        before = _newest_round(run)
        try:
            return perform(
                job, run, lambda: where, control, allow_environment_change=allow_environment_change
            )
        except (ClusterLost, ManifestConflict) as error:
            left = RETRIES if _newest_round(run) != before else left - 1
            if left < 0 or not _may_go_on(error, run, client, me):
                raise
            logger.warning("%s; going on from the last round", error)
            time.sleep(PAUSE_SECONDS)


def _may_go_on(error: Exception, run: Run, client: Any, me: str) -> bool:
    if isinstance(error, ClusterLost):
        return bool(client.status == "running")
    return not requests.replaced(run.path, me)


def _newest_round(run: Run) -> int:
    newest = newest_manifest(run.path)
    return -1 if newest is None else newest.round
