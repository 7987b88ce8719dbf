"""Job files and the record that a run keeps of itself.

A *job* (``job.toml``) says what a user wants: data, method, run, and perhaps cluster, encode, evaluate.
A *run configuration* (``config.json`` in the run directory) is what a resume needs: everything resolved,
nothing left to defaults that may change.  Both are validated whole before anything starts; unknown keys are
errors.  The method table is checked against the fields of the method's own dataclass.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from ..tasks import registry
from ..tasks.metrics import parse_metrics
from .config_cluster import ClusterTable, Table
from .errors import ConfigError
from .validation import checked_as, nearest, plain, validated

if TYPE_CHECKING:
    from ..tasks.protocols import Method


class DataTable(Table):
    """``[data]``: what is learned from, and optionally the rows whose mean and PCA come in front."""

    path: str
    preprocess_on: str | None = None


class RunTable(Table):
    """``[run]``: where the run is kept, and what its bits depend on beside data and method."""

    path: str
    seed: int = Field(default=0, ge=0, lt=2**63)
    block_rows: int | None = Field(default=None, ge=1)
    fan_in: int = Field(default=8, ge=2)


class EncodeTable(Table):
    """``[encode]``: where the codes go; ``data`` defaults to the training data."""

    path: str
    data: str | None = None
    active: bool = False


class EvaluateTable(Table):
    """``[evaluate]``: metrics over queries; ``data`` (what is searched) defaults to the encoded data.

    Without ``metrics`` those of labels and neighbours, or of neighbours alone where there are no labels.
    With ``refine``, a decoder is fitted to the training data and kept in the run, as ``decoder.zarr``.
    """

    queries: str
    metrics: tuple[str, ...] | None = Field(default=None, strict=False, min_length=1)
    data: str | None = None
    refine: int | None = Field(default=None, ge=1)
    asymmetric: bool = False
    rescore: int | None = Field(default=None, ge=1)
    distance: Literal["euclidean", "cosine"] = "euclidean"

    @field_validator("metrics", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [name.strip() for name in value.split(",")] if isinstance(value, str) else value

    @field_validator("metrics")
    @classmethod
    def _known(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Say here what would otherwise be said when training is over."""
        if value is not None:
            parse_metrics(value)
        return value

    @model_validator(mode="after")
    def _one_order(self) -> EvaluateTable:
        if self.refine is not None and self.rescore is not None:
            raise ValueError("expected refine (by a decoder) or rescore (by the vectors), got both")
        return self


class Job(Table):
    """A whole job file; paths are resolved, the method is built by `build_method`."""

    data: DataTable
    method: dict[str, Any]
    run: RunTable
    cluster: ClusterTable = ClusterTable()
    encode: EncodeTable | None = None
    evaluate: EvaluateTable | None = None

    @field_validator("method")
    @classmethod
    def _named(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value.get("name"), str):
            raise ValueError(f'expected name = "..." in [method]; methods are {", ".join(method_names())}')
        return value

    def build_method(self) -> Method:
        """Return the validated method of the ``[method]`` table."""
        params = dict(self.method)
        return build_method(params.pop("name"), params)


class RunConfig(Table):
    """What ``config.json`` holds.  Paths are absolute, or relative to the run directory."""

    format: Literal["bitfleet-run"] = "bitfleet-run"
    format_version: Literal[1] = 1
    data: str
    data_digest: str
    method: dict[str, Any]
    seed: int = Field(ge=0)
    block_rows: int = Field(ge=1)
    fan_in: int = Field(ge=2)
    preprocess_on: str | None = None
    preprocess_digest: str | None = None
    cluster: ClusterTable = ClusterTable(scheduler="serial")

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RunConfig:
        """Validate what was read from ``config.json``."""
        return validated(cls, value, "config.json")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return self.model_dump(mode="json")

    def build_method(self) -> Method:
        """Return the validated method; it is looked up by name, never imported from the file."""
        params = dict(self.method)
        return build_method(params.pop("name", ""), params)

    def identity(self) -> dict[str, Any]:
        """Return what decides the bits (beside the environment): field name to JSON value."""
        return {
            "data": self.data_digest,
            "preprocess_on": self.preprocess_digest,
            "method": dict(self.method),
            "seed": self.seed,
            "block_rows": self.block_rows,
            "fan_in": self.fan_in,
        }


def load_job(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Job:
    """Read a job file.

    Parameters
    ----------
    path : path
        A TOML file.  Bare relative paths in it are relative to its folder.
    overrides : mapping of dotted key to value, optional
        Such as ``{"method.n_bits": 64}``; they replace what the file says.

    Raises
    ------
    ConfigError
        For a syntax error, an unknown key, a wrong type or a missing table; the message names the key.
    """
    content, folder, name = read_toml(path, "a job file")
    return _job(content, overrides, name, folder)


def read_toml(
    source: str | os.PathLike[str] | Mapping[str, Any], what: str = "a file"
) -> tuple[dict[str, Any], Path, str]:
    """Return what a TOML file holds, the folder of its relative paths, and what to call it in messages.

    Tables as a file would hold them may be given instead; their paths are relative to this folder.
    """
    if not isinstance(source, str | os.PathLike | Mapping):
        raise ConfigError(f"expected {what} or its tables as a mapping, got {type(source).__name__}")
    if isinstance(source, Mapping):
        return copy.deepcopy(dict(source)), Path.cwd(), "what was given"
    path = Path(source)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"expected {what}, but {path} does not exist") from None
    except IsADirectoryError:
        raise ConfigError(f"expected {what} (TOML), but {path} is a folder") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    return content, path.resolve().parent, str(path)


def as_job(
    job: str | os.PathLike[str] | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> Job:
    """Return the job in a file, or of tables as a file would hold them (paths relative to this folder)."""
    if isinstance(job, str | os.PathLike):
        return load_job(Path(job), overrides)
    content, folder, _name = read_toml(job)
    return _job(content, overrides, "the job", folder)


def method_names() -> list[str]:
    """Return the registered methods' names."""
    return registry.names()


def build_method(name: str, params: Mapping[str, Any]) -> Method:
    """Build a method from its name and hyper-parameters, checked against its dataclass fields.

    Raises
    ------
    ConfigError
        For an unknown method or parameter (with the nearest known name), a wrong type or a refused value.
    """
    try:
        cls: Any = registry.get(name)
    except (KeyError, ValueError) as error:
        raise ConfigError(str(error.args[0] if error.args else error)) from None
    known = [f.name for f in dataclasses.fields(cls) if f.init]
    for key in params:
        if key not in known:
            raise ConfigError(
                f"method {name!r} has no parameter {key!r}{nearest(key, known)}; it has {', '.join(known)}"
            )
    hints = typing.get_type_hints(cls)
    checked = {key: checked_as(f"{name}.{key}", value, hints[key]) for key, value in params.items()}
    try:
        return cls(**checked)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"method {name!r}: {error}") from None


def method_table(method: Method) -> dict[str, Any]:
    """Return the method's name and every hyper-parameter, defaults included, as JSON values."""
    fields = {f.name: getattr(method, f.name) for f in dataclasses.fields(method) if f.init}  # type: ignore[arg-type]
    return {"name": method.name, **{key: plain(value) for key, value in fields.items()}}


def parse_assignment(text: str) -> tuple[str, Any]:
    """Split ``key=value`` as given to ``--set``; the value is TOML, or a bare word taken as a string."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"expected NAME=VALUE, such as --set n_iter=20, got {text!r}")
    value = value.strip()
    if value.lower() in ("none", "null"):
        return key.strip(), None
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


def resolve_path(path: str, folder: Any) -> str:
    """Return ``path`` made absolute against ``folder``; addresses such as ``s3://…`` stay as they are."""
    if "://" in path:
        return path
    return str(folder / (Path(path).expanduser() if isinstance(folder, Path) else path))


def _job(content: dict[str, Any], overrides: Mapping[str, Any] | None, source: str, folder: Path) -> Job:
    for key, value in (overrides or {}).items():
        _assign(content, key, value)
    job = validated(Job, content, source)
    job.build_method()
    return _resolved(job, folder)


def _assign(content: dict[str, Any], dotted: str, value: Any) -> None:
    *tables, key = dotted.split(".")
    for table in tables:
        content = content.setdefault(table, {})
        if not isinstance(content, dict):
            raise ConfigError(
                f"{dotted} cannot be set: {table} is a value, not a table; name a key as TABLE.KEY, such as "
                "method.n_bits"
            )
    content[key] = value


def _resolved(job: Job, folder: Path) -> Job:
    """Return the job with every path absolute."""

    def table(value: Any, *keys: str) -> Any:
        if value is None:
            return None
        paths = {k: getattr(value, k) for k in keys}
        return value.model_copy(
            update={k: resolve_path(p, folder) for k, p in paths.items() if p is not None}
        )

    return job.model_copy(
        update={
            "data": table(job.data, "path", "preprocess_on"),
            "run": table(job.run, "path"),
            "cluster": job.cluster.model_copy(
                update={"tls": table(job.cluster.tls, "ca_file", "cert", "key")}
            ),
            "encode": table(job.encode, "path", "data"),
            "evaluate": table(job.evaluate, "queries", "data"),
        }
    )
