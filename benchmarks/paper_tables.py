"""The POSH paper's tables on MNIST, MNIST-GIST and CIFAR10-GIST, ours beside the paper's numbers.

    python benchmarks/paper_tables.py [--tables table6 figure6 …] [--trials 3] [--rows posh itq …] [--report]

Protocol: queries drawn per class (MNIST 1,000 in all, its GIST 7,000, CIFAR-10 6,000), the rest as targets;
5,000 training rows drawn from the targets; mean and principal components of the targets; dense codes after
PCA to their length, sparse codes of 1024 bits without PCA, "bits" being their ones. Each trial draws its own
split and start (queries alone move MAP by a point). BioHash: learning rate .02 falling to 0 over 100 epochs.

Cells that a former run has computed are not computed again. Prints one JSON line per cell; `--report` only
gathers what is there: `results/paper/tables.zarr` (an xarray data set) and `results/paper/tables.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product

import numpy as np
from paper_cells import FOLDER, LOADERS, ROWS, Cell, compute, saved
from paper_report import write_markdown, write_zarr

BITS = (8, 16, 32, 64, 128)
METHODS = ("lsh", "itq", "knnh", "fruit_fly", "biohash", "spherical_hash", "posh", "bosl")
VARIANTS = (
    "biohash_110_epochs",
    "biohash_200_epochs",
    "posh_paper_1_epoch",
    "posh_pca64",
    "posh_pca64_union",
)

#: table: (data sets, rows, bits, code lengths of sparse methods, measure)
TABLES = {
    "table6": (("mnist",), (*METHODS, *VARIANTS), BITS, (1024,), "1000"),
    "table7": (("mnist_gist",), METHODS, BITS, (1024,), "1000"),
    "table8": (("cifar10_gist",), METHODS, BITS, (1024,), "1000"),
    "table1": (
        ("mnist", "cifar10_gist"), ("knnh", "fruit_fly", "spherical_hash", "posh"), (16, 32, 64), (1024,),
        "full",
    ),
    "table2": (("mnist", "mnist_gist", "cifar10_gist"), ("posh",), (64,), (1024,), "refined"),
    "figure1b": (("mnist",), ("fruit_fly", "fruit_fly_orthogonal"), BITS, (1024,), "1000"),
    "figure6": (
        ("mnist", "mnist_gist", "cifar10_gist"), ("fruit_fly", "spherical_hash", "posh"), (16, 32, 64),
        (256, 512, 1024, 2048), "1000",
    ),
}  # fmt: skip


def cells_of(table: str, trials: int) -> list[Cell]:
    """Return a table's cells, trial by trial, so that what there is early is complete."""
    data, rows, bits, lengths, measure = TABLES[table]
    return [
        Cell(source, row, b, length, trial, measure)
        for trial, source, length, row, b in product(range(trials), data, lengths, rows, bits)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES), metavar="TABLE")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    parser.add_argument("--bits", type=int, nargs="+", default=list(BITS), choices=BITS)
    parser.add_argument("--data", nargs="+", default=list(LOADERS), choices=list(LOADERS), metavar="DATA")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--report", action="store_true", help="compute nothing, gather what is there")
    options = parser.parse_args()
    cells = [cell for table in options.tables for cell in cells_of(table, options.trials)]
    chosen = [
        c
        for c in dict.fromkeys(cells)
        if c.row in options.rows and c.bits in options.bits and c.data in options.data
    ]
    done = {}
    for cell in chosen:
        values = saved(cell)
        if values is None and not options.report:
            try:
                values = compute(cell)
            except (ValueError, np.linalg.LinAlgError) as error:
                print(f"{cell}: {error}", file=sys.stderr, flush=True)
        if values is not None:
            done[cell] = values
            print(json.dumps({"benchmark": "paper_tables", **vars(cell), **values}), flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_zarr(FOLDER / "tables.zarr", done)
    print(write_markdown(FOLDER / "tables.md", done), file=sys.stderr)


if __name__ == "__main__":
    main()
