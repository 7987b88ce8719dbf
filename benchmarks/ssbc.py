"""SSBC against LSH and ITQ on MNIST: mean average precision of the true nearest neighbours.

    python benchmarks/ssbc.py quality [--bits 64 128] [--seeds 0 1 2]   # the table of docs/results.md
    python benchmarks/ssbc.py sigma                                     # on other rows: which multiple
    python benchmarks/ssbc.py loss                                      # sketches against exact directions
    python benchmarks/ssbc.py speed                                     # rate against the affinities' product

Per seed 15,000 targets and 300 queries, drawn anew; a method learns from the targets. Targets are ranked by
Hamming distance, equal ones by their random order, and average precision is taken over the 10 (or 50) true
nearest neighbours. `sigma` uses seeds from 100 on, so that nothing reported is chosen on its own queries.

Prints one JSON line per result.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from typing import Any

import bitfleet as bf
import numpy as np
import scipy.linalg
from bitfleet.tasks.affinity_encoder import AffinityEncoder
from bitfleet.tasks.methods.ssbc import SSBC, affinities_of, leading
from bitfleet.tasks.sketch import FrequentDirections
from mnist import load_mnist
from threadpoolctl import threadpool_limits

N_TARGETS, N_QUERIES = 15_000, 300
NEIGHBOURS = (10, 50)


class Trial:
    """Targets, fresh queries and the queries' true neighbours."""

    def __init__(self, X: np.ndarray, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(X))
        self.targets = X[order[:N_TARGETS]]
        self.queries = X[order[N_TARGETS : N_TARGETS + N_QUERIES]]
        squares = np.square(self.targets, dtype=np.float64).sum(axis=1)
        distances = squares - 2 * self.queries.astype(np.float64) @ self.targets.T
        self.nearest = np.argsort(distances, axis=1, kind="stable")[:, : max(NEIGHBOURS)]

    def precisions(self, model: Any) -> dict[str, np.ndarray]:
        """Return each query's average precision."""
        codes, queries = model.encode(self.targets), model.encode(self.queries)
        ranks = np.empty((len(queries), len(codes)), np.int64)
        for row, query in zip(ranks, queries, strict=True):
            distance = np.bitwise_count(codes ^ query).sum(axis=1)
            row[np.argsort(distance, kind="stable")] = np.arange(1, len(codes) + 1)
        found = {}
        for k in NEIGHBOURS:
            places = np.sort(np.take_along_axis(ranks, self.nearest[:, :k], axis=1), axis=1)
            found[f"{k}nn"] = (np.arange(1, k + 1) / places).mean(axis=1)
        return found


def report(what: str, found: list[dict[str, np.ndarray]], **more: Any) -> None:
    means = {f"map_{k}": round(float(np.mean([f[k] for f in found])), 4) for k in found[0]}
    spread = {f"seed_sd_{k}": round(float(np.std([f[k].mean() for f in found])), 4) for k in found[0]}
    print(json.dumps({"benchmark": "ssbc", "what": what, **more, **means, **spread}), flush=True)


def versus(found: list[dict[str, np.ndarray]], others: list[dict[str, np.ndarray]]) -> dict[str, str]:
    """Mean paired difference and its standard error over all queries."""
    table = {}
    for k in found[0]:
        d = np.concatenate([a[k] - b[k] for a, b in zip(found, others, strict=True)])
        table[f"minus_itq_{k}"] = f"{d.mean():+.4f} ± {d.std() / len(d) ** 0.5:.4f}"
    return table


def quality(X: np.ndarray, bits: list[int], seeds: list[int], wanted: list[str] | None) -> None:
    trials = [Trial(X, seed) for seed in seeds]
    for b in bits:
        methods: dict[str, Any] = {
            "ITQ": bf.ITQ(b),
            "LSH": bf.LSH(b),
            "SSBC": bf.SSBC(b),
            "SSBC, 2000 anchors": bf.SSBC(b, n_anchors=2000),
            "SSBC, 4000 anchors": bf.SSBC(b, n_anchors=4000),
            "Nystrom": bf.Nystrom(b),
            "SSBC, the paper's form": bf.SSBC(b, center=False, sketch_rows="train", sketch_size=b),
        }
        itq: list[dict[str, np.ndarray]] = []
        for name, estimator in methods.items():
            if wanted and name not in ("ITQ", *wanted):
                continue
            found = []
            for seed, trial in zip(seeds, trials, strict=True):
                fitted = estimator.set_params(random_state=seed).fit(trial.targets)
                found.append(trial.precisions(fitted))
            itq = itq or found
            report("quality", found, method=name, n_bits=b, seeds=seeds, **versus(found, itq))


def sigma(X: np.ndarray, bits: list[int]) -> None:
    trials = [Trial(X, seed) for seed in (100, 101)]
    for b in bits:
        for n_anchors in (1000, 2000):
            for multiple in (0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5):
                found = []
                for seed, trial in enumerate(trials):
                    auto = bf.SSBC(b, n_anchors=n_anchors, sketch_rows="train", random_state=seed)
                    distance = auto.fit(trial.targets).model_.state.scalars["neighbor_distance"]
                    est = bf.SSBC(b, n_anchors=n_anchors, sigma=multiple * distance, random_state=seed)
                    found.append(trial.precisions(est.fit(trial.targets)))
                report("sigma", found, n_bits=b, n_anchors=n_anchors, multiple=multiple)


def loss(X: np.ndarray, seeds: list[int], n_anchors: int = 2000) -> None:
    """Directions of sketches of several sizes against exact ones of the same affinities."""
    for b in (64, 128):
        rows: dict[str, list[dict[str, np.ndarray]]] = {}
        for seed in seeds:
            trial = Trial(X, seed)
            state = bf.SSBC(b, n_anchors=n_anchors, sketch_rows="train", random_state=seed)
            state = state.fit(trial.targets).model_.state
            A = affinities_of(state)
            W = np.concatenate([tile for _, tile in A.tiles(trial.targets, np.float64)])
            values, vectors = scipy.linalg.eigh(W.T @ W)
            spectra = {"exact": (values[::-1], vectors[:, ::-1])}
            for size in (b, 3 * b // 2, 2 * b):
                sketch = FrequentDirections(size, buffer_size=SSBC(b, sketch_size=size).buffer_size)
                spectra[f"{size} rows"] = sketch.partial_fit(W).spectrum()
            for name, (values, vectors) in spectra.items():
                encoder = AffinityEncoder(A, leading(values, vectors, b, 0, seed)[0])
                bits = np.unpackbits(encoder.encode(trial.targets), axis=1, bitorder="little")[:, :b]
                assert encoder.n_bits == b
                assert (bits.min(axis=0) < bits.max(axis=0)).all()
                rows.setdefault(name, []).append(trial.precisions(encoder))
        for name, found in rows.items():
            lost = {}
            for k in found[0]:
                differences = [e[k] - f[k] for e, f in zip(rows["exact"], found, strict=True)]
                lost[k] = round(float(np.mean(differences)), 5)
            report("loss", found, sketch=name, n_bits=b, n_anchors=n_anchors, lost=lost)


def speed(X: np.ndarray, n_rows: int, rounds: int = 3) -> None:
    """CPU seconds of learning and of encoding, and of the products that affinities need."""
    X = X[:n_rows]
    anchors = np.ascontiguousarray(X[:2000].T)
    out = np.empty((2048, 2000), np.float32)
    for dtype, size in itertools.product(("float32", "float64"), (96, 128)):
        seconds: dict[str, list[float]] = {"product": [], "learn": [], "encode": [], "one pass": []}
        for _ in range(rounds):
            begun = time.thread_time()
            for i in range(0, len(X) - 2047, 2048):
                np.matmul(X[i : i + 2048], anchors, out=out)
            seconds["product"].append((time.thread_time() - begun) * len(X) / (len(X) // 2048 * 2048))
            est = bf.SSBC(64, n_anchors=2000, sketch_size=size, sketch_dtype=dtype, random_state=0)
            begun = time.thread_time()
            est.fit(X)
            seconds["learn"].append(time.thread_time() - begun)
            begun = time.thread_time()
            est.encode(X)
            seconds["encode"].append(time.thread_time() - begun)
            seconds["one pass"].append(one_pass(est, X, size, dtype))
        median = {key: float(np.median(taken)) for key, taken in seconds.items()}
        both = median["learn"] + median["encode"]
        result = {
            "benchmark": "ssbc",
            "what": "speed",
            "sketch_size": size,
            "sketch_dtype": dtype,
            "n_rows": len(X),
            "rows_per_s": {key: round(len(X) / taken) for key, taken in median.items()},
            "share_of_product_rate": {
                "affinities once, sketched and encoded": round(median["product"] / median["one pass"], 3),
                "learn": round(median["product"] / median["learn"], 3),
                "encode": round(median["product"] / median["encode"], 3),
                "learn, then encode": round(median["product"] / both, 3),
            },
        }
        print(json.dumps(result), flush=True)


def one_pass(est: Any, X: np.ndarray, size: int, dtype: str) -> float:
    """CPU seconds of affinities that are sketched and projected while they are there."""
    state = est.model_.state
    weights = state.arrays["weights"].astype(np.float32)
    buffer_size = SSBC(64, sketch_size=size).buffer_size
    sketch = FrequentDirections(size, buffer_size=buffer_size, dtype=dtype)
    begun = time.thread_time()
    for _, tile in affinities_of(state).tiles(X, np.float32):
        sketch.partial_fit(tile)
        np.packbits(tile @ weights >= 0, axis=1, bitorder="little")
    return time.thread_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=["quality", "loss", "speed"])
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", help="of `quality`, with ITQ; all by default")
    parser.add_argument("--rows", type=int, default=60_000, help="of `speed`")
    options = parser.parse_args()
    X, _ = load_mnist(None)
    with threadpool_limits(1):
        if "sigma" in options.what:
            sigma(X, options.bits)
        if "quality" in options.what:
            quality(X, options.bits, options.seeds, options.methods)
        if "loss" in options.what:
            loss(X, options.seeds)
        if "speed" in options.what:
            speed(X, options.rows)


if __name__ == "__main__":
    main()
