"""A sweep as one page for people: what to take, what it costs, and every number behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.objects import LocalObjects
from . import report_page as html
from .progress import counted
from .report_lines import Line, lines_svg
from .sweep_result import COSTS, pareto, recommend, summarize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import xarray

AXES = {"bytes_per_vector": "bytes per vector", "encode_microseconds": "µs to encode a vector"}


def write_sweep_report(table: xarray.Dataset, path: Path) -> Path:
    """Write the page of a sweep's table and return its path."""
    metrics = [str(name) for name in table.attrs["metrics"]]
    sections = [_advice(table)]
    for data in table["data"].values:
        sections += [_pictures(table, str(data), metrics[0]), _numbers(table, str(data), metrics)]
    sections.append(_failures(table))
    n_done, n_cells = table.attrs["n_done"], table.attrs["n_cells"]
    counts = [("method", "method"), ("n_bits", "code length"), ("seed", "seed"), ("data", "data set")]
    compared = ", ".join(counted(table.sizes[dim], noun) for dim, noun in counts)
    text = html.page(
        "Which codes to take",
        [f"{compared}: {n_done} of {n_cells} cells"],
        [part for part in sections if part],
        "bitfleet sweep; this file needs no network and no other file.",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    LocalObjects(path.parent).put(path.name, text.encode("utf-8"))
    return path


def _advice(table: xarray.Dataset) -> html.Markup:
    advice = recommend(table)
    if not advice:
        return html.section("Recommendation", html.paragraph("No cell is done."))
    rows = [(f"{entry['budget']} bytes, {entry['data']}", entry["text"]) for entry in advice]
    note = (
        "For each size the best mean over seeds that fits into it; sizes that bring nothing more are left "
        "out. ± is the standard deviation over seeds."
    )
    return html.section("Recommendation", html.facts(rows), html.paragraph(note))


def _pictures(table: xarray.Dataset, data: str, metric: str) -> html.Markup:
    rows = [row for row in summarize(table, metric) if row["data"] == data]
    pictures = []
    for cost, label in AXES.items():
        lines = [
            Line(name, *_points([row for row in rows if row["method"] == name], cost))
            for name in dict.fromkeys(row["method"] for row in rows)
        ]
        svg = lines_svg(lines, label, f"{metric} (%)", logarithmic=True)
        front = ", ".join(f"{row['method']} {row['n_bits']}" for row in pareto(rows, cost))
        caption = html.paragraph(f"Not beaten at its cost: {front}.")
        pictures.append((f"{metric} against {label}", html.Markup((svg or "") + caption)))
    return html.section(f"{data}: what accuracy costs", html.figures(pictures))


def _points(rows: Sequence[Mapping[str, Any]], cost: str) -> tuple[list[float], list[float], list[float]]:
    rows = sorted(rows, key=lambda row: row["n_bits"])  # times are noisy: by them lines would zigzag
    return (
        [row[cost] for row in rows],
        [100 * row["mean"] for row in rows],
        [100 * (row["spread"] or 0.0) for row in rows],
    )


def _numbers(table: xarray.Dataset, data: str, metrics: Sequence[str]) -> html.Markup:
    found: dict[tuple[str, int], dict[str, html.Cell]] = {}
    for metric in metrics:
        for row in summarize(table, metric):
            if row["data"] == data:
                cells = found.setdefault((row["method"], row["n_bits"]), {})
                cells[metric] = (row["mean"], row["spread"])
    rows = [
        (f"{method}, {n_bits} bits", [cells.get(metric) for metric in metrics])
        for (method, n_bits), cells in found.items()
    ]
    if not rows:
        return html.section(data, html.paragraph("No cell is done."))
    meanings = [(metric, str(table[metric].attrs["definition"])) for metric in metrics]
    return html.section(
        f"{data}: mean ± standard deviation over seeds",
        html.metric_table(metrics, rows),
        html.fold("What it costs", _costs(table, data)),
        html.fold("What the metrics mean", html.definitions(meanings)),
    )


def _costs(table: xarray.Dataset, data: str) -> html.Markup:
    rows = []
    for method in table["method"].values:
        for n_bits in table["n_bits"].values:
            cell = table.sel({"data": data, "method": method, "n_bits": n_bits})
            values = [(name, cell[name].values[np.isfinite(cell[name].values)]) for name in COSTS]
            shown = [f"{values_.mean():.4g} {COSTS[name][0]}" for name, values_ in values if len(values_)]
            if shown:
                rows.append((f"{method}, {n_bits} bits", ", ".join(shown)))
    return html.Markup(
        html.facts(rows) + html.definitions((name, text) for name, (_unit, text) in COSTS.items())
    )


def _failures(table: xarray.Dataset) -> html.Markup:
    failed = [str(text) for text in table.attrs.get("failed", [])]
    if not failed:
        return html.Markup("")
    rows = [tuple(text.split(": ", 1)) for text in failed]
    return html.section("Could not be computed", html.facts(rows))  # type: ignore[arg-type]
