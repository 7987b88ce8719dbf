"""Pursuit codes beside POSH: labels, true neighbours and use of the bits, on three data sets.

    python benchmarks/pursuit.py [--data mnist cifar10_gist sentences] [--active 8 16 32 64 128] [--seeds 3]

Each seed draws 1,000 queries, targets in random order, 5,000 training rows and the start. Both methods have
1,024 bits and work on the same principal components of the targets: 64 (MNIST), 128 (GIST of CIFAR-10), all
384 (sentence embeddings of WordNet glosses). `--validation` draws other queries than any seed's; settings
were chosen on these. `--speed` times the choice of bits, CPU time of this thread, least of five runs, and
training on the data sets (`--data`), least of three.

Cells that are there are not computed again. Prints JSON lines, then two Markdown tables on standard error:
all measures, and what each row has more than POSH.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from pathlib import Path
from typing import Any

import bitfleet as bf
import numpy as np
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline.evaluate import evaluate
from bitfleet.pipeline.preprocess import moments_of
from bitfleet.storage.datasets import ArrayReader
from bitfleet.tasks.kernels import pursuit as kernels
from bitfleet.tasks.kernels.wta import top_active
from bitfleet.tasks.random import stream
from bitfleet.tasks.registry import get
from mnist import PLACES, load_gist, load_mnist
from paper_cells import Trial, fit
from threadpoolctl import threadpool_limits

FOLDER = Path(__file__).resolve().parent / "results" / "pursuit"
N_BITS, N_QUERIES, N_TRAIN = 1024, 1000, 5000
COMPONENTS = {"mnist": 64, "cifar10_gist": 128, "sentences": 384}
METRICS = ("map@1000", "precision@1000", "recall10@10", "recall10@100")
SETTINGS = (("beta", float), ("n_refine", int))
#: rows beside "pursuit": the same dictionaries with winner-take-all and with pursuit
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "posh": ("posh", {}),
    "posh-greedy": ("posh", {"assign": "greedy"}),
    "spherical": ("spherical_hash", {}),
    "spherical-greedy": ("spherical_hash", {"assign": "greedy"}),
    "rows-wta": ("pursuit_hash", {"dictionary": "rows", "beta": 0.0}),
    "rows-greedy": ("pursuit_hash", {"dictionary": "rows"}),
    "kmeans-wta": ("pursuit_hash", {"beta": 0.0, "n_refine": 0}),
    "kmeans-greedy": ("pursuit_hash", {"n_refine": 0}),
    "kmeans-balanced": ("pursuit_hash", {"n_balance": 20}),
}
VALIDATION = 1000  # the seed of queries that no other seed draws from


def load_sentences() -> tuple[np.ndarray, np.ndarray]:
    """Return embeddings, float32 of shape (50000, 384), and the glosses' classes."""
    found = PLACES[0].with_name("wordnet_minilm384.npz")
    if not found.is_file():
        raise SystemExit(f"expected {found} with X of unit rows and classes y")
    with np.load(found) as file:
        return file["X"].astype(np.float32), file["y"].astype(np.int64)


LOADERS = {
    "mnist": lambda: load_mnist(None),
    "cifar10_gist": lambda: load_gist(None),
    "sentences": load_sentences,
}


@functools.lru_cache(maxsize=1)
def draw(data: str, seed: int) -> Trial:
    """Split the data; the queries of the validation are never those of another seed."""
    vectors, labels = LOADERS[data]()
    order = stream(VALIDATION, "pursuit.split").permutation(len(labels))
    held, rest = order[:N_QUERIES], order[N_QUERIES:]
    if seed == VALIDATION:
        queries, targets = held, rest
    else:
        shuffled = stream(seed, "pursuit.split").permutation(rest)
        queries, targets = shuffled[:N_QUERIES], np.concatenate([shuffled[N_QUERIES:], held])
    reader = ArrayReader(vectors[targets])
    moments = moments_of(reader, SerialExecutor(), get("itq")(n_bits=16), fan_in=8)
    training = stream(seed, "pursuit.training").choice(targets, N_TRAIN, replace=False)
    return Trial(
        (reader.vectors, labels[targets]),
        (vectors[queries], labels[queries]),
        vectors[training],
        moments,
        seed,
    )


def cell(data: str, seed: int, n_active: int, row: str) -> dict[str, Any]:
    """Return a row's measures in percent: one of `ROWS`, or "pursuit[-<beta>[-<n_refine>]]"."""
    file = FOLDER / f"{data}-{row}-{n_active}-seed{seed}.json"
    if file.is_file():
        return json.loads(file.read_text())
    trial = draw(data, seed)
    settings = zip(SETTINGS, row.split("-")[1:], strict=False)
    name, params = ROWS.get(row) or ("pursuit_hash", {key: kind(text) for (key, kind), text in settings})
    begun = time.process_time()
    method = get(name)(N_BITS, n_active, n_components=COMPONENTS[data], **params)
    model = fit(method, trial.training, trial.moments, seed)
    trained = time.process_time() - begun
    result = evaluate(model, trial.targets, trial.queries, METRICS, seed=seed)
    values: dict[str, Any] = {
        key: round(100 * float(value), 2) for key, value in zip(METRICS, result["value"].values, strict=True)
    }
    bits = bf.describe_codes(model.encode(trial.targets[0]), n_bits=N_BITS, n_active=n_active)
    values |= {"train_cpu_seconds": round(trained, 2), **bits.to_dict()}
    FOLDER.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values))
    return values


def selection_times(n_active: int = 32, n_rows: int = 8192) -> dict[str, float]:
    """Return microseconds a row of choosing bits, of the same scores: winner-take-all and pursuit."""
    rng = stream(0, "pursuit.speed")
    atoms = rng.standard_normal((N_BITS, 64))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    rows = rng.standard_normal((n_rows, 64))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scores = rows @ atoms.T
    single = scores.astype(np.float32)
    whole = np.empty((n_rows, kernels.padded_width(N_BITS)), np.int16)
    errors, ones = np.full(n_rows, 1e-8), np.ones(n_rows)
    share = np.zeros((N_BITS, whole.shape[1]), np.int16)
    share[:, :N_BITS] = np.rint(kernels.SCALE / n_active * atoms @ atoms.T)
    packed = np.empty((n_rows, N_BITS // 8), np.uint8)

    def pursue(n_rounds: int) -> None:
        kernels.quantise(scores, ones, errors, whole)
        picks = np.full(n_rounds, n_active // n_rounds)
        kernels.pursue(whole, share, picks, packed)

    runs = {
        "winner-take-all": lambda: top_active(single, n_active),
        "pursuit": lambda: pursue(n_active),
        "pursuit, 8 rounds": lambda: pursue(8),
    }
    least = dict.fromkeys(runs, np.inf)
    for round_ in range(6):
        for name, run in runs.items():
            begun = time.thread_time()
            run()
            if round_:
                least[name] = min(least[name], (time.thread_time() - begun) / n_rows * 1e6)
    return {name: round(value, 2) for name, value in least.items()}


def training_times(data: str, n_active: int = 32) -> dict[str, float]:
    """Return seconds of training on 5,000 rows, moments given: POSH's fast schedules and pursuit."""
    trial = draw(data, 0)
    runs: dict[str, tuple[str, dict[str, Any]]] = {
        "posh": ("posh", {}),
        "posh, union": ("posh", {"schedule": "union"}),
        "pursuit": ("pursuit_hash", {}),
        "pursuit, not refined": ("pursuit_hash", {"n_refine": 0}),
    }
    least = dict.fromkeys(runs, np.inf)
    for round_ in range(4):
        for label, (name, params) in runs.items():
            method = get(name)(N_BITS, n_active, n_components=COMPONENTS[data], **params)
            begun = time.thread_time()
            fit(method, trial.training, trial.moments, 0)
            if round_:
                least[label] = min(least[label], time.thread_time() - begun)
    return {label: round(value, 2) for label, value in least.items()}


def table(found: dict[tuple[str, int, str], list[dict[str, Any]]]) -> str:
    """Return means and standard deviations over seeds as Markdown."""
    names = (*METRICS, "n_live_bits", "effective_bits", "participation_ratio")
    lines = ["| data | ones | method | " + " | ".join(names) + " |", "|---" * (3 + len(names)) + "|"]
    for (data, n_active, row), cells in found.items():
        values = []
        for name in names:
            column = np.array([c[name] for c in cells])
            digits = 0 if name not in METRICS else 1
            values.append(
                f"{column.mean():.{digits}f} ± {column.std(ddof=min(1, len(column) - 1)):.{digits}f}"
            )
        lines.append(f"| {data} | {n_active} | {row} | " + " | ".join(values) + " |")
    return "\n".join(lines)


def differences(found: dict[tuple[str, int, str], list[dict[str, Any]]], other: str = "posh") -> str:
    """Return what each row has more than another one, seed by seed: means and standard deviations."""
    lines = ["| data | ones | row | " + " | ".join(METRICS) + " |", "|---" * (3 + len(METRICS)) + "|"]
    for (data, n_active, row), cells in found.items():
        base = found.get((data, n_active, other))
        if base is None or row == other:
            continue
        values = []
        for name in METRICS:
            less = np.array([c[name] for c in base])
            more = np.array([c[name] for c in cells]) - less
            spread = more.std(ddof=min(1, len(more) - 1))
            values.append(f"{less.mean():.1f} {more.mean():+.1f} ± {spread:.1f}")
        lines.append(f"| {data} | {n_active} | {row} | " + " | ".join(values) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=list(LOADERS), default=list(LOADERS))
    parser.add_argument("--active", nargs="+", type=int, default=[8, 16, 32, 64, 128])
    parser.add_argument(
        "--rows", nargs="+", default=["posh", "pursuit"], metavar="ROW", help="see ROWS and `cell`"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--validation", action="store_true", help="the queries that settings are chosen on")
    parser.add_argument("--speed", action="store_true", help="only time the choice of bits and training")
    options = parser.parse_args()
    if options.speed:
        print(json.dumps({"benchmark": "pursuit", "microseconds_per_row": selection_times()}), flush=True)
        with threadpool_limits(1):
            for data in options.data:
                times = training_times(data)
                print(
                    json.dumps({"benchmark": "pursuit", "data": data, "training_seconds": times}), flush=True
                )
        return
    found: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    with threadpool_limits(1):
        for seed in [VALIDATION] if options.validation else range(options.seeds):
            for data in options.data:
                for n_active in options.active:
                    for row in options.rows:
                        values = cell(data, seed, n_active, row)
                        found.setdefault((data, n_active, row), []).append(values)
                        told = {"data": data, "seed": seed, "n_active": n_active, "row": row}
                        print(json.dumps({"benchmark": "pursuit", **told, **values}), flush=True)
    found = dict(sorted(found.items()))
    print(table(found), differences(found), sep="\n\n", file=sys.stderr)


if __name__ == "__main__":
    main()
