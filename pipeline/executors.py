"""From a word, an address or a client to an executor."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..cluster.serial import SerialExecutor
from ..storage.object_paths import ObjectPath
from ..storage.places import Probe
from .config_cluster import ClusterTable
from .errors import ConfigError
from .validation import validated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..storage.places import Place
    from ..tasks.protocols import Executor

SERIAL_TABLE = ClusterTable(scheduler="serial")


@dataclass(frozen=True)
class Where:
    """Where to compute.

    Attributes
    ----------
    table : ClusterTable
        What a run records, so that a resume finds the same place.
    client : distributed.Client or None
        The caller's own; it is used and not closed.
    """

    table: ClusterTable = SERIAL_TABLE
    client: Any = None

    @property
    def in_process(self) -> bool:
        """Whether everything is computed in this process."""
        return self.table.scheduler == "serial"

    @property
    def on_this_machine(self) -> bool:
        """Whether every worker sees this machine's folders."""
        if self.table.kind != "address":
            return self.table.kind != "launcher"
        from ..cluster.security import is_loopback

        return is_loopback(self.table.scheduler)


SERIAL = Where()


def choose(scheduler: Any, **options: Any) -> Where:
    """Return the place that ``scheduler=`` means.

    Parameters
    ----------
    scheduler : None, str or distributed.Client
        None or ``"serial"``: this process; ``"local"``: a cluster on this machine; an address, a launcher
        such as ``"slurm"``, or a client.
    **options
        Other keys of a job file's ``[cluster]`` table, such as ``n_workers`` and ``memory_limit``.

    Raises
    ------
    ConfigError
        If it is nothing of these.
    """
    if isinstance(scheduler, Where):
        return scheduler
    if isinstance(scheduler, ClusterTable):
        return Where(scheduler)
    given = {key: value for key, value in options.items() if value is not None}
    if scheduler is None:
        scheduler = "local" if given else "serial"  # who asks for workers asks for a cluster
    if isinstance(scheduler, str):
        return Where(validated(ClusterTable, {"scheduler": scheduler, **given}, "cluster"))
    address = getattr(getattr(scheduler, "scheduler", None), "address", None)
    if not isinstance(address, str):
        raise ConfigError(
            'expected scheduler=None, "local", an address or a connected distributed.Client, '
            f"got {type(scheduler).__name__}"
        )
    return Where(validated(ClusterTable, {"scheduler": address}, "cluster"), scheduler)


@contextmanager
def open_executor(
    where: Where,
    *,
    shared: Place | None = None,
    allow_environment_change: bool = False,
    note: Callable[[str], None] | None = None,
) -> Iterator[Executor]:
    """Start or join what ``where`` names, yield its executor, and close only what was started here.

    Parameters
    ----------
    where : Where
    shared : Path or ObjectPath, optional
        A place that every worker must see; checked before any work.
    allow_environment_change : bool
    note : callable, optional
        Told where the dashboard is.
    """
    if where.in_process:
        yield SerialExecutor()
        return
    from ..cluster.dask_executor import DaskExecutor

    with joined(where, note=note) as there:
        executor = DaskExecutor(
            there.client,
            allow_environment_change=allow_environment_change,
            worker_timeout=there.table.patience,
        )
        if shared is not None:
            _check_shared(there.client, shared)
        yield executor


def _check_shared(client: Any, shared: Place) -> None:
    from ..cluster.launch import check_readable, check_shared_path

    if not isinstance(shared, ObjectPath):
        check_shared_path(client, shared)
        return
    with Probe.written(shared) as (probe, token):
        check_readable(
            client, probe, token, f"in {shared}",
            "Give every worker the variables AWS_… of its environment that this process has.",
        )  # fmt: skip


@contextmanager
def joined(where: Where, *, note: Callable[[str], None] | None = None) -> Iterator[Where]:
    """Yield the same place with a client, for several things to do there; close what was started here."""
    if where.in_process or where.client is not None:
        yield where
        return
    from ..cluster.launch import connect

    with connect(**where.table.connection(), note=note) as client:
        if note is not None and client.dashboard_link:
            note(f"dashboard: {client.dashboard_link}")
        yield replace(where, client=client)
