"""What a round costs the driver: bytes in the task graph, and memory as the number of leaves grows tenfold.

Each size runs in a driver process of its own, which also holds the scheduler (as with any local cluster),
with two worker processes.  Prints one JSON line per size and one with the verdict; exits 1 if a limit is
broken::

    python benchmarks/graph_size.py [--leaves 1000 10000]

Rows are computed, not read: leaves are tiny, so that the driver's own memory is what is seen.  In mode
``ranges`` leaves are row ranges, as in training; in mode ``indices`` they are lists of row numbers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import cloudpickle
import numpy as np
import psutil
from bitfleet.cluster.dask_executor import DaskExecutor
from bitfleet.cluster.launch import connect
from bitfleet.tasks.protocols import Block, RoundState, RowIndices, RowRange
from distributed import Client, Future

ROWS_PER_LEAF = 4
MAX_EMBEDDED_BYTES = 1_000_000
MAX_GROWTH = 0.10
MODES = ("ranges", "indices")


@dataclass(frozen=True)
class Computed:
    """A reader of ``row number`` as the only feature."""

    n_rows: int
    n_features: int = 1
    dtype: str = "float32"

    def read(self, address):
        rows = np.array(getattr(address, "rows", None) or range(address.start, address.stop))
        return Block(rows, rows[:, None].astype(np.float32))


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
    """Run one round of ``n_leaves`` in this process and describe it."""
    n_rows = n_leaves * ROWS_PER_LEAF
    with (
        connect(n_workers=2, memory_limit="1 GiB") as owner,
        CountingClient(owner.scheduler.address) as client,
    ):
        executor = DaskExecutor(client)
        executor.reduce(Computed(80), addresses(20, "ranges"), Program(), Reference("warm"))
        client.n_tasks = client.largest = client.total = 0
        memory, began = PeakMemory(), time.perf_counter()
        memory.start()
        got = executor.reduce(Computed(n_rows), addresses(n_leaves, mode), Program(), Reference("round"))
        seconds, memory.running = time.perf_counter() - began, False
    assert got["sum"] == n_rows * (n_rows - 1) // 2
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
