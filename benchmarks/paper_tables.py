"""The MNIST column of the POSH paper's Table 6: label MAP@1000 of LSH, ITQ, FruitFly and POSH.

    python benchmarks/paper_tables.py [--bits 16 64] [--trials 3] [--methods posh itq] [--data mnist.npz]

Protocol: 1,000 queries, 100 per class, and 69,000 targets in random order; 5,000 training rows drawn from the
targets; mean and principal components of the targets; dense codes after PCA to their length, sparse codes of
1024 bits without PCA, "bits" being their ones.  Each trial draws its own split and start (queries alone move
MAP by a point).  Prints one JSON line per cell, then the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline.evaluate import evaluate
from bitfleet.pipeline.model import Model
from bitfleet.pipeline.preprocess import moments_of
from bitfleet.pipeline.train import train
from bitfleet.storage.datasets import ArrayReader
from bitfleet.storage.memory import MemoryCheckpoints
from bitfleet.tasks.leaves import plan_leaves
from bitfleet.tasks.protocols import DataInfo
from bitfleet.tasks.random import stream
from bitfleet.tasks.registry import get
from mnist import add_data_option, load_mnist

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfleet.tasks.protocols import Arrays, Method

METRIC = "map@1000"
N_TRAIN = 5_000
QUERIES_PER_CLASS = 100

#: MAP@1000 in percent, mean over ten trials, of the paper's Table 6.
PAPER = {
    "lsh": {8: 41.299, 16: 54.820, 32: 62.248, 64: 69.491, 128: 75.542},
    "itq": {8: 57.208, 16: 69.170, 32: 76.743, 64: 80.008, 128: 81.869},
    "fruit_fly": {8: 58.187, 16: 67.258, 32: 74.007, 64: 78.371, 128: 80.790},
    "posh": {8: 75.260, 16: 79.453, 32: 81.492, 64: 82.930, 128: 83.657},
}

#: name of a row of the table: (row of the paper, method for so many bits)
ROWS: dict[str, tuple[str, Callable[[int], Method]]] = {
    "lsh": ("lsh", lambda b: get("lsh")(n_bits=b, n_components=b)),
    "itq": ("itq", lambda b: get("itq")(n_bits=b)),
    "fruit_fly": ("fruit_fly", lambda b: get("fruit_fly")(n_bits=1024, n_active=b)),
    "posh": ("posh", lambda b: get("posh")(n_bits=1024, n_active=b)),
    "posh_paper_1_epoch": (
        "posh",
        lambda b: get("posh")(n_bits=1024, n_active=b, schedule="paper", n_epochs=1),
    ),
}


@dataclass(frozen=True)
class Trial:
    """One random split, and what all methods share of it."""

    targets: tuple[np.ndarray, np.ndarray]
    queries: tuple[np.ndarray, np.ndarray]
    training: np.ndarray
    moments: Arrays
    seed: int


def draw_trial(vectors: np.ndarray, labels: np.ndarray, seed: int) -> Trial:
    """Split the data: 100 queries per class, the rest as targets, in random order."""
    order = stream(seed, "paper.split").permutation(len(labels))
    is_query = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        is_query[order[labels[order] == label][:QUERIES_PER_CLASS]] = True
    targets, queries = order[~is_query[order]], order[is_query[order]]
    training = stream(seed, "paper.training").choice(targets, N_TRAIN, replace=False)
    reader = ArrayReader(vectors[targets])
    moments = moments_of(reader, SerialExecutor(), get("itq")(n_bits=16), fan_in=8)
    return Trial(
        (reader.vectors, labels[targets]),
        (vectors[queries], labels[queries]),
        vectors[training],
        moments,
        seed,
    )


def score(trial: Trial, method: Method) -> float:
    """Train on the trial's training rows and return MAP@1000 in percent."""
    reader = ArrayReader(trial.training)
    info = DataInfo(reader.n_rows, reader.n_features, reader.dtype)
    plan = plan_leaves(info.n_rows, info.n_features, min_leaves=method.min_leaves)
    state = train(
        method, reader, SerialExecutor(), MemoryCheckpoints(), plan, trial.seed, moments=lambda: trial.moments
    )
    result = evaluate(Model(method, state, info), trial.targets, trial.queries, METRIC, seed=trial.seed)
    return 100 * float(result["value"][0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bits", type=int, nargs="+", default=[16, 64], choices=[8, 16, 32, 64, 128])
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="METHOD")
    add_data_option(parser)
    options = parser.parse_args()
    vectors, labels = load_mnist(options.data)
    scores: dict[tuple[str, int], list[float]] = {}
    seconds: dict[tuple[str, int], float] = {}
    for seed in range(options.trials):
        trial = draw_trial(vectors, labels, seed)
        for name in options.methods:
            for bits in options.bits:
                begun = time.process_time()
                scores.setdefault((name, bits), []).append(score(trial, ROWS[name][1](bits)))
                seconds[name, bits] = seconds.get((name, bits), 0.0) + time.process_time() - begun
                print(
                    f"trial {seed}: {name} {bits}: {scores[name, bits][-1]:.2f}", file=sys.stderr, flush=True
                )
    cells = [_cell(name, bits, scores[name, bits], seconds[name, bits]) for name, bits in scores]
    for cell in cells:
        print(json.dumps(cell), flush=True)
    print(_table(cells), file=sys.stderr)


def _cell(name: str, bits: int, values: list[float], seconds: float) -> dict[str, object]:
    paper = PAPER[ROWS[name][0]][bits]
    mean = float(np.mean(values))
    return {
        "benchmark": "paper_tables",
        "data": "mnist",
        "metric": METRIC,
        "method": name,
        "bits": bits,
        "trials": [round(value, 2) for value in values],
        "mean": round(mean, 2),
        "paper": paper,
        "difference": round(mean - paper, 2),
        "cpu_seconds_per_trial": round(seconds / len(values), 1),
    }


def _table(cells: list[dict[str, object]]) -> str:
    lines = [f"{'method':<20}{'bits':>5}{'ours':>9}{'paper':>9}{'diff':>8}"]
    lines += [
        f"{c['method']:<20}{c['bits']:>5}{c['mean']:>9.2f}{c['paper']:>9.2f}{c['difference']:>+8.2f}"
        for c in cells
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
