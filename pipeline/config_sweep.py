"""Sweep files: methods × code lengths × seeds × data sets, and what is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator

from ..tasks.metrics import parse_metrics
from .config import build_method, read_toml, resolve_path
from .config_cluster import ClusterTable, Table
from .errors import ConfigError
from .validation import validated

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from ..tasks.protocols import Method


def _once(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(value)) < len(value):
        raise ValueError(f"expected each value once, got {list(value)}")
    return value


def _printable(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError(f"expected a name of printable characters, got {value!r}")
    return value


_Seed = Annotated[int, Field(lt=2**63)]
_Bits = Annotated[int, Field(ge=1, lt=2**63)]
_Lengths = Annotated[tuple[_Bits, ...], Field(strict=False, min_length=1), AfterValidator(_once)]
_Name = Annotated[str, AfterValidator(_printable)]


class SweepTable(Table):
    """``[sweep]``: where results are kept, and what every method is tried with."""

    path: str = Field(min_length=1)
    n_bits: _Lengths
    seeds: Annotated[tuple[_Seed, ...], Field(strict=False, min_length=1), AfterValidator(_once)] = (0,)
    metrics: tuple[str, ...] = Field(default=("recall10@100",), strict=False, min_length=1)
    block_rows: int | None = Field(default=None, ge=1)

    @field_validator("metrics")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _once(tuple(metric.name for name in value for metric in parse_metrics([name])))

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if min(value) < 0:
            raise ValueError(f"expected seeds >= 0, got {list(value)}")
        return value


class SweepData(Table):
    """One of ``[[data]]``: rows that are searched, queries, and rows to learn from (those searched)."""

    name: _Name
    path: str
    queries: str
    train: str | None = None


class SweepMethod(Table):
    """One of ``[[method]]``: a name, its parameters, its own code lengths if they differ, and a label."""

    name: str
    label: _Name
    n_bits: _Lengths
    params: dict[str, Any]

    def build(self, n_bits: int) -> Method:
        """Return the method of one code length."""
        return build_method(self.name, {**self.params, "n_bits": n_bits})


class Sweep(Table):
    """A whole sweep file; paths are absolute."""

    sweep: SweepTable
    data: tuple[SweepData, ...] = Field(strict=False, min_length=1)
    method: tuple[SweepMethod, ...] = Field(strict=False, min_length=1)
    cluster: ClusterTable = ClusterTable(scheduler="serial")

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, value: Any) -> Any:
        """Give each method what it does not say itself."""
        if not isinstance(value, dict) or not isinstance(value.get("method"), list | tuple):
            return value
        lengths = value["sweep"].get("n_bits") if isinstance(value.get("sweep"), dict) else None
        methods = [_method(entry, lengths) if isinstance(entry, dict) else entry for entry in value["method"]]
        return {**value, "method": methods}

    @model_validator(mode="after")
    def _distinct(self) -> Sweep:
        for what, names in (
            ("data", [one.name for one in self.data]),
            ("method", [one.label for one in self.method]),
        ):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                key = "name" if what == "data" else "label"
                raise ValueError(f"two of [[{what}]] are called {twice[0]!r}; give each a {key} of its own")
        return self


def load_sweep(source: str | os.PathLike[str] | Mapping[str, Any]) -> Sweep:
    """Return a validated sweep: a TOML file, or what one holds, as tables.

    Raises
    ------
    ConfigError
        For a syntax error, an unknown key or method, a wrong type or a missing table.
    """
    content, folder, name = read_toml(source, "a sweep file")
    sweep = validated(Sweep, content, name)
    for method in sweep.method:
        for n_bits in method.n_bits:
            method.build(n_bits)
    return _resolved(sweep, folder)


def _method(entry: dict[str, Any], lengths: Any) -> dict[str, Any]:
    params = dict(entry)
    name = params.pop("name", None)
    if not isinstance(name, str):
        raise ValueError('expected name = "..." in each [[method]]')
    own = params.pop("n_bits", lengths)
    return {
        "name": name,
        "label": params.pop("label", name),
        "n_bits": (own,) if isinstance(own, int) else own,
        "params": params,
    }


def _resolved(sweep: Sweep, folder: Path) -> Sweep:
    table = sweep.sweep.model_copy(update={"path": resolve_path(sweep.sweep.path, folder)})
    data = tuple(
        one.model_copy(
            update={
                "path": resolve_path(one.path, folder),
                "queries": resolve_path(one.queries, folder),
                "train": resolve_path(one.train or one.path, folder),
            }
        )
        for one in sweep.data
    )
    if "://" in table.path:
        raise ConfigError(f"expected a folder for the sweep's results, got {table.path}")
    return sweep.model_copy(update={"sweep": table, "data": data})
