"""What happened in a run, and the sign of life of its driver.

On a file system events are lines of ``events.jsonl``.  In an object store, to which nothing can be appended,
each is an object of its own, ``events/TIME-ID.json``: the names sort by time, and none is written twice.

Neither is part of the run's state: damaged or deleted they cost a picture of the past, nothing else.  So
reading passes over what is torn, and failing to write is a warning.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import socket
import threading
import time
import uuid
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .errors import CorruptObject, StorageError
from .files import open_regular
from .manifest import now
from .object_paths import ObjectPath
from .places import each, place
from .processes import has_ended, this_process
from .s3_objects import objects_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

logger = logging.getLogger("bitfleet.storage")

RUN_STARTED = "run_started"
RUN_FINISHED = "run_finished"
RUN_FAILED = "run_failed"
RUN_INTERRUPTED = "run_interrupted"
JOB_SUBMITTED = "job_submitted"
JOB_REFUSED = "job_refused"  # before it began: whatever else is in this run's folder is not touched by it
JOB_CANCELLED = "job_cancelled"  # likewise
JOB_STARTED = "job_started"
JOB_FINISHED = "job_finished"
JOB_FAILED = "job_failed"
JOB_INTERRUPTED = "job_interrupted"

HEARTBEAT = "heartbeat.json"
HEARTBEAT_INTERVAL = 10.0
INTERRUPTED_AFTER = 60.0

_MAX_EVENT_BYTES = 2**20


class EventLog:
    """An append-only file of events.

    ``status`` understands the kinds `RUN_STARTED`, `RUN_FINISHED`, `RUN_FAILED` (with ``error``) and
    `RUN_INTERRUPTED` (with ``reason``), the same of a whole job, of which training is a part (a run that
    starts with ``of_job``), and the fields ``rounds`` and ``stage`` of any event; other kinds and fields are
    the caller's.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, kind: str, **fields: Any) -> None:
        """Append one event with the present time; fields are JSON values."""
        line = _line(kind, fields)
        try:
            with self._opened(os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
                if _is_torn(file):
                    line = b"\n" + line  # a driver died in the middle of a line: do not add to it
                file.write(line)  # one write, so that two drivers' lines do not mix
        except OSError as error:
            logger.warning("event %r is not recorded in %s: %s", kind, self.path, error)

    def read(self) -> list[dict[str, Any]]:
        """Return all events in order; lines that are no event are passed over."""
        try:
            with self._opened(os.O_RDONLY) as file:
                lines = file.readall().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            logger.debug("the events in %s cannot be read: %s", self.path, error)
            return []
        return [event for line in lines if (event := _parse(line)) is not None]

    def _opened(self, flags: int) -> FileIO:
        """Open the file itself: a link in a stranger's run may lead to any file of the reader's."""
        return FileIO(
            open_regular(self.path, flags | getattr(os, "O_NOFOLLOW", 0)), "r+" if flags & os.O_RDWR else "r"
        )


class ObjectEvents:
    """The same for a run in an object store: events as objects below ``folder``, each made once."""

    def __init__(self, folder: ObjectPath) -> None:
        self.path = folder

    def append(self, kind: str, **fields: Any) -> None:
        """Add one event with the present time; fields are JSON values."""
        line = _line(kind, fields)
        try:
            (self.path / f"{time.time_ns():020d}-{uuid.uuid4().hex}.json").create(line)
        except (OSError, StorageError) as error:
            logger.warning("event %r is not recorded in %s: %s", kind, self.path, error)

    def read(self) -> list[dict[str, Any]]:
        """Return all events in order of their times; objects that are no event are passed over."""
        found = each(self.path, self._event, list(self.path.iterdir()))
        return [dict(event) for event in found if event is not None]

    def _event(self, path: ObjectPath) -> dict[str, Any] | None:
        try:
            return _event_of(path)
        except (FileNotFoundError, CorruptObject):
            return None


Events: TypeAlias = "EventLog | ObjectEvents"


def open_events(run: str | os.PathLike[str]) -> Events:
    """Return the events of the run at a place."""
    folder = place(run)
    if isinstance(folder, ObjectPath):
        return ObjectEvents(folder / "events")
    return EventLog(folder / "events.jsonl")


class Heartbeat:
    """While entered, renews ``heartbeat.json`` of a run so that others see that its driver lives.

    Parameters
    ----------
    run : path
        The run's folder.
    interval : float
        Seconds between beats.
    taken_over : callable, optional
        Tells at the end whether another driver is at work, whose heartbeat it then is.
    """

    def __init__(
        self,
        run: str | os.PathLike[str],
        interval: float = HEARTBEAT_INTERVAL,
        *,
        taken_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = objects_at(run)
        self._taken_over = taken_over
        self._interval = interval
        self._id = uuid.uuid4().hex
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="bitfleet-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self.beat()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        try:
            last = json.loads(self._store.read(HEARTBEAT, _MAX_EVENT_BYTES))["id"]
            if last == self._id and not self._taken_over():
                self._store.delete(HEARTBEAT)
        except (OSError, StorageError, ValueError, LookupError, TypeError) as failure:
            logger.debug("the heartbeat was not removed: %s", failure)

    def beat(self) -> None:
        """Give one sign of life."""
        beat = {
            "id": self._id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process": this_process(),
            "time": now(),
        }
        try:
            self._store.put(HEARTBEAT, json.dumps(beat).encode())
        except (OSError, StorageError) as failure:
            logger.debug("the heartbeat was not renewed: %s", failure)

    def _beat(self) -> None:
        while not self._stop.wait(self._interval):
            self.beat()


def heartbeat_age(run: str | os.PathLike[str]) -> float | None:
    """Return the seconds since the last sign of life of a run's driver, None if there is none.

    One from the future, left by a driver that died before the clock was set back, is as good as an old one:
    a driver that lives gives the next one by the clock as it is.
    """
    path = place(run) / HEARTBEAT
    if isinstance(path, ObjectPath):
        about = path.about()
        return None if about is None else abs(time.time() - about["last_modified"].timestamp())
    try:
        return abs(time.time() - path.stat().st_mtime)
    except OSError:
        return None


def driver_has_ended(run: str | os.PathLike[str]) -> bool:
    """Tell whether the last sign of life is of a process of this machine that is no more."""
    try:
        beat = json.loads(objects_at(run).read(HEARTBEAT, _MAX_EVENT_BYTES))
        return has_ended(beat["process"])
    except (OSError, StorageError, ValueError, LookupError, TypeError):
        return False


@functools.lru_cache(maxsize=8192)
def _event_of(path: ObjectPath) -> dict[str, Any] | None:
    """Return the event in an object; who follows a run asks for all of them again and again."""
    return _parse(path.read_bytes(_MAX_EVENT_BYTES))


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):  # which would not go into JSON again
        raise ValueError(f"{text} is not finite")
    return value


def _line(kind: str, fields: dict[str, Any]) -> bytes:
    return json.dumps({"time": now(), "kind": kind, **fields}, allow_nan=False).encode() + b"\n"


def _is_torn(file: FileIO) -> bool:
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None
