"""POSH's training speed against the paper's algorithm in plain NumPy, on one thread, part by part.

    python benchmarks/posh_speed.py [--batches 6] [--rounds 3] [--epochs 1] [--seeds 0 1 2]

5,000 MNIST rows of 784 pixels, 1,024 bits, 32 ones, mini-batches of 100. All times are CPU times of this
thread; the variants take turns in one process, so that a busy machine is busy for all of them.

per mini-batch
    the unchanged algorithm (equal bits), its null dimensions dropped, and 64 principal components;
to quality
    the default schedule until it reaches the reference's own MAP@1000, against 50 epochs of the reference
    and against one. 50 epochs are extrapolated from the mini-batches timed (with `--rounds 0` from the
    epochs run), unless `--epochs` says how many are really run; the reference's MAP is that after its last
    epoch run (at least one). Its epochs are kept in `results/reference`: a run of 50 takes a quarter of an
    hour and may be interrupted.

Prints one JSON line per result.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

import numpy as np
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline.evaluate import evaluate
from bitfleet.pipeline.model import Model
from bitfleet.storage.datasets import ArrayReader
from bitfleet.storage.memory import MemoryCheckpoints
from bitfleet.tasks.encode import ProjectionEncoder
from bitfleet.tasks.leaves import plan_leaves
from bitfleet.tasks.methods.posh import POSH
from bitfleet.tasks.moments import Moments, pca
from bitfleet.tasks.protocols import Block, DataInfo
from bitfleet.tasks.random import stream
from paper_cells import FOLDER, Trial, draw_trial
from reference.posh import learn, orthonormal
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Iterator

N_BITS, N_ACTIVE, BATCH = 1024, 32, 100
KEPT = FOLDER.with_name("reference")


def timed(steps: Iterator[np.ndarray], n: int) -> tuple[list[float], np.ndarray]:
    """Take n steps; return the CPU seconds of each, and the last weights."""
    seconds, weights = [], np.empty(0)
    for _ in range(n):
        begun = time.thread_time()
        weights = next(steps)
        seconds.append(time.thread_time() - begun)
    return seconds, weights


def ours(
    rows: np.ndarray, seed: int, n_batches: int, n_components: int | None
) -> tuple[list[float], np.ndarray]:
    """Run so many mini-batches of our Algorithm 1; return the mean CPU seconds of one, and the weights."""
    method = POSH(N_BITS, N_ACTIVE, "paper", n_epochs=1, n_components=n_components)
    state = method.start(DataInfo(*rows.shape, "float32"), seed)
    first = method.accumulator(state)
    block = Block(np.arange(len(rows)), rows)
    state = method.advance(state, first.finalize(first.update(first.init(), block)))
    part = Block(np.arange(n_batches * BATCH), rows[: n_batches * BATCH])
    accumulator = method.accumulator(state)
    times = [time.thread_time()]
    sums = accumulator.init()
    times.append(time.thread_time())
    sums = accumulator.update(sums, part)
    times.append(time.thread_time())
    learned = accumulator.finalize(sums)
    times.append(time.thread_time())
    begin, batches, end = np.diff(times)
    an_epoch = len(rows) // BATCH  # begin and end come once an epoch
    return [batches / n_batches + (begin + end) / an_epoch], learned["weights"]


def bits(weights: np.ndarray, rows: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return ProjectionEncoder(mean, weights.T, N_ACTIVE).encode(rows)


def rank_of(rows: np.ndarray) -> int:
    """Return the rank of the centred rows."""
    first = Moments(rows.shape[1])
    summary = first.finalize(first.update(first.init(), Block(np.arange(len(rows)), rows)))
    variances = pca(summary, rows.shape[1])[1]
    return int(np.count_nonzero(variances > variances[0] * 1e-12))


def mini_batches(rows: np.ndarray, seed: int, n_batches: int, rounds: int) -> float:
    """Time mini-batches of all variants in turn; return the reference's median seconds."""
    mean = rows.mean(axis=0, dtype=np.float64)
    rank = rank_of(rows)
    variants: dict[str, int | None] = {"unchanged": None, "null dimensions dropped": rank, "PCA-64": 64}
    seconds: dict[str, list[float]] = {name: [] for name in ("reference", *variants)}
    weights = {}
    for _ in range(rounds):
        start = _start(rows, seed)
        taken, weights["reference"] = timed(learn(rows - mean, start, N_ACTIVE), n_batches)
        seconds["reference"] += taken
        for name, components in variants.items():
            whole = components is not None and components <= 64  # quick enough for a whole epoch
            n = len(rows) // BATCH if whole else n_batches
            taken, weights[name] = ours(rows, seed, n, components)
            seconds[name] += taken
    reference = float(np.median(seconds["reference"]))
    codes = {n: bits(weights[n], rows, mean) for n in ("reference", "unchanged")}
    for name in variants:
        mine = float(np.median(seconds[name]))
        result = {
            "benchmark": "posh_speed",
            "what": f"mini-batch, {name}",
            "dimensions": variants[name] or rows.shape[1],
            "reference_ms": round(1e3 * reference, 2),
            "ours_ms": round(1e3 * mine, 3),
            "times_faster": round(reference / mine, 2),
        }
        if name == "unchanged":
            result["largest_difference_of_weights"] = float(
                np.abs(weights[name] - weights["reference"]).max()
            )
            result["equal_bits"] = bool((codes["reference"] == codes["unchanged"]).all())
            result["after_batches"] = n_batches
        print(json.dumps(result), flush=True)
    return reference


def _start(rows: np.ndarray, seed: int) -> np.ndarray:
    return stream(seed, "posh.weights").standard_normal((N_BITS, rows.shape[1]))


def reference_run(trial: Trial, epochs: int) -> tuple[list[float], np.ndarray]:
    """Run the reference, or go on where it was interrupted; return CPU seconds by epoch, and the weights."""
    rows = trial.training - trial.moments["mean"]
    file = KEPT / f"posh-{trial.seed}-of-{epochs}.npz"
    if file.exists():
        with np.load(file) as kept:
            seconds, memory = kept["seconds"].tolist(), kept["memory"]
    else:
        seconds, memory = [], orthonormal(_start(trial.training, trial.seed))
        file.parent.mkdir(parents=True, exist_ok=True)
    weights = orthonormal(memory)
    steps = learn(rows, memory, N_ACTIVE, n_epochs=epochs - len(seconds), memory=memory)
    while len(seconds) < epochs:
        taken, weights = timed(steps, len(rows) // BATCH)
        seconds.append(sum(taken))
        partial = file.with_suffix(".part.npz")
        np.savez(partial, memory=memory, seconds=seconds)
        partial.replace(file)
    return seconds, weights


def to_quality(trial: Trial, per_batch: float | None, epochs: int, params: dict[str, object]) -> None:
    """Compare the CPU time to the reference's MAP@1000: 50 epochs and one of it, our default schedule."""
    rows = trial.training
    mean = trial.moments["mean"]
    taken, weights = reference_run(trial, max(epochs, 1))
    one_epoch = taken[0]
    theirs = _map_of(trial, weights, mean)
    mean_epoch = sum(taken) / len(taken) if per_batch is None else len(rows) // BATCH * per_batch
    fifty = sum(taken[:50]) if epochs >= 50 else 50 * mean_epoch
    method = POSH(N_BITS, N_ACTIVE, **params)  # type: ignore[arg-type]
    reader = ArrayReader(rows)
    info = DataInfo(reader.n_rows, reader.n_features, reader.dtype)
    plan = plan_leaves(info.n_rows, info.n_features, min_leaves=method.min_leaves)
    executor, state = SerialExecutor(), method.start(info, trial.seed, trial.moments)
    checkpoints, seconds, ranked, reached = MemoryCheckpoints(), 0.0, 0.0, None
    checkpoints.commit(state)
    while not method.done(state):
        begun = time.thread_time()
        summary = executor.reduce(reader, method.blocks(state, plan), method, checkpoints.reference())
        state = method.advance(state, summary)
        seconds += time.thread_time() - begun
        checkpoints.commit(state)
        ranked = _map_of(trial, state.arrays["weights"], mean, state.arrays.get("components"))
        if reached is None and ranked >= theirs:
            reached = (state.round, seconds)
    print(
        json.dumps(
            {
                "benchmark": "posh_speed",
                "what": "time to the reference's MAP@1000",
                "schedule": params or "default",
                "reference_map": round(theirs, 2),
                "reference_epochs_run": max(epochs, 1),
                "reference_one_epoch_s": round(one_epoch, 2),
                "reference_fifty_epochs_s": round(fifty, 1),
                "fifty_epochs": "run" if epochs >= 50 else "extrapolated",
                "ours_reached_after_rounds": reached and reached[0],
                "ours_s": reached and round(reached[1], 3),
                "ours_all_rounds_s": round(seconds, 3),
                "ours_final_map": round(ranked, 2),
                "times_faster_than_fifty_epochs": reached and round(fifty / reached[1], 1),
                "times_faster_than_one_epoch": reached and round(one_epoch / reached[1], 2),
            }
        ),
        flush=True,
    )


def _map_of(
    trial: Trial, weights: np.ndarray, mean: np.ndarray, components: np.ndarray | None = None
) -> float:
    """MAP@1000 in percent; weights of rows given beside nothing else, as a model of one method."""
    from bitfleet.tasks.protocols import RoundState

    arrays = {"mean": mean, "weights": weights}
    if components is not None:
        arrays["components"] = components
    info = DataInfo(*trial.training.shape, "float32")
    scalars = {"phase": "train", "seed": 0, "n_rows": info.n_rows, "n_features": info.n_features}
    done = RoundState(0, arrays, {**scalars, "dtype": "float32", "epoch": 10**6, "first_round": 0})
    model = Model(POSH(N_BITS, N_ACTIVE), done, info)
    result = evaluate(model, trial.targets, trial.queries, "map@1000", seed=trial.seed)
    return 100 * float(result["value"][0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=6, help="mini-batches timed a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1, help="epochs of the reference that are really run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--schedules", nargs="*", default=["auto"])
    options = parser.parse_args()
    with threadpool_limits(1):
        for seed in options.seeds:
            trial = draw_trial("mnist", seed)
            per_batch = None
            if options.rounds:
                per_batch = mini_batches(trial.training, seed, options.batches, options.rounds)
            for name in options.schedules:
                to_quality(trial, per_batch, options.epochs, {} if name == "auto" else {"schedule": name})


if __name__ == "__main__":
    main()
