"""Gather the cells of the paper's tables: as xarray in Zarr, and as Markdown beside the paper's numbers."""

from __future__ import annotations

import json
import shutil
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray

if TYPE_CHECKING:
    from paper_cells import Cell

NUMBERS = Path(__file__).resolve().parent / "paper_numbers.json"
DATA = ("mnist", "mnist_gist", "cifar10_gist")
AXES = ("data", "row", "bits", "length", "trial", "metric")
TITLES = {
    ("mnist", "map@1000"): "MNIST, MAP@1000 (Table 6)",
    ("mnist_gist", "map@1000"): "MNIST-GIST, MAP@1000 (Table 7; our GIST descriptor)",
    ("cifar10_gist", "map@1000"): "CIFAR10-GIST, MAP@1000 (Table 8; our GIST descriptor)",
    ("mnist", "map"): "MNIST, MAP of the whole ranking (Table 1)",
    ("cifar10_gist", "map"): "CIFAR10-GIST, MAP of the whole ranking (Table 1)",
    ("mnist", "precision@1000"): "MNIST, Precision@1000 (Figure 5)",
    ("mnist_gist", "precision@1000"): "MNIST-GIST, Precision@1000 (Figure 5)",
    ("cifar10_gist", "precision@1000"): "CIFAR10-GIST, Precision@1000 (Figure 5)",
}


def write_zarr(path: Path, done: dict[Cell, dict[str, float]]) -> None:
    """Write all values as one variable over data, row, bits, length, trial and metric; NaN where none is."""
    entries = [
        (c.data, c.row, c.bits, c.length, c.trial, m, v) for c, ms in done.items() for m, v in ms.items()
    ]
    if not entries:
        return
    coords = {axis: sorted({e[k] for e in entries}) for k, axis in enumerate(AXES)}
    values = np.full([len(labels) for labels in coords.values()], np.nan)
    for *key, value in entries:
        values[tuple(coords[axis].index(label) for axis, label in zip(AXES, key, strict=True))] = value
    shutil.rmtree(path, ignore_errors=True)
    fixed = {a: np.array(v, dtype=object) if isinstance(v[0], str) else v for a, v in coords.items()}
    numbers = json.loads(NUMBERS.read_text())
    attrs = {"unit": "percent", "paper": json.dumps(numbers), "source": numbers["source"]}
    xarray.Dataset({"value": (AXES, values)}, fixed, attrs).to_zarr(path, zarr_format=3, consolidated=False)


def write_markdown(path: Path, done: dict[Cell, dict[str, float]]) -> str:
    """Write every table that has cells: mean over trials, and the paper's mean after a stroke."""
    numbers = json.loads(NUMBERS.read_text())
    parts = [part for key, title in TITLES.items() if (part := _table(done, *key, title, numbers))]
    parts += [part for data in DATA if (part := _refinement(done, data, numbers))]
    parts += [part for data in DATA if (part := _lengths(done, data))]
    parts += [part for data in DATA if (part := _order(done, data, numbers))]
    text = "\n".join(parts) + "\n"
    path.write_text(text)
    return text


def mean_of(done: dict[Cell, dict[str, float]], metric: str, **where: object) -> tuple[float, int] | None:
    found = [
        values[metric]
        for cell, values in done.items()
        if metric in values and all(getattr(cell, key) == value for key, value in where.items())
    ]
    return (float(np.mean(found)), len(found)) if found else None


def _table(
    done: dict[Cell, dict[str, float]], data: str, metric: str, title: str, numbers: dict[str, dict]
) -> str:
    paper = numbers.get(metric, {}).get(data, {})
    mine = [c for c, v in done.items() if c.data == data and c.length == 1024 and metric in v]
    bits = sorted({c.bits for c in mine})
    rows = list(dict.fromkeys(c.row for c in mine))
    if not rows:
        return ""
    lines = [
        f"### {title}",
        "",
        "ours / paper" if paper else "ours",
        "",
        "| | " + " | ".join(map(str, bits)) + " | trials |",
        "|---" * (len(bits) + 2) + "|",
    ]
    for row in rows:
        theirs = next((paper[name] for name in paper if row.startswith(name)), {})
        entries, trials = [], set()
        for b in bits:
            found = mean_of(done, metric, data=data, row=row, bits=b, length=1024)
            entries.append("-" if found is None else f"{found[0]:.2f}")
            if found is not None:
                trials.add(found[1])
                if str(b) in theirs:
                    entries[-1] += f" / {theirs[str(b)]:.2f}"
        lines.append(f"| {row} | " + " | ".join(entries) + f" | {'-'.join(map(str, sorted(trials)))} |")
    return "\n".join([*lines, ""])


def _refinement(done: dict[Cell, dict[str, float]], data: str, numbers: dict[str, dict]) -> str:
    names = ("map@100", "map@100 CR2", "map@100 CR5", "map@100 CR10")
    found = [mean_of(done, name, data=data) for name in names]
    if found[0] is None:
        return ""
    paper = numbers["map@100"][data].values()
    pairs = [f"{f[0]:.2f} / {p:.2f}" if f else "-" for f, p in zip(found, paper, strict=True)]
    return "\n".join(
        [
            f"### {data}, candidate refinement, MAP@100 (Table 2)",
            "",
            f"64 ones, trials: {found[0][1]}; ours / paper",
            "",
            "| POSH | + CR2 | + CR5 | + CR10 |",
            "|---|---|---|---|",
            "| " + " | ".join(pairs) + " |",
            "",
        ]
    )


def _order(done: dict[Cell, dict[str, float]], data: str, numbers: dict[str, dict]) -> str:
    """Count the pairs of methods, a point or more apart in the paper, that are in the same order here."""
    paper = numbers["map@1000"].get(data, {})
    agreed, lines = [0, 0], []
    for b in ("8", "16", "32", "64", "128"):
        ours = {
            row: found[0]
            for row in paper
            if (found := mean_of(done, "map@1000", data=data, row=row, bits=int(b), length=1024))
        }
        for one, other in combinations(ours, 2):
            theirs = paper[one][b] - paper[other][b]
            if abs(theirs) > 1:
                agreed[1] += 1
                agreed[0] += theirs * (ours[one] - ours[other]) > 0
                if theirs * (ours[one] - ours[other]) <= 0:
                    lines.append(f"- {b}: {one} and {other}, {theirs:+.2f} there")
    if not agreed[1]:
        return ""
    head = f"### {data}, order of methods"
    count = f"{agreed[0]} of {agreed[1]} pairs more than 1 point apart in the paper are in its order"
    return "\n".join([head, "", count + (", not:" if lines else "."), "", *lines, ""])


def _lengths(done: dict[Cell, dict[str, float]], data: str) -> str:
    mine = [c for c in done if c.data == data and c.measure == "1000"]
    rows = [r for r in dict.fromkeys(c.row for c in mine) if {c.length for c in mine if c.row == r} - {1024}]
    lengths = sorted({c.length for c in mine if c.row in rows})
    if not rows:
        return ""
    lines = [
        f"### {data}, MAP@1000 by code length D (Figure 6), trial 0",
        "",
        "| ones | method | " + " | ".join(map(str, lengths)) + " |",
        "|---" * (len(lengths) + 2) + "|",
    ]
    for bits in (16, 32, 64):
        for row in rows:
            found = [
                mean_of(done, "map@1000", data=data, row=row, bits=bits, length=d, trial=0) for d in lengths
            ]
            entries = ["-" if f is None else f"{f[0]:.2f}" for f in found]
            lines.append(f"| {bits} | {row} | " + " | ".join(entries) + " |")
    return "\n".join([*lines, ""])
