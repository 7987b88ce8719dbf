"""What a path holds, and whether it is what was written: runs, models, data sets, codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..storage.codes import Codes, open_codes
from ..storage.datasets import Dataset, open_dataset
from ..storage.errors import StorageError
from ..storage.places import place
from ..storage.run import RunDirectory, status
from ..storage.safe import read_group
from ..storage.verify import verify_model, verify_run
from .errors import ConfigError
from .model import Model, load

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from ..storage.places import Place


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return ``"run"``, ``"model"``, ``"dataset"`` or ``"codes"``.

    Raises
    ------
    FileNotFoundError
        If nothing is there.
    ConfigError
        If it is something else.
    """
    given, path = path, place(path)
    if not path.exists():
        raise FileNotFoundError(f"there is nothing at {given}; expected a run, a model, a data set or codes")
    if RunDirectory.exists(path):
        return "run"
    for kind, array in (("dataset", "vectors"), ("codes", "codes")):
        if (path / array).is_dir() and not (path / "zarr.json").exists():
            return kind  # unfinished: opening it says so
    attributes = read_group(path) if (path / "zarr.json").exists() else {}
    if "bitfleet_model" in attributes:
        return "model"
    stated = attributes.get("bitfleet_format")
    if stated not in ("dataset", "codes"):
        raise ConfigError(
            f"{path} is no run, model, data set or codes of bitfleet; files of vectors become a "
            f"data set with: bitfleet ingest {path} NEW.zarr"
        )
    return str(stated)


def inspect_path(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a path holds, as JSON values with ``kind`` first."""
    kind = kind_of(path)
    if kind == "run":
        return about_run(place(path))
    if kind == "dataset":
        return about_dataset(open_dataset(path))
    if kind == "codes":
        return about_codes(open_codes(path))
    return about_model(load(path))


def verify_path(path: str | os.PathLike[str]) -> list[str]:
    """Read everything at a path and return what is wrong with it, a line each; empty if nothing is."""
    kind, path = kind_of(path), place(path)
    if kind == "run":
        problems = [str(problem) for problem in verify_run(path)]
        if (path / "model.zarr").exists():
            problems += _of_model(path / "model.zarr") or _tried(path, load)
        if (path / "decoder.zarr").exists():
            problems += _of_model(path / "decoder.zarr")
        if (path / "data.zarr").exists():
            problems += _tried(path / "data.zarr", open_dataset)
        return problems
    if kind == "model":
        return _of_model(path)
    return _tried(path, open_dataset if kind == "dataset" else open_codes)


def about_run(path: Place) -> dict[str, Any]:
    """Describe a run: its configuration, where it stands, its model if there is one."""
    directory = RunDirectory.open(path)
    about = {"kind": "run", "path": str(path), **_flat(directory.config)}
    about |= {key: value for key, value in status(path).items() if not isinstance(value, dict)}
    if (path / "model.zarr").exists():
        about["model"] = load(path).digest
    return about


def about_dataset(dataset: Dataset) -> dict[str, Any]:
    """Describe a data set."""
    return {
        "kind": "dataset",
        "path": str(dataset.path),
        "rows": dataset.n_rows,
        "features": dataset.n_features,
        "dtype": dataset.dtype,
        "chunk_rows": dataset.chunk_rows,
        "labels": dataset.has_labels,
        "digest": dataset.digest,
        **{key: value for key, value in dataset.attrs.items() if not isinstance(value, dict | list)},
    }


def about_codes(codes: Codes) -> dict[str, Any]:
    """Describe codes."""
    return {
        "kind": "codes",
        "path": str(codes.path),
        "rows": codes.n_rows,
        "bits": codes.n_bits,
        "active": codes.n_active,
        "digest": codes.digest,
        "model": codes.model_digest,
        "source": codes.source_digest,
    }


def about_model(model: Model) -> dict[str, Any]:
    """Describe a model."""
    return {
        "kind": "model",
        "path": str(model.path),
        **_flat({"method": model.header["method"]}),
        "rows": model.info.n_rows,
        "features": model.info.n_features,
        "round": model.state.round,
        "decoder": None if model.decoder is None else f"ridge {model.decoder.ridge:g}",
        "digest": model.digest,
    }


def _of_model(path: Place) -> list[str]:
    return [str(problem) for problem in verify_model(path)] or _tried(path, load)


def _tried(path: Place, opener: Any) -> list[str]:
    try:
        opened = opener(path)
        if not isinstance(opened, Model):
            opened.verify()
    except (OSError, StorageError, ConfigError) as error:
        return [f"{path.name}: {error} [{type(error).__name__}]"]
    return []


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables with dotted names."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return flat
