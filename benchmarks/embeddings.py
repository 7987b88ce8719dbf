"""Neighbours of sentence embeddings at equal bytes: every method beside product quantisation and RaBitQ.

    python benchmarks/embeddings.py [--parts table speed] [--rows itq posh faiss_pq …]
                                    [--bytes 16 32 48 64 128] [--splits 3] [--report]

50,000 embeddings of 384 floats (all-MiniLM-L6-v2, WordNet glosses).  A split draws 1,000 queries, searches
the other 49,000, and trains everything, Faiss as well, on the same 20,000 of them, each with its own default
effort.  A number is the share of the 10 nearest by cosine among the first 10 or 100 found, in percent.
"asymmetric" is the query's real numbers against codes: projections for dense codes, a linear decoder of all
codes for sparse ones, tables for Faiss.  "rescored": three times as many candidates, the original vectors
put them in order.  A sparse code of 1,024 bits takes 10 bits for each of its ones.

Cells that a former run has computed are not computed again.  Prints one JSON line per cell and, from all
splits there are, what the differences between methods are, split by split.  `--report` only gathers what is
there: `results/embeddings/table.md` and `recall.png`.  The part "speed" is queries a second of one core.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product

import faiss
from embedding_cells import FOLDER, ROWS, Cell, compute, saved
from embedding_report import compare, write_markdown, write_picture
from embedding_speed import measure_speed

PARTS = ("table", "speed")
BYTES = (16, 32, 48, 64, 128)
#: sizes of rows that do not have all of them: Sign has a bit a feature; OPQ and BOSL take long to train
ONLY = {"sign": (16, 32, 48), "faiss_opq": (16, 32), "bosl": (48,)}


def cells_of(rows: list[str], sizes: list[int], splits: int) -> list[Cell]:
    """Return the cells, split by split, so that what there is early is complete."""
    return [
        Cell(row, n_bytes, split)
        for split, row, n_bytes in product(range(splits), rows, sizes)
        if n_bytes in ONLY.get(row, sizes)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="ROW")
    parser.add_argument("--bytes", type=int, nargs="+", default=list(BYTES), choices=BYTES)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--report", action="store_true", help="compute nothing, gather what is there")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    if "table" in options.parts:
        table(options)
    if "speed" in options.parts and not options.report:
        measure_speed(options.bytes)


def table(options: argparse.Namespace) -> None:
    """Compute what is not there yet, and gather."""
    done = {}
    for cell in cells_of(options.rows, options.bytes, options.splits):
        values = saved(cell)
        if values is None and not options.report:
            values = compute(cell)
        if values is not None:
            done[cell] = values
            print(json.dumps({"benchmark": "embeddings", **vars(cell), **values}), flush=True)
    for line in compare(done):
        print(json.dumps({"benchmark": "embeddings", **line}), flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(write_markdown(FOLDER / "table.md", done), file=sys.stderr)
    write_picture(FOLDER / "recall.png", done)


if __name__ == "__main__":
    main()
