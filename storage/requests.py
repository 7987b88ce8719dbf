"""What is said to and by a run's driver in small objects beside the rounds.

::

    cancel.json               somebody asks the driver, wherever it is, to stop after the round at hand
    cancel-<submission>.json  the same, meant for the drivers of one submission alone
    driver.json               which driver a submitted job has at present

Neither is part of the run's state: without them a run is only harder to follow and to stop.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from typing import Any

from .documents import parse_json
from .errors import StorageError
from .manifest import now
from .places import place
from .s3_objects import objects_at

logger = logging.getLogger("bitfleet.storage")

CANCEL = "cancel.json"
CANCEL_ONE = "cancel-{}.json"
DRIVER = "driver.json"
_MAX_BYTES = 2**16


def ask_to_stop(run: str | os.PathLike[str], submission: str | None = None) -> None:
    """Ask the run's driver to stop after the round at hand; a submission may be meant that has not begun."""
    _put(run, CANCEL if submission is None else CANCEL_ONE.format(submission), {})


def stop_asked(run: str | os.PathLike[str], submission: str | None = None) -> str | None:
    """Return who has asked the driver, or that of a submission, to stop and when; None if nobody has."""
    return withdrawn_for_good(run, submission) or _asked(run, CANCEL)


def withdrawn_for_good(run: str | os.PathLike[str], submission: str | None) -> str | None:
    """Return who has asked just this submission to stop, begun or not, and when; None if nobody has."""
    return None if submission is None else _asked(run, CANCEL_ONE.format(submission))


def withdraw(run: str | os.PathLike[str]) -> None:
    """Take back a request that means whichever driver there is: who starts a run wants it to go on.

    What means one submission stays: that one may still be on its way to a worker.
    """
    try:
        objects_at(run).delete(CANCEL)
    except OSError as error:
        logger.warning("the request to stop %s was not taken back: %s", run, error)


def announce_driver(run: str | os.PathLike[str], submission: str, generation: int, driver: str) -> None:
    """Say that ``driver`` is now the one of a submission, the ``generation``-th of them."""
    _put(run, DRIVER, {"submission": submission, "generation": generation, "driver": driver})


def announced_driver(run: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return ``submission``, ``generation`` and ``driver`` of the last announcement, None without one."""
    found = _read(run, DRIVER)
    if found is None or not isinstance(found.get("generation"), int):
        return None
    return found


def replaced(run: str | os.PathLike[str], driver: str) -> bool:
    """Tell whether another driver than this one has been announced since."""
    found = announced_driver(run)
    return found is not None and found.get("driver") != driver


def _asked(run: str | os.PathLike[str], key: str) -> str | None:
    request = _read(run, key)
    if request is None:
        return None
    return f"by process {request.get('pid')} on {request.get('host')} at {request.get('time')}"


def _put(run: str | os.PathLike[str], key: str, content: dict[str, Any]) -> None:
    content = content | {"host": socket.gethostname(), "pid": os.getpid(), "time": now()}
    objects_at(run).put(key, json.dumps(content, sort_keys=True).encode())


def _read(run: str | os.PathLike[str], key: str) -> dict[str, Any] | None:
    store = objects_at(run)
    try:
        return parse_json(store.read(key, _MAX_BYTES), str(place(run) / key)) if store.exists(key) else None
    except (StorageError, OSError) as error:
        logger.warning("%s of %s cannot be read: %s", key, run, error)
        return None
