"""Near-isometric hashing: how much less it distorts than ITQ on few points, and what it finds on many.

    python benchmarks/nibh.py [--parts small calibrated] [--seeds 5] [--cases mnist-30 mnist-64 embeddings-30]

small
    100 points of MNIST and of the paper's Random, fresh draws: δ over all pairs of training points, of ITQ
    (the best of 100 rotations), of NIBH with both solvers (the best of its 100 candidates) and of NIBH-CG,
    which solves for a quarter of the pairs at most.
calibrated
    10,000 training rows, 10,000 others by which one of 12 ITQ rotations is chosen, and 10,000 looked at
    once: overlap MAP of 1,000 queries among them (its expected value over Hamming ties), Kendall's τ-b over
    the true nearest, and of all their pairs the 99.9 % quantile of the distortion, calibrated by the
    isotonic fit of the mean, and the greatest through the origin.

Rows are centred by the training mean and put on the unit sphere.  Prints one JSON line per result.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline.train import train
from bitfleet.storage.datasets import ArrayReader
from bitfleet.storage.memory import MemoryCheckpoints
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.leaves import plan_leaves
from bitfleet.tasks.methods.nibh_measure import ByHamming, calibration, through_origin
from bitfleet.tasks.random import stream
from bitfleet.tasks.registry import get
from nibh_data import mnist_digits, on_sphere, random_rows
from scipy.spatial.distance import pdist
from scipy.stats import kendalltau
from threadpoolctl import threadpool_limits

N_SMALL, FRESH = 100, 100  # points; the first seed that no setting was chosen on
CUTS, RANKED = (10, 100, 500), (100, 500)
N_QUERIES, N_BINS = 1000, 4096
EMBEDDINGS = Path(os.environ.get("BITFLEET_DATA", "../shared/data")) / "wordnet_minilm384.npz"
#: Of preset "calibrated", chosen on validation rows: the preset's own on MNIST.
SETTINGS: dict[str, dict[str, Any]] = {"mnist": {}, "embeddings": {"p": 4, "w": 0.0}}


def fit(name: str, rows: np.ndarray, seed: int, **params: Any) -> tuple[Any, Any, float]:
    """Return method, finished state and the thread's CPU seconds."""
    method: Any = get(name)(**params)
    begun = time.thread_time()
    plan = plan_leaves(*rows.shape, min_leaves=method.min_leaves)
    state = train(method, ArrayReader(rows), SerialExecutor(), MemoryCheckpoints(), plan, seed)
    return method, state, time.thread_time() - begun


def bits_of(method: Any, state: Any, rows: np.ndarray) -> np.ndarray:
    """Return the codes as zeros and ones, uint8, shape (n, b)."""
    return unpack_bits(method.encoder(state).encode(rows), method.n_bits)


# small ---------------------------------------------------------------------------------------------------


def small_rows(what: str, seed: int) -> np.ndarray:
    """Return 100 points on the sphere, float64: exact distances, exact codes."""
    if what == "random":
        rows = random_rows(N_SMALL, seed).astype(np.float64)
    else:
        images = mnist_digits()[0]
        chosen = stream(seed, "nibh.small").choice(len(images), N_SMALL, replace=False)
        rows = images[np.sort(chosen)].astype(np.float64)
    rows -= rows.mean(axis=0)
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def distortion(bits: np.ndarray, distances: np.ndarray) -> float:
    """Return δ over all pairs."""
    bits = bits.astype(np.int64)
    upper = np.triu_indices(len(bits), 1)
    differing = (bits @ (1 - bits).T + (1 - bits) @ bits.T)[upper]
    found = ByHamming.of_pairs(differing, distances, bits.shape[1])
    return through_origin(found.least, found.largest)[0]


def small(what: str, n_bits: int, seeds: int) -> None:
    """Print δ of all methods on one kind of data at one length."""
    found: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    most_active = 0
    for seed in range(FRESH, FRESH + seeds):
        rows = small_rows(what, seed)
        distances = pdist(rows)
        rotations = [
            distortion(bits_of(*fit("itq", rows, 1000 * seed + k, n_bits=n_bits)[:2], rows), distances)
            for k in range(100)
        ]
        found.setdefault("itq_mean", []).append(float(np.mean(rotations)))
        found.setdefault("itq_best_of_100", []).append(min(rotations))
        for label, name, params in (
            ("nibh", "nibh", {}),
            ("nibh_admm", "nibh", {"solver": "admm"}),
            ("nibh_cg", "nibh_cg", {}),
        ):
            method, state, took = fit(name, rows, seed, n_bits=n_bits, **params)
            found.setdefault(label, []).append(distortion(bits_of(method, state, rows), distances))
            seconds.setdefault(label, []).append(took)
            most_active = max(most_active, int(state.scalars.get("most_active", 0)))
    means = {label: float(np.mean(values)) for label, values in found.items()}
    print_line(
        part="small", data=what, n_bits=n_bits, seeds=seeds,
        delta={k: round(v, 4) for k, v in means.items()},
        sd={k: round(float(np.std(v, ddof=1)), 4) for k, v in found.items()} if seeds > 1 else None,
        below_itq_best={
            k: round(1 - means[k] / means["itq_best_of_100"], 4) for k in ("nibh", "nibh_admm", "nibh_cg")
        },
        cg_over_nibh=round(means["nibh_cg"] / means["nibh"] - 1, 4),
        cg_most_active_share=round(most_active / (N_SMALL * (N_SMALL - 1) / 2), 4),
        cpu_seconds={k: round(float(np.median(v)), 2) for k, v in seconds.items()},
    )  # fmt: skip


# calibrated ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judge:
    """A set of rows among which queries look for their nearest; a query is not its own neighbour."""

    rows: np.ndarray
    queries: np.ndarray  # row numbers
    nearest: np.ndarray  # (q, most) row numbers, nearest first

    @classmethod
    def of(cls, rows: np.ndarray) -> Judge:
        """Search the true neighbours of evenly spaced queries."""
        queries = np.arange(0, len(rows), len(rows) // N_QUERIES)[:N_QUERIES]
        squares = np.einsum("ij,ij->i", rows, rows)
        distances = squares - 2 * (rows[queries] @ rows.T)
        distances[np.arange(len(queries)), queries] = np.inf
        order = np.argsort(distances, axis=1, kind="stable")[:, : max(CUTS)]
        return cls(rows, queries, order)

    def retrieval(self, bits: np.ndarray) -> dict[str, float]:
        """Return overlap MAP@k, in expectation over ties, and τ-b over the k true nearest."""
        signs = 2 * bits.astype(np.float32) - 1
        hamming = np.rint((bits.shape[1] - signs[self.queries] @ signs.T) / 2).astype(np.int64)
        hamming[np.arange(len(self.queries)), self.queries] = bits.shape[1] + 1
        overlap: dict[int, list[float]] = {k: [] for k in CUTS}
        tau: dict[int, list[float]] = {k: [] for k in RANKED}
        for distances, nearest in zip(hamming, self.nearest, strict=True):
            upto = np.cumsum(np.bincount(distances, minlength=bits.shape[1] + 2))
            for k in CUTS:
                edge = int(np.searchsorted(upto, k))  # the distance at which the k-th found one lies
                inside = int(upto[edge - 1]) if edge else 0
                mine = distances[nearest[:k]]
                share = (k - inside) / (int(upto[edge]) - inside)
                hits = np.count_nonzero(mine < edge) + share * np.count_nonzero(mine == edge)
                overlap[k].append(hits / k)
            for k in RANKED:
                found = kendalltau(np.arange(k), distances[nearest[:k]], variant="b").statistic
                tau[k].append(0.0 if np.isnan(found) else float(found))
        means = {f"map@{k}": float(np.mean(v)) for k, v in overlap.items()}
        return means | {f"tau@{k}": float(np.mean(v)) for k, v in tau.items()}

    def distances(self, bits: np.ndarray) -> dict[str, float]:
        """Return over all pairs the 99.9 % quantile, calibrated, and δ, through the origin."""
        n_bits, tile = bits.shape[1], 1000
        signs = 2 * bits.astype(np.float32) - 1
        squares = np.einsum("ij,ij->i", self.rows, self.rows)
        counts = np.zeros((n_bits + 1) * N_BINS, np.int64)
        found = None
        for a in range(0, len(bits), tile):
            for b in range(a, len(bits), tile):
                left, right = slice(a, a + tile), slice(b, b + tile)
                once = np.arange(a, a + tile)[:, None] < np.arange(b, b + tile)
                c = squares[left, None] + squares[right] - 2 * (self.rows[left] @ self.rows[right].T)
                c = np.sqrt(np.maximum(c, 0))[once]
                h = np.rint((n_bits - signs[left] @ signs[right].T) / 2)[once].astype(np.intp)
                counts += np.bincount(h * N_BINS + (c * (N_BINS / 2)).astype(np.intp), minlength=len(counts))
                part = ByHamming.of_pairs(h, c, n_bits)
                found = part if found is None else found.joined(part)
        assert found is not None
        table = calibration(found.pairs, found.total)
        middles = (np.arange(N_BINS) + 0.5) * (2 / N_BINS)
        errors = np.abs(table[:, None] - middles).ravel()
        order = np.argsort(errors, kind="stable")
        reached = np.searchsorted(np.cumsum(counts[order]), 0.999 * counts.sum())
        delta = through_origin(found.least, found.largest)[0]
        return {"calibrated_999": float(errors[order[reached]]), "delta": delta}


def splits(data: str, seed: int) -> list[np.ndarray]:
    """Return training, validation and test rows, 10,000 each; only the training rows depend on the seed."""
    if data == "mnist":
        images, test = mnist_digits()
    else:
        with np.load(EMBEDDINGS) as file:
            everything = file["X"].astype(np.float32)
        order = stream(0, "nibh.split").permutation(len(everything))
        images, test = everything[order[10_000:]], everything[order[:10_000]]
    order = stream(0, "nibh.validation").permutation(len(images))
    validation, rest = images[order[:10_000]], images[order[10_000:]]
    chosen = np.sort(stream(seed, "nibh.train").choice(len(rest), 10_000, replace=False))
    training, mean = on_sphere(rest[chosen])
    return [training, *(on_sphere(rows, mean)[0] for rows in (validation, test))]


def score(judge: Judge, bits: np.ndarray) -> float:
    """Return what settings are chosen by."""
    found = judge.retrieval(bits)
    return found["map@10"] + found["map@500"]


def calibrated(data: str, n_bits: int, seeds: int) -> None:
    """Print what the chosen ITQ rotation and each preset find, by seed."""
    judges: list[Judge] = []
    for seed in range(seeds):
        training, validation, test = splits(data, seed)
        judges = [Judge.of(validation), Judge.of(test)]
        candidates = {
            "itq": [("itq", 100 * seed + k, {}) for k in range(12)],
            "calibrated": [("nibh", seed, {"preset": "calibrated", **SETTINGS[data]})],
            "isometric": [("nibh", seed, {"preset": "isometric"})],
            "paper": [("nibh", seed, {})],
        }
        for label, choices in candidates.items():
            best: tuple[float, Any, Any, Any] = (-np.inf, None, None, None)
            took = 0.0
            for name, start, params in choices:
                method, state, seconds = fit(name, training, start, n_bits=n_bits, **params)
                took += seconds
                value = score(judges[0], bits_of(method, state, validation))
                if value > best[0]:
                    best = (value, method, state, {"seed": start, **params})
            bits = bits_of(best[1], best[2], test)
            found = judges[1].retrieval(bits) | judges[1].distances(bits)
            print_line(
                part="calibrated", data=data, n_bits=n_bits, seed=seed, method=label, chosen=best[3],
                of=len(choices), validation=round(best[0], 4), cpu_seconds=round(took / len(choices), 2),
                **{key: round(value, 4) for key, value in found.items()},
            )  # fmt: skip


def print_line(**result: Any) -> None:
    """Print one result as JSON."""
    print(json.dumps({"benchmark": "nibh", **result}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", nargs="+", default=["small", "calibrated"], choices=["small", "calibrated"]
    )
    parser.add_argument("--seeds", type=int, help="by default 5 draws of few points, 3 of many")
    parser.add_argument("--cases", nargs="+", default=["mnist-30", "mnist-64", "embeddings-30"])
    arguments = parser.parse_args()
    with threadpool_limits(1):
        if "small" in arguments.parts:
            for what in ("mnist", "random"):
                for n_bits in (15, 30):
                    small(what, n_bits, arguments.seeds or 5)
        if "calibrated" in arguments.parts:
            for case in arguments.cases:
                data, n_bits = case.rsplit("-", 1)
                calibrated(data, int(n_bits), arguments.seeds or 3)


if __name__ == "__main__":
    main()
