"""`bitfleet.submit`: a job handed over to a cluster, and `bitfleet.Job`, what is seen of it from outside.

All that is told of a job is read from its run's folder, so that following, cancelling and fetching need
neither the scheduler nor the process that has submitted it.
"""

from __future__ import annotations

import math
import time
import uuid
from typing import TYPE_CHECKING, Any

from ..storage import events, requests
from ..storage.events import open_events
from ..storage.places import place
from ..storage.run import RunDirectory, status
from .config import Job as Content
from .config import as_job
from .errors import UNEXPECTED, ConfigError, JobFailed
from .executors import Where, choose, joined

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from .config_cluster import ClusterTable

POLL_SECONDS = 1.0
WORKER_SECONDS = 10.0  # so long `submit` waits for a worker that looks at the job
ACCEPT_SECONDS = 60.0  # so long for what it finds
SEEN_SECONDS = 60.0  # so long what a worker has written may be on its way to this machine
_STATUS = ("state", "stage", "round", "rounds", "rate", "metrics", "error", "reason", "heartbeat_age")


class Job:
    """A job by its run's folder, which this machine must see.

    Parameters
    ----------
    run : path
        The run of the job, also one submitted by another process, yesterday.
    submission : str, optional
        What `submit` has just started; until a worker has taken it up, its state is ``"running"``.
    accepted : bool
        Whether a worker has taken it up, so that it can be seen, if not at once.

    Examples
    --------
    >>> import bitfleet as bf
    >>> job = bf.Job("runs/posh")
    >>> job.run.name
    'posh'
    """

    def __init__(
        self, run: str | os.PathLike[str], submission: str | None = None, *, accepted: bool = False
    ) -> None:
        self.run = place(run)
        self._submission = submission
        self._waits = submission is not None
        self._waits_until = time.monotonic() + SEEN_SECONDS if accepted else math.inf

    def __repr__(self) -> str:
        return f"Job({str(self.run)!r})"

    def status(self) -> dict[str, Any]:
        """Return how the job is doing, as ``bitfleet status --json`` does.

        Returns
        -------
        dict
            ``state`` (``"running"``, ``"finished"``, ``"failed"`` or ``"interrupted"``), ``stage``,
            ``round``, ``rounds``, ``rate``, ``metrics``, ``error``, ``reason``, ``heartbeat_age``.

        Raises
        ------
        ConfigError
            If there is no run there (yet: without a worker a job does not begin).
        """
        if self._waits and (found := self._before_it_began()) is not None:
            return found
        self._waits = False
        if not RunDirectory.exists(self.run):
            refused = [event for event in open_events(self.run).read() if event["kind"] == events.JOB_REFUSED]
            why = (
                f"the last job for it was refused: {refused[-1].get('error')}"
                if refused
                else (
                    "start one with bitfleet train or bitfleet submit (a submitted job makes it as soon as a "
                    "worker is there)"
                )
            )
            raise ConfigError(f"there is no run at {self.run}; {why}")
        return status(self.run)

    def follow(self, *, poll: float = POLL_SECONDS) -> Iterator[dict[str, Any]]:
        """Yield the events of the run, old ones first, until it has ended."""
        n_seen = 0
        while True:
            ended = self.status()["state"] != "running"  # before reading: what follows an end is read too
            if RunDirectory.exists(self.run):
                found = RunDirectory.open(self.run).events().read()
                yield from found[n_seen:]
                n_seen = len(found)
            if ended:
                return
            time.sleep(poll)

    def wait(self, timeout: float | None = None, *, poll: float = POLL_SECONDS) -> dict[str, Any]:
        """Wait until the job has ended, one way or another, and return its status.

        Raises
        ------
        TimeoutError
            If it has not ended after ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (found := self.status())["state"] == "running":
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"the job of {self.run} still runs after {timeout:g} s")
            time.sleep(poll)
        return found

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the job's end and return its result.

        Returns
        -------
        dict
            ``run``, ``model`` (digest), ``report`` (path), and as far as the job asks for them ``codes``
            (digest) and ``metrics`` (name to value).  The model itself is ``bf.load(job.run)``.

        Raises
        ------
        JobFailed
            If it has ended otherwise; the message says how to go on.
        TimeoutError
            If it has not ended after ``timeout`` seconds.
        """
        found = self.wait(timeout)
        if found["state"] == "finished":
            for event in reversed(RunDirectory.open(self.run).events().read()):
                if event["kind"] == events.JOB_FINISHED and isinstance(event.get("result"), dict):
                    return dict(event["result"])
            raise JobFailed(f"{self.run} has a model, but no job; open it with bitfleet.load")
        why = found["error"] or found["reason"] or "its driver gives no sign of life; submit it again"
        raise JobFailed(f"the job of {self.run} is {found['state']}: {why}", self.exit_code(found))

    def cancel(self) -> bool:
        """Ask the driver, wherever it is, to stop after the round at hand; submitting again goes on.

        Returns
        -------
        bool
            False if there is no driver that could hear it.
        """
        if self.status()["state"] != "running":
            return False
        requests.ask_to_stop(self.run, self._submission if self._waits else None)
        return True

    def _before_it_began(self) -> dict[str, Any] | None:
        """Return the status of a submission that no worker has begun with, None of one that has begun."""
        nothing = dict.fromkeys(_STATUS) | {"stage": "waiting", "metrics": {}}
        for event in open_events(self.run).read():
            if event.get("submission") == self._submission:
                if event["kind"] == events.JOB_REFUSED:
                    return nothing | {"state": "failed", "error": event.get("error")}
                if event["kind"] == events.JOB_CANCELLED:
                    return nothing | {"state": "interrupted", "reason": event.get("reason")}
                return None
        return nothing | {"state": "running"} if time.monotonic() < self._waits_until else None

    def exit_code(self, found: Mapping[str, Any]) -> int:
        """Return the exit code that stands for how the job has ended."""
        if found["state"] == "failed":
            ends = (events.JOB_FAILED, events.RUN_FAILED, *((events.JOB_REFUSED,) if self._waits else ()))
            log = open_events(self.run).read()
            codes = [event.get("exit_code") for event in log if event["kind"] in ends]
            code = codes[-1] if codes else None
            return code if isinstance(code, int) and 0 < code < 256 else UNEXPECTED
        return 0 if found["state"] in ("finished", "running") else 130


def submit(
    job: str | os.PathLike[str] | Mapping[str, Any],
    *,
    scheduler: Any = None,
    insecure: bool = False,
    settings: Mapping[str, Any] | None = None,
    allow_environment_change: bool = False,
) -> Job:
    """Hand a whole job over to a cluster; it goes on when this process has ended.

    The driver runs on a worker.  Whatever dies but the scheduler, another worker goes on from the last
    committed round, to the same bits; if the scheduler dies, submit again.

    Parameters
    ----------
    job : path or mapping
        A job file, or what one holds, as tables.  Its paths are those that the workers see.
    scheduler : str or distributed.Client, optional
        The cluster; by default what the job says.
    insecure : bool
        Trust an address that is neither on this machine nor encrypted.
    settings : mapping of dotted key to value, optional
        Replace what the job says, such as ``{"method.n_bits": 64}``.
    allow_environment_change : bool
        Go on although libraries or processor are others than at the start; the bits may differ.

    Returns
    -------
    Job
        Its run's folder has to be seen from here to follow it.

    Raises
    ------
    ConfigError
        If the job cannot run as it stands, or there is no cluster to hand it to.
    IdentityMismatch
        If the run's folder holds another run.
    ClusterLost
        If no scheduler answers.
    """
    content = as_job(job, settings)
    where = _meant(content.cluster, scheduler, insecure)
    if where.table.kind != "address" or where.table.scheduler.startswith("inproc://"):
        raise ConfigError(
            "submit hands the job over to a cluster that stays when this process ends: give the address of "
            'its scheduler (--scheduler tls://host:8786, or [cluster] scheduler = "tls://host:8786"); '
            "here and now: bitfleet run"
        )
    content = content.model_copy(update={"cluster": where.table})
    with joined(where) as there:
        submission, accepted = _hand_over(content, there.client, allow_environment_change)
    return Job(content.run.path, submission, accepted=accepted)


def _meant(table: ClusterTable, scheduler: Any, insecure: bool) -> Where:
    """Return the cluster that is asked for, with what the job says of how to get there."""
    if scheduler is None:
        return Where(table.model_copy(update={"insecure": True}) if insecure else table)
    options: dict[str, Any] = {"worker_timeout": table.worker_timeout}
    if isinstance(scheduler, str) and scheduler.startswith("tls://"):
        options["tls"] = table.tls
    trusted = insecure or (scheduler == table.scheduler and table.insecure)
    return choose(scheduler, insecure=trusted or None, **options)


def _hand_over(content: Content, client: Any, allow_environment_change: bool) -> tuple[str, bool]:
    """Return the name of what is handed over, and whether a worker has found nothing wrong with it."""
    from ..cluster.submission import hand_over, has_workers, run_there
    from .driving import accept, drive, driver_key

    document, submission = content.model_dump(mode="json"), uuid.uuid4().hex[:12]
    accepted = False
    if has_workers(client, WORKER_SECONDS):  # so errors show here and now
        key = f"bitfleet-accept-{submission}"
        accepted = run_there(client, key, accept, document, submission, timeout=ACCEPT_SECONDS)
    hand_over(client, driver_key(submission, 0), drive, document, submission, 0, allow_environment_change)
    return submission, accepted
