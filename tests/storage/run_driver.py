"""The driver of a small deterministic run, for tests that kill, stop or race it.

As a process: ``run_driver.py RUN ROUNDS POINT ACTION ROUND [FOLDER]`` does ACTION (kill, stop or wait) on
reaching POINT in the commit of ROUND.  Exit codes: 0, or 4 for a conflict, whose message goes to stderr.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from bitfleet.storage.errors import ManifestConflict
from bitfleet.storage.faults import POINTS, Faults
from bitfleet.storage.run import RunDirectory

if TYPE_CHECKING:
    from bitfleet.storage.checkpoints import Checkpoints, StoredRound

CONFIG = {"method": {"name": "toy", "n_bits": 16}, "run": {"seed": 3}}
IDENTITY = {"data": "d" * 64, "block_rows": 64, "fan_in": 8, "environment": {"numpy": "1", "blas": "a"}}


@dataclass(frozen=True)
class State:
    round: int
    arrays: dict[str, np.ndarray]
    scalars: dict[str, object]


def start() -> State:
    weights = np.random.default_rng(3).normal(size=(8, 4))
    arrays = {"weights": weights, "duals": np.zeros_like(weights), "active": np.zeros(1, np.int64)}
    return State(0, arrays, {"loss": 1.0, "note": "start"})


def advance(state: State | StoredRound) -> State:
    """Every array changes; shapes too, so that an older round's metadata does not fit a later one."""
    weights, duals = state.arrays["weights"], state.arrays["duals"]
    number = state.round + 1
    grown = np.vstack([np.tanh(weights * 1.7 - 0.1 * duals + 0.01 * number), np.full((1, 4), 1.0 / number)])
    arrays = {
        "weights": grown,
        "duals": np.cumsum(grown, axis=0) - 0.5,
        "active": np.arange(number + 1, dtype=np.int64) ** 2,
    }
    return State(number, arrays, {"loss": state.scalars["loss"] * 0.7, "note": f"round {number}"})


class At(Faults):
    """Does something once, on reaching a point in the commit of a round."""

    def __init__(self, point: str, round: int, action) -> None:
        assert point in POINTS, point
        self.point, self.round, self.action = point, round, action
        self.now = 0
        self.done = False

    def reach(self, point: str) -> None:
        if point == self.point and self.now == self.round and not self.done:
            self.done = True
            self.action()


def run(path: str | os.PathLike[str], rounds: int, faults: Faults | None = None, **options) -> Checkpoints:
    """Create or resume the run and commit until round ``rounds``."""
    faults = Faults() if faults is None else faults
    checkpoints = RunDirectory.create(path, CONFIG).checkpoints(IDENTITY, faults=faults, **options)
    state = checkpoints.latest()
    if state is None:
        faults.now = 0
        state = start()
        checkpoints.commit(state)
    while state.round < rounds:
        state = advance(state)
        faults.now = state.round
        checkpoints.commit(state)
    return checkpoints


def expected(rounds: int) -> State:
    """The state of an undisturbed run, without any storage."""
    state = start()
    for _ in range(rounds):
        state = advance(state)
    return state


def same(left: State | StoredRound, right: State | StoredRound) -> bool:
    """Equal in every bit."""
    return (
        left.round == right.round
        and dict(left.scalars) == dict(right.scalars)
        and left.arrays.keys() == right.arrays.keys()
        and all(
            a.dtype == right.arrays[name].dtype
            and a.shape == right.arrays[name].shape
            and a.tobytes() == right.arrays[name].tobytes()
            for name, a in left.arrays.items()
        )
    )


def _wait(folder: Path) -> None:
    (folder / f"ready-{os.getpid()}").touch()
    deadline = time.monotonic() + 60
    while not (folder / "go").exists():
        if time.monotonic() > deadline:
            sys.exit("nobody said go")
        time.sleep(0.001)


def main(path: str, rounds: str, point: str, action: str, round: str, folder: str = ".") -> int:
    actions = {
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
        "wait": lambda: _wait(Path(folder)),
    }
    try:
        run(path, int(rounds), At(point, int(round), actions[action]))
    except ManifestConflict as error:
        print(error, file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
