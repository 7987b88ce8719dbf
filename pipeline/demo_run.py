"""The demonstration: real digits through the whole system on two local workers, ending in a report.

Everything is as a user would do it: bundled digits become Zarr data sets, four methods are trained with every
round committed, their codes are written and searched, and one page shows the result.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster.launch import connect
from ..storage.datasets import DatasetWriter
from ..storage.errors import DestinationExists
from ..tasks.random import stream
from . import runs
from .api import encode_into
from .config import build_method
from .config_cluster import ClusterTable
from .digits import load_digits
from .evaluate import evaluate
from .executors import Where
from .report import method_label, write_report
from .results import as_record, save_results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..storage.datasets import Dataset

SEED = 0
N_WORKERS = 2
BLOCK_ROWS = 1024
QUERIES_PER_CLASS = 100
METRICS = ("map@1000", "precision@100", "recall10@100")

#: The first is the one that the report is about; codes are of 64 bits, or have 64 ones.
METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("posh", {"n_bits": 1024, "n_active": 64}),
    ("fruit_fly", {"n_bits": 1024, "n_active": 64}),
    ("itq", {"n_bits": 64}),
    ("lsh", {"n_bits": 64, "n_components": 64}),
)
_PARTS = frozenset({"digits.zarr", "queries.zarr", "runs", "codes", "report.html"})


def run_demo(
    dest: str | os.PathLike[str], *, force: bool = False, control: runs.Control | None = None
) -> Path:
    """Run the demonstration in the folder ``dest`` and return the path of its report.

    Parameters
    ----------
    dest : path
        Gets ``digits.zarr`` and ``queries.zarr``, ``runs/``, ``codes/`` and ``report.html``.
    force : bool
        Replace an earlier demonstration there.
    control : Control, optional
        Follows the rounds and is told every step and the final table; by default steps and table are
        printed on standard error.

    Raises
    ------
    DestinationExists
        If ``dest`` is not empty and ``force`` is not given, or it holds anything else than a demonstration.
    """
    control = runs.Control(note=_print) if control is None else control
    note = control.note or _drop
    begun = time.perf_counter()
    folder = Path(os.path.abspath(dest))
    _clear(folder, force)
    digits, queries = _write_digits(folder)
    note(
        f"{digits.n_rows:,} digits to search, {queries.n_rows:,} queries, from the bundled MNIST test images"
    )
    lines = []
    with connect("local", n_workers=N_WORKERS) as client:
        note(f"{N_WORKERS} local workers, dashboard: {client.dashboard_link}")
        where = Where(ClusterTable(scheduler="local"), client)
        for name, params in METHODS:
            lines.append(_one_method(name, params, folder, digits, queries, where, control))
    report = folder / "report.html"
    note("writing the report")
    write_report(
        folder / "runs" / METHODS[0][0],
        beside=[folder / "runs" / name for name, _ in METHODS[1:]],
        dest=report,
    )
    note(_table([("method", *METRICS), *lines]))
    note(f"report, to open in a browser: {report} ({time.perf_counter() - begun:.0f} s in all)")
    return report


def _one_method(
    name: str,
    params: dict[str, Any],
    folder: Path,
    digits: Dataset,
    queries: Dataset,
    where: Where,
    control: runs.Control,
) -> tuple[str, ...]:
    """Train, encode and evaluate one method; return its line of the table."""
    run, method, note = folder / "runs" / name, build_method(name, params), control.note or _drop
    begun = time.perf_counter()
    model = runs.start(
        digits,
        run,
        method,
        where=where,
        seed=SEED,
        block_rows=BLOCK_ROWS,
        control=replace(control, note=None),
    )
    trained = time.perf_counter()
    note(f"{name}: encoding")
    codes = encode_into(model, digits, folder / "codes" / f"{name}.zarr", where)
    encoded = time.perf_counter()
    note(f"{name}: evaluating")
    result = evaluate(model, digits, queries, METRICS, codes=codes, scheduler=where, seed=SEED)
    seconds = time.perf_counter() - encoded
    save_results(run, result, data=digits, queries=queries, seconds=seconds)
    note(
        f"{name}: trained in {trained - begun:.1f} s, encoded in {encoded - trained:.1f} s, "
        f"evaluated in {seconds:.1f} s"
    )
    values = [f"{100 * metric['value']:.1f} %" for metric in as_record(result)["metrics"]]
    return (method_label({"name": name, **params}), *values)


def _write_digits(folder: Path) -> tuple[Dataset, Dataset]:
    """Write the digits as two data sets: 100 random ones of each class to ask for, the rest to search."""
    images, labels = load_digits()
    order = stream(SEED, "demo.split").permutation(len(labels))
    of_class = [order[labels[order] == digit] for digit in range(10)]
    chosen = np.sort(np.concatenate([rows[:QUERIES_PER_CLASS] for rows in of_class]))
    rest = np.setdiff1d(np.arange(len(labels)), chosen)
    written = []
    for name, rows in (("digits.zarr", rest), ("queries.zarr", chosen)):
        writer = DatasetWriter(
            folder / name,
            n_features=images.shape[1],
            dtype="uint8",
            chunk_rows=BLOCK_ROWS,
            with_labels=True,
            attrs={"source": "MNIST, official test images", "image_shape": [28, 28]},
        )
        writer.append(images[rows], labels[rows])
        written.append(writer.close())
    return written[0], written[1]


def _clear(folder: Path, force: bool) -> None:
    """Make room for a demonstration, removing nothing but an earlier one."""
    there = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    if folder.exists() and not folder.is_dir():
        raise DestinationExists(f"{folder} is a file; choose another folder with --dest")
    if not there:
        return
    if strangers := sorted(there - _PARTS):
        raise DestinationExists(
            f"{folder} holds {', '.join(strangers[:3])}, which is not of a demonstration; "
            "choose another folder with --dest"
        )
    if not force:
        raise DestinationExists(f"{folder} holds an earlier demonstration; replace it with --force")
    for name in there:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as aligned text, the first one as the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(["", lines[0], "  ".join("-" * w for w in widths), *lines[1:], ""])


def _drop(text: str) -> None:
    pass


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
