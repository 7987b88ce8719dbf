"""Eigenfunctions of single coordinates on MNIST: MDSH by its affinity and without, codes from some labels.

    python benchmarks/spectral.py neighbours [--bits 30 64 128] [--seed 0]  # the numbers of docs/methods.md
    python benchmarks/spectral.py labels --bits 64 --seed 1  # likewise

8,000 rows of the official training part are searched for 200 of the test part, drawn by the seed: mean
average precision, over the whole ranking, of the 10 and 100 true nearest neighbours (`neighbours`), or of the
rows with the query's label, with the precision of the first 100 and of the first (`labels`).

Prints one JSON line per result.
"""

from __future__ import annotations

import argparse
import json
import time
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

    def report_labels(self, ids: np.ndarray, **what: Any) -> None:
        """Print how well rankings of all rows, best first, find the query's label."""
        right = self.labels[ids] == self.query_labels[:, None]
        precisions = np.cumsum(right, axis=1) / np.arange(1, ids.shape[1] + 1)
        found = {
            "map": float(np.mean([p[r].mean() for p, r in zip(precisions, right, strict=True)])),
            "precision_100": float(precisions[:, 99].mean()),
            "precision_1": float(precisions[:, 0].mean()),
        }
        rounded = {key: round(value, 4) for key, value in found.items()}
        print(json.dumps({"benchmark": "spectral", **what, **rounded}), flush=True)

    def report(self, ids: np.ndarray, **what: Any) -> None:
        """Print how well rankings of all rows, best first, find true neighbours."""
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
    parser.add_argument("what", choices=["neighbours", "labels"])
    parser.add_argument("--bits", type=int, nargs="+", default=[30, 64, 128])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    trial = Trial(options.seed)
    with threadpool_limits(1):
        for b in options.bits:
            (neighbours if options.what == "neighbours" else labels)(trial, b, options.seed)


def neighbours(trial: Trial, b: int, seed: int) -> None:
    methods = {
        "MDSH": bf.MDSH(b),
        "MDSH, products": bf.MDSH(b, products=True),
        "SpectralHashing": bf.SpectralHashing(b),
        "ITQ": bf.ITQ(b, random_state=seed),
    }
    for name, est in methods.items():
        est.fit(trial.rows)
        codes, queries = est.encode(trial.rows), est.encode(trial.queries)
        _, ids = bf.CodeIndex(codes, n_bits=b).search(queries, len(codes))
        trial.report(ids, method=name, n_bits=b, ranked_by="Hamming distance")
        if name.startswith("MDSH"):
            _, ids = bf.weighted_hamming(codes, queries, len(codes), model=est)
            trial.report(ids, method=name, n_bits=b, ranked_by="affinity")


def labels(trial: Trial, b: int, seed: int) -> None:
    methods = [("ITQ", 0, bf.ITQ(b, random_state=seed))]
    for n_labelled in (100, 500, 2000):
        methods += [
            ("EigenfunctionSSH", n_labelled, bf.EigenfunctionSSH(b, random_state=seed)),
            ("half of the bits", n_labelled, bf.EigenfunctionSSH(b, n_label_bits=b // 2, random_state=seed)),
        ]
    for name, n_labelled, est in methods:
        y = np.where(np.arange(len(trial.labels)) < n_labelled, trial.labels, -1)
        begun = time.thread_time()
        est.fit(trial.rows, y if n_labelled else None)
        seconds = time.thread_time() - begun
        codes, queries = est.encode(trial.rows), est.encode(trial.queries)
        _, ids = bf.CodeIndex(codes, n_bits=b).search(queries, len(codes))
        trial.report_labels(ids, method=name, n_bits=b, n_labelled=n_labelled, fit_s=round(seconds, 2))


if __name__ == "__main__":
    main()
