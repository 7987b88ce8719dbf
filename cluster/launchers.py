"""Clusters that are started for a run: batch systems, SSH and Kubernetes, each through its own library.

The scheduler runs in the driver's process (on Kubernetes: in a pod), so the cluster ends with its driver.
What crosses the network is mutual TLS, with certificates made for the cluster's life.  A job that ends before
its time is asked for again; on a host that is logged into, a worker that dies is started again.
"""

from __future__ import annotations

import importlib
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
from distributed import Client, Scheduler, SpecCluster
from distributed.core import Status
from distributed.utils import get_ip

from . import kubernetes
from .errors import ClusterError, InsecureCluster
from .security import temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

BATCH = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "sge": "SGECluster", "lsf": "LSFCluster"}
ACCOUNT = {"slurm": "account", "pbs": "account", "sge": "project", "lsf": "project"}  # who pays, by system
LAUNCHERS = (*BATCH, "ssh", "kubernetes")

# Kept below the home folder: batch systems and SSH hosts share it, and it is nobody else's
SHARED_FOLDER = "~/.bitfleet"
LOCAL_DASHBOARD = "127.0.0.1:0"
DEATH_TIMEOUT = 60  # seconds after which a worker ends that has lost its scheduler
CHECK_SECONDS = "5s"  # how often lost workers are asked for again
LOOK_SECONDS = 0.2
QUEUE_TIMEOUT = 7 * 86400.0  # a queue may keep its jobs for days


@dataclass(frozen=True)
class Size:
    """How many workers, and how large.

    Attributes
    ----------
    n_workers : int
        Always kept running.
    max_workers : int
        As many as there is work for, up to these.
    threads_per_worker : int
    memory_limit : str or None
        Of one worker, such as ``"4 GiB"``.
    """

    n_workers: int = 1
    max_workers: int = 1
    threads_per_worker: int = 1
    memory_limit: str | None = None


@contextmanager
def launched(
    kind: str,
    size: Size,
    options: Mapping[str, Any],
    *,
    timeout: float = QUEUE_TIMEOUT,
    note: Callable[[str], None] | None = None,
) -> Iterator[Client]:
    """Start a cluster and yield its client when there is a worker; on the way out, end what was started.

    Parameters
    ----------
    kind : str
        One of `LAUNCHERS`.
    size : Size
    options : mapping
        What the launcher's table in a job file says, beside the size.
    timeout : float
        Seconds to wait for the first worker.
    note : callable, optional
        Told what is waited for.

    Raises
    ------
    ClusterError
        If the batch system, the hosts or Kubernetes refuse, or there is no worker in time.
    ImportError
        If the launcher's library is not installed.
    """
    start: Callable[..., Any] = _START.get(kind, _batch)
    with ExitStack() as stack:
        try:
            cluster = start(kind, size, dict(options), stack)
            client: Client = stack.enter_context(Client(cluster))
        except (ClusterError, ImportError):
            raise
        except Exception as error:  # each library has errors of its own
            raise ClusterError(f"{kind} does not start workers: {error or type(error).__name__}") from error
        if note is not None:
            note(f"waiting for {kind} to start {size.n_workers} workers")
        _wait_for_first(client, cluster, kind, timeout)
        yield client


def _wait_for_first(client: Client, cluster: Any, kind: str, timeout: float) -> None:
    refusals: list[BaseException] = getattr(cluster, "refusals", [])
    deadline = time.monotonic() + timeout
    while not client.scheduler_info(n_workers=-1)["workers"]:
        if refusals:
            raise ClusterError(f"{kind} refuses a job: {refusals[0]}") from refusals[0]
        if time.monotonic() > deadline:
            raise ClusterError(f"{kind} has started no worker in {timeout:g} s; is the queue full?")
        time.sleep(LOOK_SECONDS)


def _batch(kind: str, size: Size, options: dict[str, Any], stack: ExitStack) -> Any:
    shared = _shared_folder(options)
    security, _files = stack.enter_context(temporary(shared))
    cluster = batch_cluster(kind, size, options, shared=shared, security=security)
    stack.callback(_close, cluster)
    cluster.adapt(minimum_jobs=size.n_workers, maximum_jobs=size.max_workers, interval=CHECK_SECONDS)
    return cluster


def _close(cluster: Any) -> None:
    """Close a cluster; that a job was refused has been said already, and closing says it once more."""
    with suppress(OSError, RuntimeError):
        cluster.close()


def batch_cluster(
    kind: str, size: Size, options: Mapping[str, Any], *, shared: Path, security: Any = None
) -> Any:
    """Return dask-jobqueue's cluster of one-worker jobs; it asks for none before it is scaled.

    What neither ``size`` nor ``options`` say is taken from Dask's own ``jobqueue`` configuration.
    """
    jobqueue = _library("dask_jobqueue", "batch", kind)
    host = None if options.get("interface") and not options.get("host") else _own_host(options)
    given = {
        "memory": size.memory_limit,
        "queue": options.get("queue"),
        ACCOUNT[kind]: options.get("account"),
        "walltime": options.get("walltime"),
        "job_extra_directives": list(options.get("directives") or ()) or None,
        "job_script_prologue": list(options.get("prologue") or ()) or None,
        "interface": options.get("interface"),
        "python": options.get("python"),
        "log_directory": options.get("log_folder"),
        "local_directory": options.get("local_folder"),
    }
    kind_of_cluster = getattr(jobqueue, BATCH[kind])
    refusals: list[BaseException] = []

    class Job(kind_of_cluster.job_cls):  # type: ignore[misc, name-defined]
        """A job whose refusal is not lost among a cluster's background tasks."""

        async def start(self) -> None:
            try:
                await super().start()
            except (OSError, RuntimeError) as error:
                refusals.append(error)
                self.status = Status.failed  # or the cluster does not close
                raise

    cluster = kind_of_cluster(
        job_cls=Job,
        cores=size.threads_per_worker,
        processes=1,
        security=security,
        protocol=None if security is None else "tls://",
        shared_temp_directory=str(shared),
        death_timeout=DEATH_TIMEOUT,
        worker_extra_args=["--dashboard-address", LOCAL_DASHBOARD],
        scheduler_options={"dashboard_address": LOCAL_DASHBOARD} | ({"host": host} if host else {}),
        silence_logs="critical",
        **{key: value for key, value in given.items() if value is not None},
    )
    cluster.refusals = refusals
    return cluster


def _ssh(kind: str, size: Size, options: dict[str, Any], stack: ExitStack) -> Any:
    _library("asyncssh", "ssh", kind)
    from distributed.deploy.ssh import Worker

    security, files = stack.enter_context(temporary(_shared_folder(options)))
    hosts = options["hosts"]
    connect: dict[str, Any] = {"port": options.get("port") or 22}
    connect |= {"username": options["username"]} if options.get("username") else {}
    connect |= {"client_keys": [_file(options["private_key"])]} if options.get("private_key") else {}
    connect |= {"known_hosts": _file(options["known_hosts"])} if options.get("known_hosts") else {}
    worker = {
        "nthreads": size.threads_per_worker,
        "memory_limit": size.memory_limit or "auto",
        "death_timeout": DEATH_TIMEOUT,
        "dashboard_address": LOCAL_DASHBOARD,
        "protocol": "tls://",
    }
    shared = {"connect_options": connect, "kwargs": worker, "remote_python": options.get("python")}
    spec = {
        number: {"cls": Worker, "options": {"address": hosts[number % len(hosts)], **shared}}
        for number in range(max(size.n_workers, len(hosts)))
    }
    scheduler = {
        "host": _own_host(options),
        "dashboard_address": LOCAL_DASHBOARD,
        "protocol": "tls://",
        "security": security,
    }
    # a worker of another host takes its configuration from here: where its certificates are
    stack.enter_context(dask.config.set(_worker_config(files)))
    return stack.enter_context(
        SpecCluster(
            spec,
            {"cls": Scheduler, "options": scheduler},
            security=security,
            name="bitfleet",
            silence_logs="critical",
        )
    )


def _kubernetes(kind: str, size: Size, options: dict[str, Any], stack: ExitStack) -> Any:
    if not options.get("insecure"):
        raise InsecureCluster(
            "Dask's Kubernetes operator connects its pods without encryption: whoever reaches them in the "
            "cluster can run code there. Restrict them by the network policy of cluster/deploy and say "
            "insecure = true in [cluster.kubernetes]"
        )
    operator = _library("dask_kubernetes.operator", "kubernetes", kind)
    cluster = stack.enter_context(
        operator.KubeCluster(
            custom_cluster_spec=kubernetes.manifest(size, options),
            namespace=options.get("namespace"),
            quiet=True,
        )
    )
    if size.max_workers > size.n_workers:
        cluster.adapt(minimum=size.n_workers, maximum=size.max_workers)
    return cluster


_START: dict[str, Callable[..., Any]] = {"ssh": _ssh, "kubernetes": _kubernetes}


def _worker_config(files: Mapping[str, Path]) -> dict[str, Any]:
    return {
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.ca-file": str(files["ca_file"]),
        "distributed.comm.tls.worker": {"cert": str(files["cert"]), "key": str(files["key"])},
    }


def _shared_folder(options: Mapping[str, Any]) -> Path:
    return Path(options.get("shared_folder") or SHARED_FOLDER).expanduser().absolute()


def _own_host(options: Mapping[str, Any]) -> str:
    """Return this machine's address as workers see it, after a try whether a scheduler can have it."""
    host: str = options.get("host") or get_ip()
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError as error:
        raise ClusterError(
            f'expected host = "…" to be a name or an address of this machine, got {host!r} ({error})'
        ) from error
    return host


def _file(path: str) -> str:
    return str(Path(path).expanduser())


def _library(name: str, extra: str, kind: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0].replace("_", "-")
        raise ImportError(
            f"the launcher {kind} needs the package {package} ({error}): pip install 'bitfleet[{extra}]'"
        ) from error
