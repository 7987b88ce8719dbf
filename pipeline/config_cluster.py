"""The ``[cluster]`` table of a job file: where to compute, and how to get there."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

HERE = ("local", "serial")
BATCH = ("slurm", "pbs", "sge", "lsf")
LAUNCHERS = (*BATCH, "ssh", "kubernetes")

# Seconds without any worker after which a cluster is given up; a queue may keep its jobs for days
WORKER_TIMEOUT = 300.0
QUEUE_TIMEOUT = 7 * 86400.0


class Table(BaseModel):
    """A table of a job file: unknown keys and other types are errors, nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TlsTable(Table):
    """``[cluster.tls]``: PEM files for a ``tls://`` address; without it Dask's configuration is used."""

    ca_file: str
    cert: str
    key: str


class SshTable(Table):
    """``[cluster.ssh]``: hosts where workers are started, and how they are logged into."""

    hosts: tuple[str, ...] = Field(strict=False, min_length=1)
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


class KubernetesTable(Table):
    """``[cluster.kubernetes]``: the pods of a cluster that Dask's operator makes."""

    image: str
    namespace: str | None = None
    name: str | None = None
    cpu: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    env_from: str | None = None  # a Secret: where credentials belong
    claim: str | None = None
    mount: str | None = None
    insecure: bool = False


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
    worker_timeout: float | None = Field(default=None, gt=0)
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
        if value in (*HERE, *LAUNCHERS) or "://" in value:
            return value
        raise ValueError(
            'expected "local", "serial", an address such as "tls://host:8786", or a launcher: '
            + ", ".join(LAUNCHERS)
        )

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
