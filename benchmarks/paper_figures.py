"""The POSH paper's figures from what `paper_tables.py` and `paper_curves.py` have computed, as PNG and SVG.

    python benchmarks/paper_figures.py [--dest benchmarks/results/paper/figures]

figure 1b   FruitFly's Bernoulli weights against orthonormal ones
figures 3, 5   MAP@1000 and Precision@1000 of all methods by length; crosses are the paper's means
figure 2    objective and accuracy while learning
figure 4    Algorithm 4: bits in error and accuracy
figure 6    MAP@1000 by the code length of sparse methods

Draws what there is; prints the names of the files.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from paper_cells import FOLDER, saved
from paper_curves import RATES, saved_curve
from paper_report import DATA, NUMBERS, mean_of
from paper_tables import BITS, METHODS, TABLES, cells_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from paper_cells import Cell

Done = dict["Cell", dict[str, float]]

NAMES = {"mnist": "MNIST", "mnist_gist": "MNIST-GIST", "cifar10_gist": "CIFAR10-GIST"}
ROWS = {
    "lsh": ("LSH", "tab:gray", "--"), "itq": ("ITQ", "tab:olive", "--"), "knnh": ("KNNH", "tab:brown", "--"),
    "fruit_fly": ("FruitFly", "tab:green", "-"), "biohash": ("BioHash", "tab:purple", "-"),
    "spherical_hash": ("SphericalHash", "tab:orange", "-"), "bosl": ("BOSL", "tab:red", "-"),
    "posh": ("POSH", "tab:blue", "-"), "fruit_fly_orthogonal": ("orthonormal", "tab:cyan", "-"),
}  # fmt: skip


def gathered() -> Done:
    """Read all cells that have been computed."""
    cells = dict.fromkeys(cell for table in TABLES for cell in cells_of(table, 10))
    return {cell: values for cell in cells if (values := saved(cell)) is not None}


def by_length(done: Done, metric: str) -> Figure | None:
    """Draw figures 3 and 5: a panel a data set, a line a method."""
    paper = json.loads(NUMBERS.read_text()).get(metric, {})
    data = [d for d in DATA if any(c.data == d and metric in v for c, v in done.items())]
    if not data:
        return None
    figure, panels = plt.subplots(1, len(data), figsize=(4.6 * len(data), 4), squeeze=False)
    for axes, source in zip(panels[0], data, strict=True):
        for row in METHODS:
            name, colour, style = ROWS[row]
            found = [mean_of(done, metric, data=source, row=row, bits=b, length=1024) for b in BITS]
            points = [(b, f[0]) for b, f in zip(BITS, found, strict=True) if f]
            if points:
                axes.plot(*zip(*points, strict=True), style, color=colour, marker="o", ms=4, label=name)
            theirs = paper.get(source, {}).get(row, {})
            axes.plot([int(b) for b in theirs], list(theirs.values()), "x", color=colour, ms=6, alpha=0.7)
        _by_bits(axes, NAMES[source])
    panels[0][0].set_ylabel(metric.replace("map", "MAP").replace("precision", "Precision") + " (%)")
    panels[0][0].legend(fontsize=8)
    return figure


def figure1b(done: Done) -> Figure | None:
    """Draw both kinds of random weights."""
    figure, axes = plt.subplots(figsize=(4.6, 3.6))
    for row in ("fruit_fly", "fruit_fly_orthogonal"):
        found = [mean_of(done, "map@1000", data="mnist", row=row, bits=b, length=1024) for b in BITS]
        if not all(found):
            return None
        label = "Bernoulli, p = .2" if row == "fruit_fly" else "orthonormal"
        axes.plot(BITS, [f[0] for f in found if f], color=ROWS[row][1], marker="o", ms=4, label=label)
    _by_bits(axes, "FruitFly on MNIST")
    axes.set_ylabel("MAP@1000 (%)")
    axes.legend()
    return figure


def figure6(done: Done) -> Figure | None:
    """Draw a row of panels a data set, a panel a number of ones; trial 0, the only one of most lengths."""
    lengths, ones = (256, 512, 1024, 2048), (16, 32, 64)
    data = [d for d in DATA if any(c.data == d and c.length != 1024 for c in done)]
    if not data:
        return None
    figure, panels = plt.subplots(len(data), 3, figsize=(10, 2.9 * len(data)), squeeze=False)
    for line, source in zip(panels, data, strict=True):
        for axes, bits in zip(line, ones, strict=True):
            for row in ("fruit_fly", "spherical_hash", "posh"):
                found = [
                    mean_of(done, "map@1000", data=source, row=row, bits=bits, length=d, trial=0)
                    for d in lengths
                ]
                points = [(d, f[0]) for d, f in zip(lengths, found, strict=True) if f]
                if points:
                    axes.plot(*zip(*points, strict=True), color=ROWS[row][1], marker="o", label=ROWS[row][0])
            axes.set_xscale("log", base=2)
            axes.set_xticks(lengths, [str(d) for d in lengths])
            axes.set_title(f"{NAMES[source]}, {bits} ones", fontsize=9)
        line[0].set_ylabel("MAP@1000 (%)")
    panels[0][0].legend(fontsize=8)
    return figure


def figure2() -> Figure | None:
    """Draw objective (right axis) and accuracy (left) of each method while it learns."""
    titles = {f"biohash_{rate}": f"BioHash, rate {rate}" for rate in RATES}
    titles |= {"spherical_hash": "SphericalHash", "posh": "POSH", "posh_paper": "POSH, Algorithm 1"}
    curves = {name: curve for name in titles if (curve := saved_curve(name))}
    if not curves:
        return None
    figure, panels = plt.subplots(
        1, len(curves), figsize=(2.7 * len(curves), 2.9), sharey=True, squeeze=False
    )
    for axes, (name, curve) in zip(panels[0], curves.items(), strict=True):
        epochs = [entry["epoch"] for entry in curve]
        axes.plot(epochs, [entry["map@1000"] for entry in curve], color="tab:blue", marker=".")
        right = axes.twinx()
        right.plot(epochs, [entry["objective"] for entry in curve], color="tab:red", marker=".")
        right.tick_params(axis="y", colors="tab:red", labelsize=7)
        axes.set_title(titles[name], fontsize=9)
        axes.set_xlabel("epoch")
    panels[0][0].set_ylabel("MAP@1000 (%)", color="tab:blue")
    return figure


def figure4() -> Figure | None:
    """Draw bits in error and accuracy by steps of Algorithm 4."""
    curve = saved_curve("sbiht")
    if not curve:
        return None
    figure, axes = plt.subplots(figsize=(4.6, 3.6))
    steps = [entry["step"] for entry in curve]
    axes.plot(steps, [entry["map@1000"] for entry in curve], color="tab:blue", marker=".")
    axes.set_ylabel("MAP@1000 (%)", color="tab:blue")
    axes.set_xlabel("steps of Algorithm 4")
    right = axes.twinx()
    right.plot(steps, [entry["bits_in_error"] for entry in curve], color="tab:red", marker=".")
    right.set_ylabel("mean ‖b − h‖²", color="tab:red")
    return figure


def _by_bits(axes: Axes, title: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(BITS, [str(b) for b in BITS])
    axes.set_xlabel("bits (dense) or ones (sparse)")
    axes.set_title(title)
    axes.grid(alpha=0.3)


def figures() -> Iterator[tuple[str, Figure | None]]:
    done = gathered()
    yield "figure1b", figure1b(done)
    yield "figure2", figure2()
    yield "figure3", by_length(done, "map@1000")
    yield "figure4", figure4()
    yield "figure5", by_length(done, "precision@1000")
    yield "figure6", figure6(done)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dest", type=Path, default=FOLDER / "figures")
    dest = parser.parse_args().dest
    dest.mkdir(parents=True, exist_ok=True)
    for name, figure in figures():
        if figure is not None:
            figure.tight_layout()
            for suffix in ("png", "svg"):
                figure.savefig(dest / f"{name}.{suffix}", dpi=110)
            plt.close(figure)
            print(dest / f"{name}.png")


if __name__ == "__main__":
    main()
