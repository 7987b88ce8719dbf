"""Tasks that outlive the client that submits them, and what a task needs that itself commands the cluster.

Dask forgets a task when no client wants its result, and gives one up on which a few workers have died,
however innocent it is.  So a task is handed over for good (`hand_over`), and one that is run again because
its worker died should hand over a successor, whose account of deaths is empty, instead of going on itself.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from distributed import Client, fire_and_forget, get_worker, secede

from .errors import ClusterError, ClusterLost
from .joining import patience
from .session import list_workers, reaching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KNOWN_SECONDS = 30.0


def hand_over(client: Client, key: str, function: Callable[..., Any], *arguments: Any) -> None:
    """Submit a task that runs whether or not this client stays; its result is dropped.

    Raises
    ------
    ClusterLost
        If the scheduler does not confirm that it has the task.
    """
    with reaching(client):
        future = client.submit(function, *arguments, key=key, pure=False, priority=100)
        fire_and_forget(future)
        deadline = time.monotonic() + KNOWN_SECONDS
        while not client.story(key, on_error="ignore"):
            if time.monotonic() > deadline:
                raise ClusterLost(f"the scheduler has not taken {key} in {KNOWN_SECONDS:g} s; submit again")
            time.sleep(0.05)
        # once more, now that it is known: of an unknown task a wish is dropped
        fire_and_forget(future)


def has_workers(client: Client, timeout: float) -> bool:
    """Tell whether any worker is there, or comes in so many seconds."""
    if not list_workers(client):
        with suppress(ClusterLost), reaching(client):  # which it is not if the next look succeeds
            client.wait_for_workers(1, timeout=timeout)
    return bool(list_workers(client))


def run_there(
    client: Client, key: str, function: Callable[..., Any], *arguments: Any, timeout: float
) -> bool:
    """Run a function as a task, or raise its error; return False if it has not ended in time.

    Then it may still run, if it has begun.

    Raises
    ------
    ClusterError
        If the workers do not have this package.
    """
    with reaching(client):
        future = client.submit(function, *arguments, key=key, pure=False, priority=100)
    with reaching(client, future):
        try:
            future.result(timeout=timeout)
        except ModuleNotFoundError as error:
            raise ClusterError(
                f"the workers cannot run bitfleet ({error}). Install the driver's packages there."
            ) from error
        except TimeoutError:
            if future.status == "error":  # the function's own
                raise
            future.cancel()
            return False
    return True


@contextmanager
def own_client() -> Iterator[Client]:
    """Inside a task: leave the worker's threads to other tasks, and yield a client to the same scheduler.

    The client is the task's own, so that what it submits dies with it and nothing else does.
    """
    worker = get_worker()
    secede()
    client = Client(
        worker.scheduler.address, security=worker.security, timeout=patience(), set_as_default=False
    )
    try:
        yield client
    finally:
        client.close()
