"""Near-isometric hashing beside ten baselines: the claims of the NIBH paper, each with a table.

    python benchmarks/nibh_tables.py [--tables baselines calibrated ...] [--seeds 3] [--minutes 10]

baselines    MNIST, 30 bits, 10,000 training and 10,000 test rows: distortion, MAP and τ of all methods
calibrated   preset "calibrated" and the best of 12 ITQ rotations, both chosen on validation rows
lengths      5 to 70 bits, 100 training points: MNIST, Random, translating squares
sizes        1,000 to 240,000 training rows of MNIST with its rotations, the paper's Table 1
among_all    the same codes, the test rows' neighbours among all 240,000
gaps         how well neighbours are kept by the gap behind the k-th
slopes       sigmoids and signs by the sigmoid's slope

Cells that are there are not computed again; `--minutes` stops before the next cell. Prints a JSON line per
cell, then writes all that is there to one file (`nibh_kept.py`), Markdown and pictures (`nibh_report.py`).
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from nibh_cells import METHODS, among_all, baselines, calibrated, lengths, sizes
from nibh_kept import Cell, keep, record, saved
from nibh_report import write
from nibh_statements import gaps, slopes
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMPUTED: dict[str, Callable[[Cell], dict[str, Any]]] = {
    "baselines": baselines,
    "slopes": slopes,
    "gaps": gaps,
    "lengths": lengths,
    "calibrated": calibrated,
    "sizes": sizes,
    "among_all": among_all,
}
BITS = (5, 10, 15, 20, 30, 40, 50, 60, 70)
SIZES = (1_000, 10_000, 100_000, 240_000)
SLOPES = (1, 2, 4, 8, 16, 32, 64)
MOST = {"bre": 10_000}  # training rows


def cells_of(table: str, seeds: int) -> Iterator[Cell]:
    """Yield a table's cells, the first seed's first."""
    for seed in range(seeds):
        match table:
            case "baselines":
                for row in METHODS:
                    yield Cell(table, "mnist", row, 30, 10_000, seed)
            case "calibrated":
                for data, bits in (("mnist", 30), ("embeddings", 30), ("mnist", 64)):
                    for row in ("itq", "calibrated", "isometric", "paper"):
                        yield Cell(table, data, row, bits, 10_000, seed)
            case "lengths":
                for data in ("mnist", "random", "squares"):
                    for bits in BITS:
                        for row in METHODS:
                            yield Cell(table, data, row, bits, 64 if data == "squares" else 100, 100 + seed)
            case "sizes":
                for size in SIZES:
                    for row in METHODS:
                        if size <= MOST.get(row, size):
                            yield Cell(table, "rotated", row, 30, size, seed)
            case "among_all":
                for size in SIZES:
                    for row in ("itq", "paper", "calibrated"):
                        yield Cell(table, "rotated", row, 30, size, seed)
            case "gaps":
                for data, lengths_ in (("mnist", (30,)), ("clusters", (16, 32, 64, 128))):
                    for bits in lengths_:
                        for row in ("itq", "calibrated", "paper"):
                            yield Cell(table, data, row, bits, 1100 if data == "clusters" else 10_000, seed)
            case "slopes":
                for slope in SLOPES:
                    yield Cell(table, "mnist", f"slope{slope}", 30, 100, 100 + seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="+", choices=list(COMPUTED), default=list(COMPUTED))
    parser.add_argument("--rows", nargs="+", help="only these methods")
    parser.add_argument("--sizes", nargs="+", type=int, help="only so many training rows")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--only-report", action="store_true")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    cells = [cell for table in given.tables for cell in cells_of(table, given.seeds)]
    if given.rows:
        cells = [cell for cell in cells if cell.row in given.rows]
    if given.sizes:
        cells = [cell for cell in cells if cell.size in given.sizes]
    with threadpool_limits(1):
        for cell in [] if given.only_report else cells:
            if time.monotonic() > until:
                break
            if saved(cell) is None:
                begun = time.thread_time()
                values = COMPUTED[cell.table](cell)
                values["cpu_seconds"] = round(time.thread_time() - begun, 1)
                print(json.dumps({**vars(cell), **keep(cell, values)}), flush=True)
    done = {cell: values for t in COMPUTED for cell in cells_of(t, 10) if (values := saved(cell)) is not None}
    record(done)
    write(done)


if __name__ == "__main__":
    main()
