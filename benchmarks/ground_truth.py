"""Exact nearest rows, block by block from storage, beside `faiss.knn` of the same rows in memory.

    python benchmarks/ground_truth.py [--data benchmarks/data/scale.zarr] [--rows 1000000] [--queries 1000]
                                      [--k 1000] [--rounds 2]

One thread each, in turn; the queries are rows with noise.  Ours reads and decodes the rows from the data set,
and its distances are float64 in a fixed order; those of Faiss are float32, by ‖x‖² + ‖y‖² − 2x·y.
Prints one JSON line: processor seconds of both, the ratio, and the share of neighbours that both find.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import bitfleet as bf  # noqa: E402
import faiss  # noqa: E402
import numpy as np  # noqa: E402
from bitfleet.cluster.serial import SerialExecutor  # noqa: E402
from bitfleet.tasks.leaves import plan_leaves  # noqa: E402
from bitfleet.tasks.protocols import RoundState, RowRange  # noqa: E402
from bitfleet.tasks.search import NearestVectors  # noqa: E402
from make_deformed_digits import FOLDER  # noqa: E402
from scale_data import make  # noqa: E402


class Held:
    """A state that is carried along."""

    key = "queries"

    def __init__(self, queries: np.ndarray) -> None:
        self.state = RoundState(0, {"query_vectors": queries})

    def load(self) -> RoundState:
        return self.state


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=FOLDER / "scale.zarr")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--k", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if not options.data.exists():
        make(options.data)
    faiss.omp_set_num_threads(1)
    data = bf.open_dataset(options.data)
    n_rows = min(options.rows, data.n_rows)
    reader = replace(data.reader(), n_rows=n_rows)
    base = reader.read(RowRange(0, n_rows)).vectors
    rng = np.random.default_rng(0)
    some = base[rng.choice(n_rows, options.queries, replace=False)]
    queries = some + 0.2 * rng.standard_normal(some.shape).astype(np.float32)
    leaves = plan_leaves(n_rows, data.n_features).leaves()
    times: dict[str, list[float]] = {"ours": [], "faiss": []}
    for _ in range(options.rounds):
        begun = time.process_time()
        found = SerialExecutor().reduce(reader, leaves, NearestVectors(options.k), Held(queries))
        times["ours"].append(time.process_time() - begun)
        begun = time.process_time()
        other = faiss.knn(queries, base, options.k)[1]
        times["faiss"].append(time.process_time() - begun)
    shared = [len(np.intersect1d(a, b)) for a, b in zip(found["id"], other, strict=True)]
    result = {
        "benchmark": "ground_truth",
        "rows": n_rows,
        "features": data.n_features,
        "queries": options.queries,
        "k": options.k,
        "ours_cpu_seconds": round(min(times["ours"]), 2),
        "faiss_cpu_seconds": round(min(times["faiss"]), 2),
        "speed_beside_faiss": round(min(times["faiss"]) / min(times["ours"]), 3),
        "shared_neighbours": round(float(np.mean(shared)) / options.k, 5),
        "threads": 1,
        "faiss": faiss.__version__,
        "numpy": np.__version__,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
