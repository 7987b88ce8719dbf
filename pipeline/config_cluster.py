"""The ``[cluster]`` table of a job file: where to compute, and how to get there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = ("local", "serial")
BATCH = ("slurm", "pbs", "sge", "lsf")
LAUNCHERS = (*BATCH, "ssh", "kubernetes")
PROTOCOLS = ("tls", "tcp", "wss", "ws", "ucx", "ucxx", "inproc")  # that Dask has, some by other packages

# Seconds without any worker after which a cluster is given up; a queue may keep its jobs for days
WORKER_TIMEOUT = 300.0
QUEUE_TIMEOUT = 7 * 86400.0

_SIZE = re.compile(r"(\d+(\.\d*)?) ?([kMGTP]i?)?B?", re.IGNORECASE)
_UNITS = ("", "k", "m", "g", "t", "p")
_NETWORK_ADDRESS = re.compile(r"[^@\s/]+:\d{1,5}")
_ASSIGNMENT = re.compile(r"(\w+)=(?![\"']?\$)")  # of a value itself, not of what a command or variable gives
_SECRET = re.compile(r"(^|_)(SECRET|PASSWORD|PASSWD|TOKEN|(ACCESS|API|PRIVATE)_?KEY)(_|$)", re.IGNORECASE)


class Table(BaseModel):
    """A table of a job file: unknown keys and other types are errors, nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TlsTable(Table):
    """``[cluster.tls]``: PEM files for a ``tls://`` address; without it Dask's configuration is used."""

    ca_file: str = Field(min_length=1)
    cert: str = Field(min_length=1)
    key: str = Field(min_length=1)


class SshTable(Table):
    """``[cluster.ssh]``: hosts where workers are started, and how they are logged into."""

    hosts: tuple[Annotated[str, Field(min_length=1)], ...] = Field(strict=False, min_length=1)
    host: str | None = None  # address of this machine as the others see it
    username: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    private_key: str | None = None
    known_hosts: str | None = None
    python: str | None = None
    shared_folder: str | None = None


class BatchTable(Table):
    """``[cluster.slurm]`` and its like; what is missing is taken from Dask's ``jobqueue`` configuration."""

    queue: str | None = None
    account: str | None = None
    walltime: str | None = None
    directives: tuple[str, ...] = Field(default=(), strict=False)
    prologue: tuple[str, ...] = Field(default=(), strict=False)
    host: str | None = None
    interface: str | None = None
    python: str | None = None
    log_folder: str | None = None
    local_folder: str | None = None
    shared_folder: str | None = None

    @field_validator("directives", "prologue")
    @classmethod
    def _no_secrets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        _refuse_secrets(
            [name for line in value for name in _ASSIGNMENT.findall(line)],
            'read it where the job runs, from a file that only you can read: prologue = [". ~/.secrets"]',
        )
        return value


class KubernetesTable(Table):
    """``[cluster.kubernetes]``: the pods of a cluster that Dask's operator makes."""

    image: str = Field(min_length=1)
    namespace: str | None = None
    name: str | None = Field(default=None, pattern=r"^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$")
    cpu: str | None = Field(default=None, pattern=r"^\d+(\.\d+)?m?$")
    env: dict[str, str] = Field(default_factory=dict)
    env_from: str | None = None  # a Secret: where credentials belong
    claim: str | None = None
    mount: str | None = Field(default=None, pattern="^/.")
    insecure: bool = False

    @model_validator(mode="after")
    def _mounted(self) -> KubernetesTable:
        if self.mount is not None and self.claim is None:
            raise ValueError("mount is where the volume of a claim is seen: give claim = ..., too")
        return self

    @field_validator("env")
    @classmethod
    def _no_secrets(cls, value: dict[str, str]) -> dict[str, str]:
        _refuse_secrets(value, "keep it in a Secret and name that: env_from = ...")
        return value


def _refuse_secrets(names: Iterable[str], advice: str) -> None:
    """Raise `ValueError` for a variable that is named like a credential: the run's record would hold it."""
    for name in names:
        if _SECRET.search(name) and not name.upper().endswith(("_FILE", "_PATH")):
            raise ValueError(f"{name} looks like a credential, and a run keeps this table; {advice}")


class ClusterTable(Table):
    """``[cluster]``: this process (``"serial"``), this machine (``"local"``), an address, or a launcher.

    ``launcher = "slurm"`` and ``scheduler = "slurm"`` say the same; a launcher's own settings are in the
    table of its name.
    """

    scheduler: str = "local"
    n_workers: int | None = Field(default=None, ge=1)
    max_workers: int | None = Field(default=None, ge=1)
    threads_per_worker: int = Field(default=1, ge=1)
    memory_limit: str | None = None
    worker_timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    insecure: bool = False
    tls: TlsTable | None = None
    ssh: SshTable | None = None
    slurm: BatchTable | None = None
    pbs: BatchTable | None = None
    sge: BatchTable | None = None
    lsf: BatchTable | None = None
    kubernetes: KubernetesTable | None = None

    @model_validator(mode="before")
    @classmethod
    def _launcher(cls, value: Any) -> Any:
        """Turn ``launcher`` into what it means for ``scheduler``."""
        if not isinstance(value, dict) or "launcher" not in value:
            return value
        table = dict(value)
        launcher = table.pop("launcher")
        given = table.get("scheduler")
        if launcher == "address":
            if not isinstance(given, str) or "://" not in given:
                raise ValueError('launcher = "address" needs scheduler = "tls://host:8786"')
            return table
        if launcher not in (*HERE, *LAUNCHERS):
            known = ", ".join((*HERE, "address", *LAUNCHERS))
            raise ValueError(f"expected launcher to be one of {known}, got {launcher!r}")
        if given not in (None, launcher):
            raise ValueError(f"launcher = {launcher!r} starts a scheduler of its own, not {given!r}")
        return table | {"scheduler": launcher}

    @field_validator("scheduler")
    @classmethod
    def _known(cls, value: str) -> str:
        if value in (*HERE, *LAUNCHERS):
            return value
        protocol, found, rest = value.partition("://")
        if found and protocol not in PROTOCOLS:
            raise ValueError(f'expected an address such as "tls://host:8786", got {protocol}://…')
        if found and (protocol not in ("tcp", "tls") or _NETWORK_ADDRESS.fullmatch(rest)):
            return value
        if found:  # which is not repeated: there may be a password in it
            raise ValueError('expected a host and a port alone, such as "tls://host:8786"')
        raise ValueError(
            'expected "local", "serial", an address such as "tls://host:8786", or a launcher: '
            + ", ".join(LAUNCHERS)
        )

    @field_validator("memory_limit")
    @classmethod
    def _size(cls, value: str | None) -> str | None:
        if value is None:
            return None
        found = _SIZE.fullmatch(value)
        n_bytes = (
            0.0 if found is None else float(found[1]) * 1000 ** _UNITS.index((found[3] or "")[:1].lower())
        )
        if not 0 < n_bytes < 1000**6:
            raise ValueError(f'expected a size such as "4 GiB", got {value!r}')
        return value

    @model_validator(mode="after")
    def _fitting(self) -> ClusterTable:
        """Refuse settings of another place than the one that is asked for."""
        others = [name for name in LAUNCHERS if name != self.scheduler and getattr(self, name) is not None]
        if others:
            raise ValueError(
                f'[cluster.{others[0]}] is for launcher = "{others[0]}", but the scheduler is '
                f'"{self.scheduler}"'
            )
        if self.scheduler in ("ssh", "kubernetes") and getattr(self, self.scheduler) is None:
            raise ValueError(f'launcher = "{self.scheduler}" needs a table [cluster.{self.scheduler}]')
        if "://" not in self.scheduler and (self.tls is not None or self.insecure):
            raise ValueError("tls and insecure are for a scheduler that is given by its address")
        if self.max_workers is not None and self.max_workers < (self.n_workers or 1):
            raise ValueError(
                f"max_workers = {self.max_workers} is less than n_workers = {self.n_workers or 1}"
            )
        return self

    @property
    def kind(self) -> Literal["serial", "local", "address", "launcher"]:
        """What ``scheduler`` is."""
        if self.scheduler in LAUNCHERS:
            return "launcher"
        return self.scheduler if self.scheduler in HERE else "address"  # type: ignore[return-value]

    @property
    def patience(self) -> float:
        """Seconds without any worker after which the cluster is given up."""
        if self.worker_timeout is not None:
            return self.worker_timeout
        return QUEUE_TIMEOUT if self.kind == "launcher" else WORKER_TIMEOUT

    def connection(self) -> dict[str, Any]:
        """Return the keyword arguments of `bitfleet.cluster.launch.connect`."""
        table = getattr(self, self.scheduler) if self.kind == "launcher" else None
        return {
            "scheduler": self.scheduler,
            "n_workers": self.n_workers,
            "max_workers": self.max_workers,
            "threads_per_worker": self.threads_per_worker,
            "memory_limit": self.memory_limit,
            "certificates": None if self.tls is None else self.tls.model_dump(),
            "insecure": self.insecure,
            "options": {} if table is None else table.model_dump(),
            "worker_timeout": self.patience,
        }
