"""Eigenfunctions of single coordinates on MNIST: MDSH with its affinity and without, and others beside it.

    python benchmarks/spectral.py [--bits 30 64 128] [--seed 0]     # the numbers of docs/methods.md

8,000 rows of the official training part are searched for 200 of the test part, drawn by the seed: mean
average precision, over the whole ranking, of the 10 and 100 true nearest neighbours.

Prints one JSON line per result.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import bitfleet as bf
import numpy as np
from mnist import load_mnist
from threadpoolctl import threadpool_limits

NEIGHBOURS = (10, 100)


class Trial:
    """Rows, queries and the queries' true neighbours."""

    def __init__(self, seed: int) -> None:
        X, y = load_mnist(None)
        rng = np.random.default_rng(seed)
        rows = rng.choice(60_000, 8000, replace=False)
        asked = 60_000 + rng.choice(10_000, 200, replace=False)
        self.rows, self.labels = X[rows], y[rows]
        self.queries, self.query_labels = X[asked], y[asked]
        squares = np.square(self.rows, dtype=np.float64).sum(axis=1)
        distances = squares - 2 * self.queries.astype(np.float64) @ self.rows.T.astype(np.float64)
        self.nearest = np.argsort(distances, axis=1, kind="stable")[:, : max(NEIGHBOURS)]

    def report(self, ids: np.ndarray, **what: Any) -> None:
        """Print what rankings of all rows, best first, are worth."""
        ranks = np.empty_like(ids)
        np.put_along_axis(ranks, ids, np.arange(1, ids.shape[1] + 1)[None], axis=1)
        found = {}
        for k in NEIGHBOURS:
            places = np.sort(np.take_along_axis(ranks, self.nearest[:, :k], axis=1), axis=1)
            found[f"map_{k}nn"] = round(float((np.arange(1, k + 1) / places).mean()), 4)
        print(json.dumps({"benchmark": "spectral", **what, **found}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bits", type=int, nargs="+", default=[30, 64, 128])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    trial = Trial(options.seed)
    n = len(trial.rows)
    with threadpool_limits(1):
        for b in options.bits:
            methods = {
                "MDSH": bf.MDSH(b),
                "MDSH, products": bf.MDSH(b, products=True),
                "SpectralHashing": bf.SpectralHashing(b),
                "ITQ": bf.ITQ(b, random_state=options.seed),
            }
            for name, est in methods.items():
                est.fit(trial.rows)
                codes, queries = est.encode(trial.rows), est.encode(trial.queries)
                _, ids = bf.CodeIndex(codes, n_bits=b).search(queries, n)
                trial.report(ids, method=name, n_bits=b, ranked_by="Hamming distance")
                if name.startswith("MDSH"):
                    _, ids = bf.weighted_hamming(codes, queries, n, model=est)
                    trial.report(ids, method=name, n_bits=b, ranked_by="affinity")


if __name__ == "__main__":
    main()
