"""What an evaluation leaves in a run: ``results.json``, for people, reports and other programs.

It is no part of the run's state: damaged or deleted, it is made again by evaluating again.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster.memory_use import peak_bytes
from ..storage.digest import json_digest
from ..storage.errors import StorageError
from ..storage.object_paths import ObjectPath
from ..storage.places import inside, place
from ..storage.s3_objects import objects_at
from ..storage.safe import read_json
from .arrays import as_dataset, is_dataset

if TYPE_CHECKING:
    import xarray

    from ..storage.places import Place
    from .arrays import Vectors

FORMAT = "bitfleet-results"
FORMAT_VERSION = 1
NAME = "results.json"

_QUERIES_SHOWN = 10


def as_record(result: xarray.Dataset) -> dict[str, Any]:
    """Return the metrics of `evaluate` and what they are of, as JSON values.

    Returns
    -------
    dict
        ``metrics`` is a list of ``name``, ``value``, ``standard_error`` (None for one query) and
        ``definition``; the other keys are the result's attributes.
    """
    names = [str(name) for name in result["metric"].values]
    errors = result["standard_error"].values.tolist()
    metrics = [
        {
            "name": name,
            "value": float(value),
            "standard_error": error if np.isfinite(error) else None,
            "definition": result.attrs[name],
        }
        for name, value, error in zip(names, result["value"].values, errors, strict=True)
    ]
    about = {key: _plain(value) for key, value in result.attrs.items() if key not in names}
    return {**about, "metrics": metrics}


def save_results(
    run: str | os.PathLike[str],
    result: xarray.Dataset,
    *,
    data: Vectors = None,
    queries: Vectors = None,
    seconds: float | None = None,
) -> Place:
    """Write ``results.json`` into a run (over an earlier one) and return its path.

    Parameters
    ----------
    run : path
    result : xarray.Dataset
        From `evaluate`.
    data, queries : Dataset or path, optional
        What was evaluated; the report takes its pictures and labels from there.
    seconds : float, optional
        How long it took.
    """
    run = place(run)
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **as_record(result),
        "seconds": seconds,
        "peak_bytes": peak_bytes(),
        "paths": {"data": _path_of(data, run), "queries": _path_of(queries, run)},
        "shown": _shown(result, _labels_of(queries)),
    }
    document["sha256"] = json_digest(document)
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    objects_at(run).put(NAME, text.encode("utf-8"))
    return run / NAME


def read_results(run: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return what `save_results` wrote; None if there is nothing, or nothing that can be used."""
    try:
        document = read_json(place(run) / NAME)
    except (StorageError, OSError):
        return None
    stated = document.pop("sha256", None)
    if document.get("format") != FORMAT or document.get("format_version") != FORMAT_VERSION:
        return None
    return document if stated == json_digest(document) else None


def _shown(result: xarray.Dataset, labels: np.ndarray | None) -> list[dict[str, Any]]:
    """Return what some queries retrieved: the first query of each label, or else the first ones."""
    if labels is None:
        chosen = np.arange(result.sizes["query"])
    else:
        _, chosen = np.unique(labels, return_index=True)
    measure = "hamming" if "hamming" in result else "asymmetric_distance"
    retrieved, measured = result["retrieved"].values, result[measure].values
    return [
        {"query": int(q), "retrieved": retrieved[q].tolist(), measure: measured[q].tolist()}
        for q in chosen[:_QUERIES_SHOWN]
    ]


def _labels_of(queries: Vectors) -> np.ndarray | None:
    if queries is None or not is_dataset(queries):
        return None
    dataset = as_dataset(queries)
    return dataset.labels() if dataset.has_labels else None


def _path_of(rows: Vectors, run: Place) -> str | None:
    """Return a data set's path, relative to the run where both lie in one folder and may move together."""
    if rows is None or not is_dataset(rows):
        return None
    path = as_dataset(rows).path
    if isinstance(path, ObjectPath) or isinstance(run, ObjectPath):
        return inside(path, run) or str(path)
    beside = path.is_relative_to(run.parent) or path.is_relative_to(run.parent.parent)
    return os.path.relpath(path, run) if beside else str(path)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
