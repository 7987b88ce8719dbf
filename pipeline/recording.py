"""What a driver writes of itself into the run: that it began, each round, and how it ended."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..cluster.errors import ClusterLost
from ..cluster.memory_use import peak_bytes
from ..storage import events, requests
from ..storage.errors import ManifestConflict
from .errors import Interrupted, exit_code, one_line
from .train import Event, RoundCommitted, RunFinished, RunStarted, never

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..tasks.protocols import Executor
    from .opening import Run

MEMORY = "memory"
_KINDS: dict[str, Any] = {"training": RunStarted, "round": RoundCommitted, events.RUN_FINISHED: RunFinished}
_TYPES: dict[str, Any] = {  # of their fields that are not whole numbers; a log may hold anything
    "method": str,
    "model": str,
    "scalars": dict,
    "seconds": int | float,
    "rounds": int | None,
    "resumed_from": int | None,
}


@contextmanager
def recorded_run(run: Run, *, of_job: bool) -> Iterator[None]:
    """Write that training began, and how it ended unless it finished."""
    log = run.directory.events()
    part = {"of_job": True} if of_job else {}
    log.append(events.RUN_STARTED, method=run.method.name, rows=run.dataset.n_rows, **part)
    with _ending(log, events.RUN_INTERRUPTED, events.RUN_FAILED):
        yield


@contextmanager
def recorded_job(run: Run, **about: Any) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Write that a whole job began and how it ended, and give signs of life meanwhile.

    Yields a function that is told the result.  A driver whose place another one has taken writes no end but
    that: the job goes on.
    """
    log, driver = run.directory.events(), about.get("driver")

    def finished(result: dict[str, Any]) -> None:
        log.append(events.JOB_FINISHED, result=result)

    def overtaken() -> bool:
        return driver is not None and requests.replaced(run.path, driver)

    with events.Heartbeat(run.path, taken_over=overtaken):
        log.append(events.JOB_STARTED, **about)
        with _ending(log, events.JOB_INTERRUPTED, events.JOB_FAILED, overtaken):
            yield finished


def record_memory(log: events.Events, executor: Executor) -> None:
    """Write how much memory the processes of a training have taken at most, this one's and its workers'."""
    log.append(MEMORY, driver_peak_bytes=peak_bytes(), worker_peak_bytes=executor.peak_bytes())


def log_to(log: events.Events) -> Callable[[Event], None]:
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


def as_event(recorded: dict[str, Any]) -> Event | None:
    """Return what `log_to` has written as the event that it was, None for anything else."""
    kind = _KINDS.get(recorded["kind"])
    given = {k: v for k, v in recorded.items() if k not in ("kind", "time")}
    if kind is None or not all(isinstance(value, _TYPES.get(k, int)) for k, value in given.items()):
        return None
    try:
        return kind(**given)
    except TypeError:  # written by another version
        return None


@contextmanager
def _ending(
    log: events.Events, interrupted: str, failed: str, overtaken: Callable[[], bool] = never
) -> Iterator[None]:
    """Write how what is done inside ended, unless it ended well."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, ManifestConflict) or overtaken():
            log.append("overtaken", error=one_line(error))  # the run itself goes on, with the winner
        elif isinstance(error, Interrupted | KeyboardInterrupt | ClusterLost):
            log.append(interrupted, reason=one_line(error))
        else:
            told = {"error": one_line(error), "type": type(error).__name__, "exit_code": exit_code(error)}
            log.append(failed, **told)
        raise
