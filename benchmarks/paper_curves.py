"""The POSH paper's Figures 2 and 4: what training and decoding optimise, beside the accuracy of the codes.

    python benchmarks/paper_curves.py [--curves sbiht posh biohash_0.02 …]

As there, a subset of CIFAR10-GIST, 1,000 targets and 100 queries of each class; 1,024 bits, 64 ones. 5,000
of the targets are trained on. A curve is computed once and kept as JSON, one entry per epoch or step:

figure 2
    MAP@1000 and an objective of the training rows after so many epochs: of BioHash, at four learning rates,
    and of SphericalHash the mean of w_jᵀ x / ‖w_j‖ over rows x with their winners j (eq. 8; higher is
    better); of POSH, the default schedule and the paper's, the mean of ‖h - W x‖² (lower is better);
figure 4
    POSH with candidate refinement (twice as many): MAP after so many steps of Algorithm 4 on the decoded
    candidates, and the mean of ‖b - h‖² over all targets, in bits.

Prints one JSON line per entry.
"""

from __future__ import annotations

import argparse
import functools
import json
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline.evaluate import evaluate
from bitfleet.pipeline.model import Model
from bitfleet.pipeline.preprocess import moments_of
from bitfleet.pipeline.refine import fit_decoder
from bitfleet.storage.datasets import ArrayReader
from bitfleet.storage.memory import MemoryCheckpoints
from bitfleet.tasks.leaves import plan_leaves
from bitfleet.tasks.methods.biohash import BioHash
from bitfleet.tasks.methods.posh import POSH
from bitfleet.tasks.methods.spherical_hash import SphericalHash
from bitfleet.tasks.protocols import DataInfo, RoundState
from bitfleet.tasks.random import stream
from bitfleet.tasks.refine import thresholding_of
from mnist import load_gist
from paper_cells import FOLDER, N_TRAIN, Trial, fit
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bitfleet.tasks.protocols import Method

N_BITS, N_ACTIVE = 1024, 64
RATES = (0.005, 0.02, 0.08, 0.32)
SHOWN = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)
STEPS = (0, 1, 2, 3, 5, 10, 20, 30, 40, 50)
METHODS: dict[str, Method] = {
    **{f"biohash_{rate}": BioHash(N_BITS, N_ACTIVE, 100, rate) for rate in RATES},
    "spherical_hash": SphericalHash(N_BITS, N_ACTIVE, n_epochs=50),
    "posh": POSH(N_BITS, N_ACTIVE, n_epochs=20),
    "posh_paper": POSH(N_BITS, N_ACTIVE, "paper", n_epochs=10),
}


@functools.lru_cache(maxsize=1)
def subset() -> Trial:
    """Draw 1,000 targets and 100 queries of each class."""
    vectors, labels = load_gist(None)
    order = stream(0, "paper.subset").permutation(len(labels))
    classes = [order[labels[order] == label] for label in np.unique(labels)]
    targets = np.sort(np.concatenate([rows[:1000] for rows in classes]))
    targets = stream(0, "paper.subset_order").permutation(targets)
    queries = np.concatenate([rows[1000:1100] for rows in classes])
    reader = ArrayReader(vectors[targets])
    moments = moments_of(reader, SerialExecutor(), METHODS["posh"], fan_in=8)
    training = reader.vectors[:N_TRAIN]
    return Trial((reader.vectors, labels[targets]), (vectors[queries], labels[queries]), training, moments, 0)


def epochs_of(method: Method, trial: Trial) -> Iterator[tuple[int, RoundState]]:
    """Train; yield the number of epochs and the state after each, the start first."""
    reader = ArrayReader(trial.training)
    info = DataInfo(reader.n_rows, reader.n_features, reader.dtype)
    plan = plan_leaves(info.n_rows, info.n_features, min_leaves=method.min_leaves)
    executor, checkpoints = SerialExecutor(), MemoryCheckpoints()
    state = method.start(info, trial.seed, trial.moments)
    checkpoints.commit(state)
    epoch = 0
    while True:
        if state.scalars["phase"] == "train":
            yield epoch, state
            epoch += 1
        if method.done(state):
            return
        summary = executor.reduce(reader, method.blocks(state, plan), method, checkpoints.reference())
        state = method.advance(state, summary)
        checkpoints.commit(state)


def figure2(name: str) -> list[dict[str, float]]:
    """Return objective and MAP@1000 of one method, epoch by epoch."""
    method, trial = METHODS[name], subset()
    rows = trial.training - trial.moments["mean"]
    entries = []
    for epoch, state in epochs_of(method, trial):
        if epoch not in SHOWN:
            continue
        weights = state.arrays["weights"]
        entries.append(
            {
                "epoch": epoch,
                "objective": distance_to_codes(rows, weights)
                if isinstance(method, POSH)
                else agreement(rows, weights),
                "map@1000": _map(winners_of(weights, trial), trial, "map@1000")[0],
                "mean_length": float(np.linalg.norm(weights, axis=1).mean()),
            }
        )
    return entries


def winners_of(weights: np.ndarray, trial: Trial) -> Model:
    """Return the model of the codes wta(W (x - mean)), whatever learned W and however far it came."""
    info = DataInfo(*trial.training.shape, "float32")
    scalars = {"phase": "train", "seed": 0, "n_rows": info.n_rows, "n_features": info.n_features}
    arrays = {"mean": trial.moments["mean"], "weights": weights}
    state = RoundState(0, arrays, {**scalars, "dtype": "float32", "epoch": 10**6, "first_round": 0})
    return Model(POSH(N_BITS, N_ACTIVE), state, info)


def agreement(rows: np.ndarray, weights: np.ndarray) -> float:
    """Return the mean over rows of w_jᵀ x / ‖w_j‖, j the winner (eq. 8)."""
    scores = rows @ weights.T
    winners = scores.argmax(axis=1)
    lengths = np.linalg.norm(weights, axis=1)
    return float((scores[np.arange(len(rows)), winners] / np.where(lengths, lengths, 1.0)[winners]).mean())


def distance_to_codes(rows: np.ndarray, weights: np.ndarray) -> float:
    """Return the mean over rows of ‖h - W x‖², h the winners."""
    scores = rows @ weights.T
    largest = np.partition(scores, -N_ACTIVE, axis=1)[:, -N_ACTIVE:]
    return float((N_ACTIVE - 2 * largest.sum(axis=1) + (scores**2).sum(axis=1)).mean())


def figure4() -> list[dict[str, float]]:
    """Return bits in error and MAP after steps of Algorithm 4."""
    trial = subset()
    method = POSH(N_BITS, N_ACTIVE)
    model = fit_decoder(fit(method, trial.training, trial.moments, trial.seed), trial.training)
    thresholding = thresholding_of(method, model.state, model.needed_decoder())
    iterates = thresholding.iterates(model.encode(trial.targets[0]))
    errors = [error for _, error in islice(iterates, max(STEPS) + 1)]
    entries = []
    for step in STEPS:
        best = np.minimum.reduce(errors[: step + 1])
        ranked = _map(model, trial, "map@100,map@1000", refine=2, n_sbiht=step)
        entries.append(
            {
                "step": step,
                "bits_in_error": float(errors[step].mean()),
                "best_bits_in_error": float(best.mean()),
                "share_exact": float((best == 0).mean()),
                "map@100": ranked[0],
                "map@1000": ranked[1],
            }
        )
    return entries


def _map(model: Model, trial: Trial, metrics: str, **options: int) -> list[float]:
    result = evaluate(model, trial.targets, trial.queries, metrics, seed=trial.seed, **options)
    return [100 * float(value) for value in result["value"].values]


CURVES: dict[str, Callable[[], list[dict[str, float]]]] = {
    **{name: functools.partial(figure2, name) for name in METHODS},
    "sbiht": figure4,
}


def saved_curve(name: str) -> list[dict[str, float]] | None:
    """Return a curve, None if it was not computed yet."""
    try:
        return json.loads((FOLDER / "curves" / f"{name}.json").read_text())
    except FileNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--curves", nargs="+", default=list(CURVES), choices=list(CURVES), metavar="CURVE")
    for name in parser.parse_args().curves:
        entries = saved_curve(name)
        if entries is None:
            with threadpool_limits(1):
                entries = CURVES[name]()
            file = FOLDER / "curves" / f"{name}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_suffix(".part")
            partial.write_text(json.dumps(entries))
            partial.replace(file)
        for entry in entries:
            print(json.dumps({"benchmark": "paper_curves", "curve": name, **entry}), flush=True)


if __name__ == "__main__":
    main()
