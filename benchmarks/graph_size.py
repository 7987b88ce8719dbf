"""What a round costs the driver: bytes in the task graph, and memory as the number of leaves grows tenfold.

Each size runs in a driver process of its own, which also holds the scheduler (as with any local cluster),
with two worker processes.  Prints one JSON line per size and one with the verdict; exits 1 if a limit is
broken::

    python benchmarks/graph_size.py [--leaves 1000 10000]

Rows are computed, not read, and leaves are tiny, so that the driver's own memory is what is seen.  The modes:

``ranges``    a training round over row ranges, with a state of 64 MB
``indices``   the same over lists of row numbers
``encode``    codes written to disk, one chunk per leaf
``evaluate``  1,000 queries, the 100 nearest of each by code and by vector
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle
import numpy as np
import psutil
from bitfleet.cluster.dask_executor import DaskExecutor
from bitfleet.cluster.launch import connect
from bitfleet.pipeline import encode, neighbors
from bitfleet.pipeline.fitting import fit_in_memory
from bitfleet.tasks.protocols import Block, RoundState, RowIndices, RowRange
from bitfleet.tasks.registry import get
from distributed import Client, Future

ROWS_PER_LEAF = 4
N_QUERIES, N_NEAREST = 1000, 100
MAX_EMBEDDED_BYTES = 1_000_000
MAX_GROWTH = 0.10
MODES = ("ranges", "indices", "encode", "evaluate")


@dataclass(frozen=True)
class Computed:
    """A reader of ``row number`` as the only feature."""

    n_rows: int
    n_features: int = 1
    dtype: str = "float32"

    def read(self, address):
        rows = np.array(getattr(address, "rows", None) or range(address.start, address.stop))
        return Block(rows, rows[:, None].astype(np.float32))


@dataclass(frozen=True)
class Waves(Computed):
    """A reader of rows that differ in direction."""

    n_features: int = 8

    def read(self, address):
        rows = np.arange(address.start, address.stop)
        return Block(rows, np.sin(np.outer(rows + 1, np.arange(1, 9))).astype(np.float32))


class Total:
    """The exact sum of all rows."""

    def init(self):
        return {"sum": np.zeros(1, np.int64)}

    def update(self, state, block):
        return {"sum": state["sum"] + block.rows.sum()}

    def merge(self, left, right):
        return {"sum": left["sum"] + right["sum"]}

    def finalize(self, state):
        return state


@dataclass(frozen=True)
class Program:
    def accumulator(self, state):
        return Total()


@dataclass(frozen=True)
class Reference:
    """A reference to a state of 64 MB, which workers make for themselves."""

    key: str

    def load(self):
        return RoundState(1, {"w": np.zeros(8_000_000)})


class CountingClient(Client):
    """A client that weighs all that is submitted."""

    n_tasks = 0
    largest = 0
    total = 0

    def submit(self, function, *arguments, **options):
        size = len(cloudpickle.dumps([function, [a for a in arguments if not isinstance(a, Future)]]))
        self.n_tasks += 1
        self.largest = max(self.largest, size)
        self.total += size
        return super().submit(function, *arguments, **options)


class PeakMemory(threading.Thread):
    """Samples this process's resident memory."""

    def __init__(self):
        super().__init__(daemon=True)
        self.process, self.peak, self.running = psutil.Process(), 0, True

    def run(self):
        while self.running:
            self.peak = max(self.peak, self.process.memory_info().rss)
            time.sleep(0.02)


def measure(n_leaves: int, mode: str) -> dict:
    """Do the work of ``mode`` over ``n_leaves`` in this process and describe it."""
    with (
        connect(n_workers=2, memory_limit="1 GiB") as owner,
        CountingClient(owner.scheduler.address) as client,
        tempfile.TemporaryDirectory() as folder,
    ):
        executor = DaskExecutor(client)
        work = {"encode": Encoding, "evaluate": Evaluation}.get(mode, Round)(mode, executor, Path(folder))
        work(20, "warm")
        client.n_tasks = client.largest = client.total = 0
        memory, began = PeakMemory(), time.perf_counter()
        memory.start()
        work(n_leaves, "measured")
        seconds, memory.running = time.perf_counter() - began, False
    return {
        "benchmark": "graph_size",
        "mode": mode,
        "leaves": n_leaves,
        "tasks": client.n_tasks,
        "largest_task_bytes": client.largest,
        "submitted_bytes": client.total,
        "driver_peak_mib": round(memory.peak / 2**20, 1),
        "seconds": round(seconds, 2),
    }


class Round:
    """A training round."""

    def __init__(self, mode: str, executor: DaskExecutor, folder: Path):
        self.mode, self.executor = mode, executor

    def __call__(self, n_leaves: int, key: str) -> None:
        n_rows = n_leaves * ROWS_PER_LEAF
        leaves = addresses(n_leaves, self.mode)
        got = self.executor.reduce(Computed(n_rows), leaves, Program(), Reference(key))
        assert got["sum"] == n_rows * (n_rows - 1) // 2


class Encoding:
    """All rows encoded into a file of codes by a saved model."""

    def __init__(self, mode: str, executor: DaskExecutor, folder: Path):
        self.executor, self.folder = executor, folder
        training = Waves(200).read(RowRange(0, 200)).vectors
        self.model = fit_in_memory(training, get("lsh")(n_bits=64), 0, folder)
        self.model = replace(self.model, path=self.model.save(folder / "model.zarr"))
        for module in (encode, neighbors):
            module.base_rows = lambda n_features: ROWS_PER_LEAF

    def __call__(self, n_leaves: int, key: str) -> None:
        reader = Waves(n_leaves * ROWS_PER_LEAF)
        codes = encode.encode_to(self.model, reader, "0" * 64, self.folder / f"{key}.zarr", self.executor)
        assert (codes.n_rows, codes.chunk_rows) == (reader.n_rows, ROWS_PER_LEAF)


class Evaluation(Encoding):
    """The nearest rows to many queries, as `bitfleet.evaluate` looks for them."""

    def __call__(self, n_leaves: int, key: str) -> None:
        reader = Waves(n_leaves * ROWS_PER_LEAF)
        queries = reader.read(RowRange(0, N_QUERIES)).vectors
        search = neighbors.BlockSearch(self.model, reader, self.executor, seed=0, scratch=self.folder)
        for found in (search.by_code(queries, N_NEAREST), search.by_vector(queries, N_NEAREST)):
            assert found["id"].shape == (N_QUERIES, min(N_NEAREST, reader.n_rows))


def addresses(n_leaves: int, mode: str) -> list[RowRange] | list[RowIndices]:
    starts = range(0, n_leaves * ROWS_PER_LEAF, ROWS_PER_LEAF)
    if mode == "ranges":
        return [RowRange(start, start + ROWS_PER_LEAF) for start in starts]
    return [RowIndices(tuple(range(start, start + ROWS_PER_LEAF))) for start in starts]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--leaves", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(int(arguments.child[0]), arguments.child[1])))
        return 0
    broken = False
    for mode in arguments.modes:
        results = []
        for n_leaves in arguments.leaves:
            command = [sys.executable, __file__, "--child", str(n_leaves), mode]
            line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            print(line, end="", flush=True)
            results.append(json.loads(line))
        first, last = results[0], results[-1]
        verdict = {
            "benchmark": "graph_size",
            "mode": mode,
            "largest_embedded_bytes": max(result["largest_task_bytes"] for result in results),
            "embedded_limit_bytes": MAX_EMBEDDED_BYTES,
            "leaves_growth": round(last["leaves"] / first["leaves"], 2),
            "driver_memory_growth": round(last["driver_peak_mib"] / first["driver_peak_mib"] - 1, 4),
            "driver_memory_growth_limit": MAX_GROWTH,
        }
        broken |= verdict["largest_embedded_bytes"] > MAX_EMBEDDED_BYTES
        broken |= verdict["driver_memory_growth"] >= MAX_GROWTH
        print(json.dumps(verdict), flush=True)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
