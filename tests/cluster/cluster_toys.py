"""Small programs, readers and references that the cluster tests add up with.

An ordinary module, unlike test modules: ``conftest.py`` puts its folder on the path of driver and workers.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from bitfleet.tasks.protocols import Block, BlockPair, RoundState, RowIndices, RowRange


def rows_of(start: int, stop: int, width: int = 3) -> np.ndarray:
    """Rows whose float32 sums depend on the order of addition."""
    index = np.arange(start, stop, dtype=np.float64)[:, None] * width + np.arange(width)
    return (np.sin(index * 12.9898) * 10.0 ** (index % 7 - 3)).astype(np.float32)


@dataclass(frozen=True)
class Formula:
    """A reader that computes its rows; picklable in a few bytes and the same everywhere."""

    n_rows: int
    n_features: int = 3
    dtype: str = "float32"
    digest: str = "formula"

    def read(self, address):
        if isinstance(address, BlockPair):
            return self.read(address.left), self.read(address.right)
        if isinstance(address, RowIndices):
            rows = np.array(address.rows, dtype=np.int64)
            vectors = rows_of(0, rows.max() + 1, self.n_features)[rows]
        else:
            rows = np.arange(address.start, address.stop)
            vectors = rows_of(address.start, address.stop, self.n_features)
        vectors.flags.writeable = False
        return Block(rows, vectors)


@dataclass(frozen=True)
class CountedFormula(Formula):
    """Leaves one file for every read."""

    folder: str = ""

    def read(self, address):
        (Path(self.folder) / f"{address.start}-{os.getpid()}-{time.monotonic_ns()}").touch()
        return super().read(address)


@dataclass(frozen=True)
class InMemory:
    """A reader that carries its rows, which must not enter a graph when they are many."""

    vectors: np.ndarray

    @property
    def n_rows(self):
        return len(self.vectors)

    @property
    def n_features(self):
        return self.vectors.shape[1]

    dtype: str = "float32"

    def read(self, address):
        return Block(np.arange(address.start, address.stop), self.vectors[address.start : address.stop])


@dataclass(frozen=True)
class Held:
    """A reference that holds its state itself."""

    state: RoundState
    key: str = "held"

    def load(self):
        return self.state


@dataclass(frozen=True)
class Stored:
    """A reference to a file, which records every load."""

    folder: str
    key: str

    @classmethod
    def write(cls, folder: Path, **arrays: np.ndarray) -> Stored:
        np.savez(folder / "state.npz", **arrays)
        digest = hashlib.sha256((folder / "state.npz").read_bytes()).hexdigest()
        return cls(str(folder), digest)

    def load(self):
        folder = Path(self.folder)
        (folder / f"load-{os.getpid()}-{time.monotonic_ns()}").touch()
        with np.load(folder / "state.npz") as stored:
            return RoundState(4, {name: stored[name] for name in stored.files}, {"seed": 1})


class _Sum:
    """Sums in float32, in place wherever the contract allows it."""

    sequential = False

    def __init__(self, width=3, scale=1.0, delays=False):
        self.width, self.scale, self.delays = width, np.float32(scale), delays

    def init(self):
        return {"sum": np.zeros(self.width, np.float32), "count": np.zeros(1, np.int64)}

    def update(self, state, block):
        self._sleep(int(block.rows[0]) if len(block.rows) else 0)
        for row in block.vectors:
            state["sum"] += row * self.scale
        state["count"] += len(block.rows)
        return state

    def merge(self, left, right):
        self._sleep(int(left["count"][0]))
        left["sum"] *= np.float32(1.0000001)  # neither commutative nor associative
        left["sum"] += right["sum"]
        left["count"] += right["count"]
        right["sum"][:] = np.nan  # the contract lets merge reuse the memory of both
        right["count"][:] = -1
        return left

    def finalize(self, state):
        return {**state, "mean": state["sum"] / np.float32(max(1, state["count"][0]))}

    def _sleep(self, token):
        if self.delays:
            digest = hashlib.sha256(f"{token}{os.getpid()}{time.monotonic_ns()}".encode()).digest()
            time.sleep(digest[0] / 255 * 0.03)


@dataclass(frozen=True)
class Sum:
    """The program of `_Sum`; ``delays`` makes tasks finish in random order."""

    delays: bool = False

    def accumulator(self, state):
        return _Sum(scale=state.arrays["scale"][0] if "scale" in state.arrays else 1.0, delays=self.delays)


class _Spell:
    """Writes down the tree itself: which leaves were merged, in which order."""

    def init(self):
        return {"text": np.array("")}

    def update(self, state, block):
        return {"text": np.array(f"{state['text']}{block.rows[0]}")}

    def merge(self, left, right):
        return {"text": np.array(f"({left['text']} {right['text']})")}

    def finalize(self, state):
        return state


@dataclass(frozen=True)
class Spell:
    def accumulator(self, state):
        return _Spell()


class _Chain:
    """A recurrence that has no merge."""

    sequential = True

    def init(self):
        return {"value": np.full(1, 0.5)}

    def update(self, state, block):
        for row in block.rows:
            state["value"] *= 3.7 * (1 - state["value"])
            state["value"] += 1e-9 * (row % 5)
        return state

    def finalize(self, state):
        return state


@dataclass(frozen=True)
class Chain:
    def accumulator(self, state):
        return _Chain()


class UserError(Exception):
    """What a method might raise."""


class _Fails(_Sum):
    def update(self, state, block):
        raise UserError(f"no such rows: {block.rows[0]}")


@dataclass(frozen=True)
class Fails:
    def accumulator(self, state):
        return _Fails()


class _MutatesState(_Sum):
    def __init__(self, state):
        super().__init__()
        state.arrays["scale"][0] = 7


@dataclass(frozen=True)
class MutatesState:
    def accumulator(self, state):
        return _MutatesState(state)


class _Slow(_Sum):
    """Announces the processes that work on it, and takes its time."""

    def __init__(self, folder, seconds):
        super().__init__()
        self.folder, self.seconds = Path(folder), seconds

    def update(self, state, block):
        (self.folder / f"pid-{os.getpid()}").touch()
        time.sleep(self.seconds)
        return super().update(state, block)


@dataclass(frozen=True)
class Slow:
    folder: str
    seconds: float = 0.1

    def accumulator(self, state):
        return _Slow(self.folder, self.seconds)


class _Deadly(_Sum):
    def update(self, state, block):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Deadly:
    """Kills every worker that tries it."""

    def accumulator(self, state):
        return _Deadly()


def blas_pools() -> list[dict]:
    """NumPy's and SciPy's BLAS; another library may have brought its own into this process."""
    import threadpoolctl
    from bitfleet.cluster.fingerprint import _serves_numpy

    pools = threadpoolctl.threadpool_info()
    return [pool for pool in pools if pool["user_api"] == "blas" and _serves_numpy(pool["filepath"])]


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in blas_pools()}


class _BlasThreads:
    """The most threads that any BLAS had while a leaf, a merge or the end was computed."""

    sequential = False

    def init(self):
        return {"threads": np.zeros(1, np.int64)}

    def update(self, state, block):
        return {"threads": np.maximum(state["threads"], max(blas_threads()))}

    def merge(self, left, right):
        return self.update({"threads": np.maximum(left["threads"], right["threads"])}, None)

    def finalize(self, state):
        return self.update(state, None)


@dataclass(frozen=True)
class BlasThreads:
    def accumulator(self, state):
        return _BlasThreads()


@dataclass(frozen=True)
class Describe:
    """A map function: what it saw, with a random delay."""

    delays: bool = False

    def __call__(self, state, block):
        if self.delays:
            time.sleep((hash((os.getpid(), int(block.rows[0]))) % 30) / 1000)
        return {"start": int(block.rows[0]), "sum": float(block.vectors.sum()), "round": state.round}


EMPTY = Held(RoundState(0))


@dataclass(frozen=True)
class Bulky:
    """A program that carries too much."""

    payload: bytes = field(default_factory=lambda: os.urandom(2_000_000))

    def accumulator(self, state):
        return _Sum()


def leaves(n_leaves: int, rows: int = 4) -> list[RowRange]:
    return [RowRange(i * rows, (i + 1) * rows) for i in range(n_leaves)]


class _Products(_Sum):
    def update(self, state, block):
        left, right = block
        state["sum"] += (left.vectors[:, None] * right.vectors).sum((0, 1))
        state["count"] += len(left.rows)
        return state


@dataclass(frozen=True)
class Products:
    """Pairwise work."""

    def accumulator(self, state):
        return _Products()


class _Raises(_Sum):
    def __init__(self, error):
        self.error = error

    def init(self):
        raise self.error


@dataclass(frozen=True)
class Raises:
    error: Exception

    def accumulator(self, state):
        return _Raises(self.error)


class _Count(_Sum):
    def update(self, state, block):
        return {"sum": state["sum"], "count": state["count"] + len(block.rows)}


@dataclass(frozen=True)
class Count:
    def accumulator(self, state):
        return _Count()


class _Rows:
    """Keeps the rows themselves, so that its state may share memory with blocks."""

    def init(self):
        return {}

    def update(self, state, block):
        return {"rows": block.vectors}

    def merge(self, left, right):
        return {"rows": np.concatenate([left["rows"], right["rows"]])}

    def finalize(self, state):
        return state


@dataclass(frozen=True)
class Rows:
    def accumulator(self, state):
        return _Rows()


def raise_timeout():
    """A task that fails with what waiting for it could raise as well."""
    raise TimeoutError("of my own")


@dataclass(frozen=True)
class Halves(Formula):
    """Rows that are stored as float16; `fetch` and `widen` are the halves of `read`."""

    digest: str = "halves"
    folder: str = ""
    kills: bool = False

    def read(self, address):
        return self.widen(self.fetch(address))

    def fetch(self, address):
        thread = threading.current_thread().name
        if self.folder:
            (Path(self.folder) / f"fetch-{address.start}-{thread}-{time.monotonic_ns()}").touch()
        if self.kills and thread.startswith("bitfleet-ahead"):
            with contextlib.suppress(FileExistsError), (Path(self.folder) / "died").open("x"):
                os.kill(os.getpid(), signal.SIGKILL)
        block = super().read(address)
        return Block(block.rows, block.vectors.astype(np.float16))

    def widen(self, block):
        return Block(block.rows, block.vectors.astype(np.float32))
