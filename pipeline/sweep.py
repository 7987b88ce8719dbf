"""Sweeps: many methods, code lengths, seeds and data sets compared, cell by cell.

Each cell is one task.  What is done is kept, so a sweep goes on after any interruption and computes only what
is missing when its file grows; cells that cannot be computed are named and do not stop the others.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from ..cluster.errors import ClusterError
from ..cluster.pool import as_done
from ..storage import events
from ..storage.errors import DestinationExists
from ..storage.places import local
from . import sweep_result
from .config_sweep import load_sweep
from .errors import ConfigError, one_line
from .executors import Where, choose, joined
from .report_sweep import write_sweep_report
from .sweep_cells import WORK, Cell, cells_of, compute_cell, read_cell

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import xarray

RESULT, REPORT = "result.zarr", "report.html"


def sweep(
    job: str | os.PathLike[str] | Mapping[str, Any],
    *,
    scheduler: Any = None,
    note: Callable[[str], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> xarray.Dataset:
    """Compare methods × code lengths × seeds × data sets.

    Parameters
    ----------
    job : path or mapping
        A sweep file (TOML), or what one holds, as tables.
    scheduler : None, str or distributed.Client
        Where the cells are computed, each in one thread; by default what the sweep says.
    note : callable, optional
        Told each cell that is done.
    should_stop : callable, optional
        Asked between cells; if it says so, what is done is kept and KeyboardInterrupt raised.

    Returns
    -------
    xarray.Dataset
        Dimensions data, method, n_bits, seed (select with a mapping, ``table.sel({"method": "itq"})``: as a
        keyword ``method`` is xarray's); a variable for each metric and cost, with units and definitions.
        Attributes: ``recommendations`` (sentences) and ``failed`` (cells that could not be computed, and
        why).  It is kept as ``result.zarr`` in the sweep's folder, beside ``report.html``.

    Raises
    ------
    ConfigError
        If the sweep cannot be computed as it stands, or another process is computing in its folder.
    DestinationExists
        If something else than a sweep's table is called ``result.zarr`` in its folder.
    ClusterLost
        If the cluster is lost; the cells that are done are kept.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> folder = tempfile.mkdtemp()
    >>> for name, rows in (("data", 200), ("queries", 20)):
    ...     with bf.DatasetWriter(f"{folder}/{name}", n_features=8, dtype="float64") as writer:
    ...         writer.append(np.random.default_rng(rows).normal(size=(rows, 8)))
    >>> table = bf.sweep(
    ...     {
    ...         "sweep": {"path": folder + "/s", "n_bits": [8], "seeds": [0, 1], "metrics": ["recall5@50"]},
    ...         "data": [{"name": "d", "path": folder + "/data", "queries": folder + "/queries"}],
    ...         "method": [{"name": "lsh"}],
    ...     }
    ... )
    >>> dict(table.sizes)
    {'data': 1, 'method': 1, 'n_bits': 1, 'seed': 2}
    """
    plan = load_sweep(job)
    where = Where(plan.cluster) if scheduler is None else choose(scheduler)
    folder = local(plan.sweep.path, "a sweep's folder")
    sweep_result.require_own(folder / RESULT)
    cells = cells_of(plan)
    _require_alone(folder)
    records = {cell.key: record for cell in cells if (record := read_cell(folder, cell)) is not None}
    # what two names share is one piece of work: two workers in its folder would stop each other
    missing = {cell.key: cell for cell in reversed(cells) if cell.key not in records}
    tell = note or _silent
    tell(f"{len(missing) + len(records)} cells, {len(records)} of them done")
    folder.mkdir(parents=True, exist_ok=True)
    with events.Heartbeat(folder):
        reasons = _compute(list(reversed(missing.values())), folder, where, records, tell, should_stop)
    failed = sorted(f"{cell.name}: {reasons[cell.key]}" for cell in cells if cell.key in reasons)
    for key in records:  # of a cell whose worker died when all was done
        shutil.rmtree(folder / WORK / key, ignore_errors=True)
    table = sweep_result.as_dataset(cells, records, plan.sweep.metrics)
    advice = [entry["text"] for entry in sweep_result.recommend(table)]
    table = table.assign_attrs(recommendations=advice, failed=failed)
    sweep_result.save(table, folder / RESULT)
    tell(f"report: {write_sweep_report(table, folder / REPORT)}")
    return table


def _compute(
    missing: list[Cell],
    folder: Path,
    where: Where,
    records: dict[str, Any],
    tell: Callable[[str], None],
    should_stop: Callable[[], bool] | None,
) -> dict[str, str]:
    """Compute what is missing into ``records``; return by its key why a cell could not be."""
    reasons: dict[str, str] = {}
    if not missing:
        return reasons
    n_cells = len(missing) + len(records)
    with joined(where, note=tell) as there:
        pieces = [(cell, folder) for cell in missing]
        for position, (record, reason) in as_done(_attempt, pieces, there.client):
            cell = missing[position]
            if record is None:
                reasons[cell.key] = reason
                tell(f"failed: {cell.name}: {reason}")
            else:
                records[cell.key] = record
                shown = ", ".join(f"{m['name']} {100 * m['value']:.1f} %" for m in record["metrics"])
                tell(f"{len(records)}/{n_cells} {cell.name}: {shown}")
            if should_stop is not None and should_stop():
                raise KeyboardInterrupt(
                    f"stopped after {len(records)} of {n_cells} cells; give the same command again to go on"
                )
    return reasons


def _attempt(cell: Cell, folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Compute a cell in a task; what is wrong with it alone must not stop the others."""
    try:
        return compute_cell(cell, folder), ""
    except Exception as error:
        of_all = isinstance(error, ClusterError | OSError)
        if of_all and not isinstance(error, FileNotFoundError | DestinationExists):
            raise
        done = read_cell(folder, cell)  # another sweep on this folder may have been faster
        return (None, one_line(error)) if done is None else (done, "")


def _require_alone(folder: Path) -> None:
    """Raise `ConfigError` if another process gives signs of life in this folder."""
    age = events.heartbeat_age(folder)
    if age is not None and age < events.INTERRUPTED_AFTER and not events.driver_has_ended(folder):
        raise ConfigError(
            f"another sweep computes in {folder} (sign of life {age:.0f} s ago); let it end, or give this "
            "one a path of its own. One that was killed on another machine counts as dead after "
            f"{events.INTERRUPTED_AFTER:.0f} s"
        )


def _silent(text: str) -> None:
    pass
