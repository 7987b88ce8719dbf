"""What a sweep has found: a labelled table, its best trade-offs, and advice with the evidence for it."""

from __future__ import annotations

import shutil
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.errors import DestinationExists, StorageError
from ..storage.files import TEMPORARY
from ..storage.safe import read_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import xarray

    from .sweep_cells import Cell

DIMS = ("data", "method", "n_bits", "seed")
COSTS = {
    "bytes_per_vector": ("byte", "size of a code: bits packed, or the numbers of its ones if they take less"),
    "train_seconds": ("s", "training in one process with one BLAS thread"),
    "encode_microseconds": ("us", "encoding one vector, from stored vectors to stored codes, one thread"),
}
TARGETS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)  # bytes per vector that people ask for


def as_dataset(
    cells: Sequence[Cell], records: Mapping[str, Mapping[str, Any]], metrics: Sequence[str]
) -> xarray.Dataset:
    """Return the table of all cells.

    Parameters
    ----------
    cells : sequence of Cell
    records : mapping of key to record
        Of the cells that are done; the others are NaN.
    metrics : sequence of str

    Returns
    -------
    xarray.Dataset
        Dimensions data, method, n_bits, seed; a variable for each metric, its standard error over queries
        (``<metric>_standard_error``) and each cost, with ``units`` and ``definition`` as attributes.
    """
    import xarray

    coordinates: dict[str, list[Any]] = {
        dim: list(dict.fromkeys(getattr(cell, dim) for cell in cells)) for dim in DIMS
    }
    coordinates["n_bits"].sort()
    shape = tuple(len(values) for values in coordinates.values())
    about = {name: {"units": unit, "definition": text} for name, (unit, text) in COSTS.items()}
    for metric in metrics:
        about[metric] = {"units": "1", "definition": ""}
        text = f"standard error of {metric} over queries"
        about[f"{metric}_standard_error"] = {"units": "1", "definition": text}
    arrays = {name: np.full(shape, np.nan) for name in about}
    for cell in cells:
        record = records.get(cell.key)
        if record is None:
            continue
        place = tuple(coordinates[dim].index(getattr(cell, dim)) for dim in DIMS)
        for name in COSTS:
            if record[name] is not None:
                arrays[name][place] = record[name]
        for entry in record["metrics"]:
            arrays[entry["name"]][place] = entry["value"]
            if entry["standard_error"] is not None:
                arrays[f"{entry['name']}_standard_error"][place] = entry["standard_error"]
            about[entry["name"]]["definition"] = entry["definition"]
    n_done = sum(cell.key in records for cell in cells)
    return xarray.Dataset(
        {name: (DIMS, arrays[name], about[name]) for name in arrays},
        coords=coordinates,
        attrs={"metrics": list(metrics), "n_cells": len(cells), "n_done": n_done},
    )


def summarize(table: xarray.Dataset, metric: str) -> list[dict[str, Any]]:
    """Return a row for each data set, method and code length: mean, spread and costs over seeds."""
    rows = []
    for data in table["data"].values:
        for method in table["method"].values:
            for n_bits in table["n_bits"].values:
                cell = table.sel({"data": data, "method": method, "n_bits": n_bits})
                values = cell[metric].values[np.isfinite(cell[metric].values)]
                if len(values) == 0:
                    continue
                rows.append(
                    {
                        "data": str(data),
                        "method": str(method),
                        "n_bits": int(n_bits),
                        "mean": float(values.mean()),
                        "spread": float(values.std(ddof=1)) if len(values) > 1 else None,
                        "n_seeds": len(values),
                        "bytes_per_vector": int(np.nanmax(cell["bytes_per_vector"].values)),
                        "encode_microseconds": float(np.nanmean(cell["encode_microseconds"].values)),
                    }
                )
    return rows


def pareto(rows: Iterable[Mapping[str, Any]], cost: str = "bytes_per_vector") -> list[Mapping[str, Any]]:
    """Return the rows that no other one beats: none costs as little and is better, by rising cost."""
    best: list[Mapping[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row[cost], -row["mean"])):
        if not best or row["mean"] > best[-1]["mean"]:
            best.append(row)
    return best


def recommend(table: xarray.Dataset, metric: str | None = None) -> list[dict[str, Any]]:
    """Say for each data set and size which method to take, and why.

    Parameters
    ----------
    table : xarray.Dataset
        From `bitfleet.sweep`.
    metric : str, optional
        What counts; the first one by default.

    Returns
    -------
    list of dict
        ``data``, ``budget`` (bytes per vector), ``text``, ``best`` and ``next`` (rows of `summarize`; the
        best of another method, or None), and ``sure``: whether the lead is larger than both spreads.
    """
    metric = metric or str(table.attrs["metrics"][0])
    advice = []
    rows = summarize(table, metric)
    for data in table["data"].values:
        here = [row for row in rows if row["data"] == str(data)]
        previous = None
        for budget in TARGETS:
            fitting = [row for row in here if row["bytes_per_vector"] <= budget]
            if not fitting:
                continue
            best = max(fitting, key=lambda row: row["mean"])
            if best == previous:  # more bytes bring nothing: said already
                continue
            previous = best
            others = [row for row in fitting if row["method"] != best["method"]]
            second = max(others, key=lambda row: row["mean"], default=None)
            advice.append(_advice(metric, str(data), budget, best, second))
    return advice


def save(table: xarray.Dataset, path: Path) -> None:
    """Write the table as Zarr format 3, which `xarray.open_zarr` opens, in the place of an earlier one.

    Killed at any moment it leaves one of both, or none; never a half.
    """
    require_own(path)
    fresh, old = (path.with_name(f"{TEMPORARY}{when}-{path.name}") for when in ("new", "old"))
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Zarr's specification of text arrays is not final
        table.to_zarr(fresh, mode="w-", zarr_format=3, consolidated=True)
    if path.exists():
        path.rename(old)
    fresh.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def require_own(path: Path) -> None:
    """Raise `DestinationExists` if there is anything at ``path`` but the table of a sweep."""
    if path.parent.exists() and not path.parent.is_dir():
        raise DestinationExists(f"{path.parent} is a file; give the sweep a folder")
    try:
        ours = "n_cells" in read_group(path) if path.is_dir() and not path.is_symlink() else False
    except (StorageError, OSError):
        ours = False
    if not ours and (path.exists() or path.is_symlink()):
        raise DestinationExists(
            f"{path} is not the table of a sweep; move it, or give the sweep a path of its own"
        )


def _advice(
    metric: str, data: str, budget: int, best: Mapping[str, Any], second: Mapping[str, Any] | None
) -> dict[str, Any]:
    lead = None if second is None else best["mean"] - second["mean"]
    noise = max(best["spread"] or 0.0, (second or {}).get("spread") or 0.0)
    measured = best["spread"] is not None and (second is None or second["spread"] is not None)
    sure = measured and (lead is None or lead > noise)
    kept = f"keeps {100 * best['mean']:.1f} % of exact {metric}"
    if not metric.startswith("recall"):
        kept = f"reaches {metric} {100 * best['mean']:.1f} %"
    text = (
        f"{budget} bytes per vector: {best['method']} with {best['n_bits']} bits {kept}{_spread(best)} "
        f"on {data}"
    )
    if second is not None:
        text += f"; next {second['method']} with {second['n_bits']} bits, {100 * second['mean']:.1f} %"
        text += _spread(second)
    if not sure:
        text += " (too few seeds to tell)" if not measured else " (within the spread)"
    return {"data": data, "budget": budget, "text": text, "best": best, "next": second, "sure": sure}


def _spread(row: Mapping[str, Any]) -> str:
    if row["spread"] is None:
        return ""
    return f" ± {100 * row['spread']:.1f} over {row['n_seeds']} seeds"
