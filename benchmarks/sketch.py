"""Frequent Directions: speed against the row-by-row algorithm, and what float32 costs in accuracy.

    python benchmarks/sketch.py [--n-features 5000] [--sketch-size 128] [--shrinks 12] [--rounds 3]

Rows of decaying spectrum, one thread, CPU times of this thread; the variants take turns in one process and
the median of their times is taken. Both begin with a full buffer, so that none is flattered by a free
first one. The reference (`reference/frequent_directions.py`) appends row by row and takes a float64 SVD.

Prints one JSON line per result.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from bitfleet import FrequentDirections
from reference.frequent_directions import FrequentDirections as Reference
from threadpoolctl import threadpool_limits


def rows_of(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(2.0, 0.1, d)


def reference_seconds(A: np.ndarray, size: int) -> float:
    sketch = Reference(A.shape[1], size)
    for row in A[: 2 * size]:
        sketch.append(row)
    begun = time.thread_time()
    for row in A[2 * size :]:
        sketch.append(row)
    return time.thread_time() - begun


def our_seconds(A: np.ndarray, size: int) -> float:
    sketch = FrequentDirections(size, dtype=str(A.dtype)).partial_fit(A[: 2 * size])
    begun = time.thread_time()
    sketch.partial_fit(A[2 * size :])
    return time.thread_time() - begun


def speed(d: int, size: int, shrinks: int, rounds: int) -> None:
    A = rows_of((2 + shrinks) * size, d, 0)
    variants = {dtype: A.astype(dtype) for dtype in ("float64", "float32")}
    seconds: dict[str, list[float]] = {name: [] for name in ("reference", *variants)}
    for _ in range(rounds):
        seconds["reference"].append(reference_seconds(A, size))
        for name, rows in variants.items():
            seconds[name].append(our_seconds(rows, size))
    median = {name: float(np.median(taken)) for name, taken in seconds.items()}
    for name in variants:
        result = {
            "benchmark": "sketch",
            "what": "speed",
            "dtype": name,
            "n_features": d,
            "sketch_size": size,
            "rows_per_s": round(shrinks * size / median[name]),
            "reference_rows_per_s": round(shrinks * size / median["reference"]),
            "times_faster": round(median["reference"] / median[name], 2),
        }
        print(json.dumps(result), flush=True)


def accuracy(d: int, size: int, n: int) -> None:
    A = rows_of(n, d, 1)
    for dtype in ("float64", "float32"):
        rows = A.astype(dtype)
        sketch = FrequentDirections(size, dtype=dtype).partial_fit(rows)
        exact, B = rows.astype(np.float64), sketch.components_.astype(np.float64)
        lost = np.linalg.eigvalsh(exact.T @ exact - B.T @ B)
        result = {
            "benchmark": "sketch",
            "what": "accuracy",
            "dtype": dtype,
            "n_rows": n,
            "n_features": d,
            "sketch_size": size,
            "certificate_of_square": sketch.certificate_ / sketch.square_,
            "slack_of_square": sketch.slack_ / sketch.square_,
            "error_of_certificate": lost[-1] / sketch.certificate_,
            "smallest_of_square": lost[0] / sketch.square_,
        }
        print(json.dumps(result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n-features", type=int, default=5000)
    parser.add_argument("--sketch-size", type=int, default=128)
    parser.add_argument("--shrinks", type=int, default=12, help="buffers of rows that are timed")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with threadpool_limits(1):
        speed(options.n_features, options.sketch_size, options.shrinks, options.rounds)
        accuracy(500, options.sketch_size, 20_000)


if __name__ == "__main__":
    main()
