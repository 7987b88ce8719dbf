"""Getting a Dask client: start workers here or elsewhere, connect to a scheduler, or use a client."""

from __future__ import annotations

import logging
import sys
import uuid
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
from dask.system import CPU_COUNT
from dask.utils import parse_bytes
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError
from distributed.system import MEMORY_LIMIT

from . import dashboard
from .errors import ClusterError, PathNotShared
from .joining import join
from .launchers import LAUNCHERS, QUEUE_TIMEOUT, Size, launched
from .session import reaching

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

LOCAL = "local"
LOOPBACK = "127.0.0.1"

# Threads are pinned before a worker imports NumPy, and again around each task
ONE_THREAD = {
    name: 1
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    )
}
LOCAL_CONFIG: dict[str, Any] = {
    # A task is given up after so many workers have died on it.  Dask's own 3 is soon reached by innocent
    # tasks when workers are killed from outside; without a limit a deadly block would go round for ever.
    "distributed.scheduler.allowed-failures": 20,
    "distributed.nanny.pre-spawn-environ": ONE_THREAD,
    "distributed.worker.profile.enabled": False,
    # Idle workers would look at the clock 50 times a second: two to three percent of a core each.
    "distributed.admin.tick.interval": "500 ms",
    "distributed.admin.system-monitor.interval": "1 s",
}
# A worker that died is replaced at once, but on a machine with much else to do that may take longer than
# the 15 s after which Dask gives up its place for good: in the end there would be no worker left.
REPLACEMENT_CONFIG = {"distributed.deploy.lost-worker-timeout": "5 minutes"}
_GUARD = (
    "worker processes import the script that starts them: put what it does under "
    '`if __name__ == "__main__":`, or give scheduler="serial"'
)


@contextmanager
def connect(
    scheduler: str | Client | None = None,
    *,
    n_workers: int | None = None,
    max_workers: int | None = None,
    threads_per_worker: int = 1,
    memory_limit: int | str | None = None,
    certificates: Mapping[str, str] | None = None,
    insecure: bool = False,
    options: Mapping[str, Any] | None = None,
    worker_timeout: float = QUEUE_TIMEOUT,
    note: Callable[[str], None] | None = None,
) -> Iterator[Client]:
    """Yield a client; on the way out, close what was opened here and nothing else.

    Parameters
    ----------
    scheduler : str or Client, optional
        ``None`` or ``"local"``: worker processes on this machine, reachable from it alone.  A name of
        `LAUNCHERS`, such as ``"slurm"``: workers started there.  An address such as ``"tls://host:8786"``:
        that scheduler.  A connected client: itself.
    n_workers, threads_per_worker : int
        For workers started here; on this machine they use all processors that this process may use by
        default, elsewhere one worker is started.
    max_workers : int, optional
        Let the cluster grow to so many workers while there is work for them.
    memory_limit : int or str, optional
        Bytes per worker, or text such as ``"2 GiB"``; for local workers by default an equal share of the
        machine's.
    certificates : mapping, optional
        Files ``ca_file``, ``cert`` and ``key`` for a ``tls://`` address.
    insecure : bool
        Connect to an address that is neither on this machine nor encrypted.
    options : mapping, optional
        What a launcher is told beside the size, such as ``queue``.
    worker_timeout : float
        Seconds to wait for a launcher's first worker.
    note : callable, optional
        Told what is waited for.

    Yields
    ------
    distributed.Client
        ``client.dashboard_link`` is where to watch it.

    Raises
    ------
    ClusterError
        If workers do not start; locally above all because the script has no ``if __name__ == "__main__":``.
    ClusterLost
        If no scheduler answers at the address.
    InsecureCluster
        If the address is neither on this machine nor encrypted, and ``insecure`` is not given.
    ValueError
        If settings of workers are given for a cluster that exists already, or make no sense.
    """
    least = n_workers or 1
    if max_workers is not None and max_workers < least:
        raise ValueError(f"expected max_workers >= n_workers, got {max_workers} < {least}")
    if scheduler is None or scheduler == LOCAL:
        with _local_client(n_workers, max_workers, threads_per_worker, memory_limit) as client:
            yield client
        return
    if scheduler in LAUNCHERS:
        limit = None if memory_limit is None else str(memory_limit)
        size = Size(least, max_workers or least, threads_per_worker, limit)
        with launched(scheduler, size, options or {}, timeout=worker_timeout, note=note) as client:
            yield client
        return
    if (
        n_workers is not None
        or max_workers is not None
        or memory_limit is not None
        or threads_per_worker != 1
    ):
        raise ValueError(
            "n_workers, max_workers, threads_per_worker and memory_limit are for workers started here; "
            f"the cluster given as scheduler={scheduler!r} has its own"
        )
    if isinstance(scheduler, Client):
        yield scheduler
        return
    if "://" not in scheduler:
        raise ValueError(
            f'expected scheduler="{LOCAL}", a launcher ({", ".join(LAUNCHERS)}) or an address such as '
            f'"tls://host:8786", got "{scheduler}"'
        )
    client = join(scheduler, certificates, insecure)
    try:
        yield client
    finally:
        client.close()


def check_shared_path(client: Client, folder: str | os.PathLike[str]) -> None:
    """Make sure that every worker reads in ``folder`` what is written here.

    Raises
    ------
    PathNotShared
        Naming the workers that do not.
    """
    token = uuid.uuid4().hex
    probe = Path(folder).resolve() / f".probe-{token}"
    probe.write_text(token)
    try:
        check_readable(
            client,
            partial(_read_text, str(probe)),
            token,
            f"to {probe.parent}",
            "Put the run and its data on a file system that all workers mount at the same path.",
        )
    finally:
        probe.unlink(missing_ok=True)


def check_readable(client: Client, read: Callable[[], str], token: str, where: str, advice: str) -> None:
    """Make sure that ``read`` returns ``token`` on every worker.

    Raises
    ------
    PathNotShared
        Naming the workers on which it does not, what was written ``where``, and ``advice``.
    """
    with reaching(client):
        found = client.run(_read, read, on_error="return")
    # a worker that died while it was asked is not blind, it is gone
    blind = {
        worker: text
        for worker, text in sorted(found.items())
        if text != token and not isinstance(text, CommClosedError)
    }
    if blind:
        reasons = "; ".join(f"{worker}: {reason}" for worker, reason in blind.items())
        raise PathNotShared(
            f"{len(blind)} of {len(found)} workers cannot read what the driver has written {where} "
            f"({reasons}). {advice}"
        )


@contextmanager
def _local_client(
    n_workers: int | None, max_workers: int | None, threads_per_worker: int, memory_limit: int | str | None
) -> Iterator[Client]:
    if threads_per_worker < 1 or (n_workers is not None and n_workers < 1):
        raise ValueError(
            f"expected at least one worker with one thread, got {n_workers=}, {threads_per_worker=}"
        )
    if _script_is_being_imported():
        raise ClusterError(f"a worker was asked to start workers; {_GUARD}")
    count = n_workers or max(1, CPU_COUNT // threads_per_worker)
    limit = MEMORY_LIMIT // (max_workers or count) if memory_limit is None else parse_bytes(memory_limit)
    cluster = _local_cluster(count, threads_per_worker, limit)
    with dask.config.set(REPLACEMENT_CONFIG), cluster, Client(cluster) as client:
        if max_workers is not None and max_workers > count:
            cluster.adapt(minimum=count, maximum=max_workers)
        yield client


def _local_cluster(n_workers: int, threads_per_worker: int, memory_limit: int) -> LocalCluster:
    try:
        with dask.config.set(LOCAL_CONFIG):
            cluster = LocalCluster(
                n_workers=n_workers,
                threads_per_worker=threads_per_worker,
                memory_limit=memory_limit,
                processes=True,
                host=LOOPBACK,
                dashboard_address=f"{LOOPBACK}:0",
                scheduler_kwargs={"dashboard": False},  # until somebody looks
                preload=[*dask.config.get("distributed.worker.preload"), f"{__package__}.terminal"],
                silence_logs=logging.CRITICAL,  # that workers come and go is our business, not the user's
            )
    except RuntimeError as error:
        raise ClusterError(f"the workers did not start ({error}). In a script, {_GUARD}") from None
    dashboard.serve_when_asked(cluster.scheduler)
    return cluster


def _script_is_being_imported() -> bool:
    """Tell whether this is a spawned process that has not yet finished importing its parent's script."""
    script = sys.modules.get("__mp_main__")
    return script is not None and script is not sys.modules.get("__main__")


def _read(read: Callable[[], str]) -> str:
    return read()


def _read_text(path: str) -> str:
    return Path(path).read_text()
