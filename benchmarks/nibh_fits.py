"""Train methods of the tables of near-isometric hashing, and keep what a table needs again."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline.train import train
from bitfleet.storage.datasets import ArrayReader
from bitfleet.storage.memory import MemoryCheckpoints
from bitfleet.tasks.leaves import plan_leaves
from bitfleet.tasks.protocols import RoundState
from bitfleet.tasks.registry import get
from nibh_judge import bits_of

FOLDER = Path(__file__).resolve().parent / "results" / "nibh"


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained method."""

    method: Any
    state: Any
    seconds: float

    def codes(self, rows: np.ndarray) -> np.ndarray:
        """Return packed codes."""
        return self.method.encoder(self.state).encode(rows)

    def bits(self, rows: np.ndarray) -> np.ndarray:
        """Return zeros and ones."""
        return bits_of(self.codes(rows), self.method.n_bits)


class Split(NamedTuple):
    """Which 10,000 training rows."""

    data: str
    seed: int


def fit(name: str, rows: np.ndarray, seed: int, **params: Any) -> Fitted:
    """Train in this thread."""
    method: Any = get(name)(**params)
    begun = time.thread_time()
    plan = plan_leaves(*rows.shape, min_leaves=method.min_leaves)
    state = train(method, ArrayReader(rows), SerialExecutor(), MemoryCheckpoints(), plan, seed)
    return Fitted(method, state, time.thread_time() - begun)


def fit_once(split: Split, name: str, rows: np.ndarray, seed: int, **params: Any) -> Fitted:
    """Train on the training rows of a split, or read what was trained on them before."""
    told = "-".join(f"{key}={value}" for key, value in sorted(params.items()))
    file = FOLDER / "models" / f"{split.data}-{split.seed}-{name}-{told}-{seed}.npz"
    method: Any = get(name)(**params)
    if file.is_file():
        with np.load(file) as arrays:
            told_of = json.loads(str(arrays["scalars"]))
            kept = {key: arrays[key] for key in arrays.files if key != "scalars"}
        return Fitted(method, RoundState(told_of["round"], kept, told_of["scalars"]), told_of["seconds"])
    found = fit(name, rows, seed, **params)
    told_of = {"round": found.state.round, "scalars": dict(found.state.scalars), "seconds": found.seconds}
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.npz")
    np.savez(partial, scalars=np.array(json.dumps(told_of)), **found.state.arrays)
    partial.replace(file)
    return found
