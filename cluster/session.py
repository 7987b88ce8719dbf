"""One round's conversation with the scheduler: submit, wait for what ends, clean up, name what went wrong.

Only the public interface of `distributed.Client` and `distributed.Future` is used.
"""

from __future__ import annotations

import asyncio
import queue
import time
import uuid
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from distributed import KilledWorker
from distributed.scheduler import NoValidWorkerError

from .errors import ClusterLost
from .worker import give_up_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from distributed import Client, Future

RESUME = "The last committed round is intact: start a cluster and resume the run."
POLL_SECONDS = 2.0
IDLE_LOOKS = 2


class Stranded(Exception):
    """Tasks wait for workers that are gone, although others are idle; submitted without hints they run.

    Dask drops a hint where another worker is there at that moment.  Where the last worker has died, it keeps
    the task for that worker's address, which no worker will ever have again.
    """


class Session:
    """A context in which tasks run; if it ends with an error, everything that it has submitted is cancelled.

    Parameters
    ----------
    client : distributed.Client
    worker_timeout : float
        Seconds to wait for a worker while there is none.
    hints : bool
        Whether tasks are offered to the workers that they are meant for.
    """

    def __init__(self, client: Client, worker_timeout: float, *, hints: bool = True) -> None:
        self.client = client
        self._hints = hints
        self._idle_looks = 0
        self._worker_timeout = worker_timeout
        self._token = uuid.uuid4().hex[:12]
        self._running: set[Future] = set()  # keeps them alive until they have ended
        self._alive: WeakSet[Future] = WeakSet()
        self._ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._last_seen = self._last_look = self._last_unpaused = time.monotonic()
        self._workers: dict[str, int] = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # the traceback on its way keeps futures alive, and they would keep results in the workers' memory
        if error is not None and self.client.status == "running":
            with suppress(Exception):
                self.client.cancel(list(self._alive), force=True)
        self._running.clear()

    def submit(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        index: tuple[int, ...] = (),
        worker: str | None = None,
        priority: int = 0,
    ) -> Future:
        """Submit a task under a key of its own, and note when it ends."""
        hints = {"workers": [worker], "allow_other_workers": True} if worker and self._hints else {}
        with reaching(self.client):
            future = self.client.submit(
                function, *arguments, key=(f"{name}-{self._token}", *index), priority=priority, **hints
            )
            self._running.add(future)
            self._alive.add(future)
            future.add_done_callback(self._ended.put)
        return future

    def next_ended(self) -> Future:
        """Wait until any task has ended well; raise the error of one that has not, or `Stranded`."""
        while True:
            try:
                future = self._ended.get(timeout=POLL_SECONDS)
            except queue.Empty:
                self._check_alive()
                self._check_stranded()
                continue
            self._idle_looks = 0
            self._running.discard(future)
            if future.status in ("error", "cancelled"):
                self.result(future)
            return future

    def wait_for(self, future: Future) -> Any:
        """Wait for one task and return its result."""
        while self.next_ended() is not future:
            pass
        return self.result(future)

    def result(self, future: Future) -> Any:
        """Return the result of a task that has ended, or raise its error.

        If its worker has died since, the task runs once more, and like any other it may be `Stranded`.
        """
        patience = POLL_SECONDS
        while True:
            with reaching(self.client, future):
                try:
                    return future.result(timeout=patience)
                except TimeoutError:
                    if future.status == "error":  # the task's own
                        raise
            self._check_alive()
            if future.status != "finished":
                self._check_stranded()
            patience *= 2  # a large result may take its time

    def workers(self) -> dict[str, int]:
        """Return the workers' addresses and threads, by name; at most a few seconds old."""
        if not self._workers or time.monotonic() - self._last_look > POLL_SECONDS:
            self._workers = list_workers(self.client)
            self._last_look = time.monotonic()
            if self._workers:
                self._last_seen = self._last_look
        return self._workers

    def _check_alive(self) -> None:
        if self.client.status in ("closed", "closing"):
            raise ClusterLost(f"the client was closed while a round was running. {RESUME}")
        self._relieve()
        if not self.workers() and time.monotonic() - self._last_seen > self._worker_timeout:
            raise ClusterLost(f"there has been no worker for {self._worker_timeout:g} s. {RESUME}")

    def _relieve(self) -> None:
        """Let workers that Dask has paused, because their memory is nearly full, give up what they can.

        They cannot do so themselves: they only run tasks, and while they are paused they run none.
        """
        with reaching(self.client):
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
            paused = [address for address, info in workers.items() if info.get("status") == "paused"]
            if paused:
                self.client.run(give_up_blocks, workers=paused, on_error="ignore")
        if not paused or len(paused) < len(workers):
            self._last_unpaused = time.monotonic()
        elif time.monotonic() - self._last_unpaused > self._worker_timeout:
            raise ClusterLost(
                f"all workers have been paused for {self._worker_timeout:g} s because their memory is nearly "
                f"full: give each worker more, or run fewer threads in it. {RESUME}"
            )

    def _check_stranded(self) -> None:
        """Raise if, time after time, workers are idle and none has a task of ours."""
        if not self._hints:
            return
        with reaching(self.client):
            processing = self.client.processing().values()
        ours = any(self._token in str(key) for keys in processing for key in keys)
        idle = any(not keys for keys in processing)
        self._idle_looks = self._idle_looks + 1 if idle and not ours else 0
        if self._idle_looks >= IDLE_LOOKS:
            raise Stranded


def list_workers(client: Client) -> dict[str, int]:
    """Return the workers' addresses and threads, ordered by name, which a restarted worker keeps."""
    with reaching(client):
        workers = client.scheduler_info(n_workers=-1)["workers"]
    ordered = sorted(workers.items(), key=lambda item: _natural(item[1].get("name", item[0])))
    return {address: info["nthreads"] for address, info in ordered}


@contextmanager
def reaching(client: Client, future: Future | None = None) -> Iterator[None]:
    """Turn what Dask raises when a cluster is lost into `ClusterLost`; let all other errors pass."""
    try:
        yield
    except KilledWorker as error:
        raise ClusterLost(
            f"{error.allowed_failures + 1} workers died one after another on the same task, the last one "
            f"{error.last_worker.address}. Most often they ran out of memory: give each worker more, or run "
            "fewer threads in it, or choose smaller blocks. If workers are merely killed often, raise Dask's "
            f"distributed.scheduler.allowed-failures. {RESUME}"
        ) from error
    except NoValidWorkerError as error:
        raise ClusterLost(f"there was no worker to run a task. {RESUME}") from error
    except (Exception, asyncio.CancelledError) as error:
        if not _means_loss(error, client, future):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ClusterLost(f"the connection to the scheduler is lost ({reason}). {RESUME}") from error


def _means_loss(error: BaseException, client: Client, future: Future | None) -> bool:
    """Tell an error of the connection from one that a task, or its submission, has raised."""
    if future is not None and future.status in ("error", "cancelled", "lost"):
        return bool(future.status != "error")
    connection = (OSError, CancelledError, asyncio.CancelledError)
    return client.status != "running" or (future is None and isinstance(error, connection))


def _natural(name: Any) -> tuple[int, int, str]:
    """Sort numbered workers by number, others by text after them."""
    return (0, name, "") if isinstance(name, int) else (1, 0, str(name))
