"""True neighbours at equal bytes: our codes beside Faiss's quantizers, on three data sets.

    python benchmarks/bytes.py [--data sentences glove gist] [--rows sparse_coding itq pq rq …]
                               [--bytes 16 32 48 64] [--splits 3] [--report]

Sentence embeddings (all-MiniLM-L6-v2 of WordNet glosses, 384 floats, neighbours by cosine), GloVe vectors of
the 60,000 most frequent words (100 floats, by cosine; `make_glove.py`), GIST of CIFAR-10 (512 floats,
Euclidean). A split draws 1,000 queries and searches all other rows; everything is trained on the same 20,000
of these. Settings were chosen on other draws of queries (`--validation` is one that no split draws from).

recall10@10 and @100: the share of the 10 true neighbours among the first 10 or 100 found, in percent;
rescored: three times as many candidates, the original vectors put them in order.  Times are CPU seconds of
this thread: of training, of encoding the base, and of 1,000 queries at once for 300 neighbours.  MB: how far
the process grew.

Cells that a former run has computed are not computed again.  Prints one JSON line a cell; `--report` only
gathers what is there: the tables of `docs/bytes.md` (between its markers), `docs/bytes.png`, and all cells in
`measured/bytes.json`, which are read by the next run, too.
"""

from __future__ import annotations

import argparse
import json
from itertools import product

import faiss
from bytes_cells import COSINE, VALIDATION, Cell, draw_split, keep, saved
from bytes_ours import OURS
from bytes_ours import compute as compute_ours
from bytes_peers import PEERS
from bytes_peers import compute as compute_peer
from bytes_report import write_report
from bytes_speed import measure_speed
from threadpoolctl import threadpool_limits

BYTES = (8, 16, 24, 32, 48, 64, 96, 128, 192)
ROWS = (*OURS, *PEERS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=list(COSINE), default=list(COSINE))
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="ROW")
    parser.add_argument("--bytes", type=int, nargs="+", default=[16, 32, 48, 64], choices=BYTES)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--from-split", type=int, default=0)
    parser.add_argument("--validation", action="store_true", help="the queries that settings are chosen on")
    parser.add_argument("--report", action="store_true", help="compute nothing, gather what is there")
    parser.add_argument("--speed", action="store_true", help="only queries a second, beside Faiss PQ")
    options = parser.parse_args()
    if options.report:
        write_report()
        return
    faiss.omp_set_num_threads(1)
    if options.speed:
        with threadpool_limits(1):
            measure_speed(options.bytes)
        return
    splits = [VALIDATION] if options.validation else range(options.from_split, options.splits)
    with threadpool_limits(1):
        for split, data, row, n_bytes in product(splits, options.data, options.rows, options.bytes):
            cell = Cell(data, row, n_bytes, split)
            values = saved(cell)
            if values is None:
                function = compute_ours if row in OURS else compute_peer
                values = function(cell, draw_split(data, split))
                if values is None:
                    continue
                keep(cell, values)
            print(json.dumps({"benchmark": "bytes", **vars(cell), **values}), flush=True)


if __name__ == "__main__":
    main()
