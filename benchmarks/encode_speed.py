"""Encoding speed on one thread: exact packed codes against the float32 matrix product alone.

    python benchmarks/encode_speed.py [--rows 16384] [--rounds 9]

MNIST rows of 784 pixels to codes of 1,024 bits with 32 ones, weights of a trained POSH; the same through
64 principal components; and 1,024 signs of random
projections. Beside them the usual way in NumPy: centre, float32 product,
`argpartition`, `packbits`. CPU time of this thread; the variants take turns in one process, and each round's
times are divided by its own matrix product, so that a busy machine is busy for all. Prints JSON lines.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

import numpy as np
from bitfleet.tasks.encode import ProjectionEncoder
from bitfleet.tasks.methods.posh import POSH
from bitfleet.tasks.random import stream
from mnist import load_mnist
from paper_cells import fit
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Callable

N_BITS, N_ACTIVE = 1024, 32


def plain(rows: np.ndarray, mean: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Encode as one would without this package: fast, and not quite a function of the row alone."""
    scores = (rows - mean) @ weights
    winners = np.argpartition(-scores, N_ACTIVE - 1, axis=1)[:, :N_ACTIVE]
    bits = np.zeros(scores.shape, np.uint8)
    np.put_along_axis(bits, winners, 1, axis=1)
    return np.packbits(bits, axis=1, bitorder="little")


def variants(vectors: np.ndarray, n_rows: int) -> dict[str, Callable[[], object]]:
    """Return what is timed, each a call without arguments; the first is the product alone."""
    training = vectors[-5000:]
    mean = training.mean(axis=0, dtype=np.float64)
    centred = training - mean
    moments = {"mean": mean, "covariance": centred.T @ centred / len(training)}
    full = fit(POSH(N_BITS, N_ACTIVE, n_epochs=3), training, moments, 0).encoder()
    low = fit(POSH(N_BITS, N_ACTIVE, n_components=64), training, moments, 0).encoder()
    dense = ProjectionEncoder(mean, stream(0, "encode_speed").standard_normal(full.projection.shape))
    rows = np.ascontiguousarray(vectors[:n_rows])
    weights, mean32 = full.projection.astype(np.float32), mean.astype(np.float32)
    scores = np.empty((n_rows, N_BITS), np.float32)
    return {
        "float32 product alone": lambda: np.matmul(rows, weights, out=scores),
        "NumPy, argpartition": lambda: plain(rows, mean32, weights),
        "ours, 32 of 1024": lambda: full.encode(rows),
        "ours, 32 of 1024 through 64 components": lambda: low.encode(rows),
        "ours, 1024 signs": lambda: dense.encode(rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=16_384)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with threadpool_limits(1):
        calls = variants(load_mnist(None)[0], options.rows)
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for call in calls.values():
            call()
        for _ in range(options.rounds):
            for name, call in calls.items():
                begun = time.thread_time()
                call()
                seconds[name].append(time.thread_time() - begun)
    product, plain_way, full = (
        np.array(seconds[n]) for n in ("float32 product alone", "NumPy, argpartition", "ours, 32 of 1024")
    )
    for name, times in seconds.items():
        result = {
            "benchmark": "encode_speed",
            "what": name,
            "microseconds_per_row": round(1e6 * float(np.median(times)) / options.rows, 2),
            "fastest_microseconds_per_row": round(1e6 * min(times) / options.rows, 2),
            "times_the_product": round(float(np.median(np.array(times) / product)), 3),
            "times_faster_than_numpy": round(float(np.median(plain_way / np.array(times))), 2),
            "times_faster_than_ours_of_full_rank": round(float(np.median(full / np.array(times))), 2),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
