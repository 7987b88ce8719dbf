"""Training out of core: where the time of workers goes, and how much memory they take.

    python benchmarks/out_of_core.py [--data benchmarks/data/scale.zarr] [--workers 2] [--memory 600MB]
                                     [--cases itq posh read]

Trains ITQ with 64 bits and POSH with 1,024 (32 ones) on the rows of `scale_data.py`, made if they are not
there, on a local cluster of one-thread workers with a memory limit; ``read`` makes passes that decode every
block and add up nothing.  In every worker, a thread looks a hundred times a second at what its task is in:
a kernel (`tasks/`), reading (`storage/`), or anything else of ours.  Prints one JSON line per case: seconds
and passes, shares of the workers' busy time, the highest peak of a worker, beside the time of reading alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import bitfleet as bf  # noqa: E402
import numpy as np  # noqa: E402
import psutil  # noqa: E402
from bitfleet.cluster.dask_executor import DaskExecutor  # noqa: E402
from bitfleet.cluster.launch import connect  # noqa: E402
from bitfleet.tasks.leaves import plan_leaves  # noqa: E402
from bitfleet.tasks.protocols import RoundState  # noqa: E402
from make_deformed_digits import FOLDER  # noqa: E402
from scale_data import make  # noqa: E402

CASES: dict[str, dict[str, Any]] = {
    "itq": {"n_bits": 64, "n_iter": 5},
    "posh": {"n_bits": 1024, "n_active": 32, "n_epochs": 2},
}
N_READS = 3
PLACES = {"/tasks/": "kernel", "/storage/": "read", "/cluster/ahead.py": "read", "/cluster/": "other"}


class Look(threading.Thread):
    """Counts what the tasks of this process are in."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        while True:
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                if "Dask-Default-Threads" in names.get(ident, ""):
                    self.counts[_where(frame)] += 1
            time.sleep(0.01)


def _where(frame: Any) -> str:
    """Name the innermost of our layers that a stack is in."""
    while frame is not None:
        file = frame.f_code.co_filename
        for part, name in PLACES.items():
            if part in file and "site-packages" not in file:
                return name
        frame = frame.f_back
    return "idle"


def watch() -> None:
    """Begin to look, in a worker."""
    look = Look()
    look.start()
    sys.modules["__main__"].__dict__["bitfleet_look"] = look


def seen() -> dict[str, Any]:
    """Return a worker's counts, processor seconds and peak memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    cpu = sum(psutil.Process().cpu_times()[:2])
    return {"counts": dict(sys.modules["__main__"].bitfleet_look.counts), "peak_kib": peak, "cpu": cpu}


class Nothing:
    """Adds up nothing: what is left is reading and the round itself."""

    def init(self) -> dict[str, np.ndarray]:
        return {"count": np.zeros(1, np.int64)}

    def update(self, state: dict[str, np.ndarray], block: Any) -> dict[str, np.ndarray]:
        return {"count": state["count"] + len(block.rows)}

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"count": left["count"] + right["count"]}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return state


@dataclass(frozen=True)
class Reading:
    def accumulator(self, state: Any) -> Nothing:
        return Nothing()


@dataclass(frozen=True)
class Reference:
    key: str

    def load(self) -> RoundState:
        return RoundState(1)


def read(client: Any, path: Path) -> int:
    """Make passes that only read; every pass reads all, since the blocks of each have another name."""
    data = bf.open_dataset(path)
    plan, executor = plan_leaves(data.n_rows, data.n_features), DaskExecutor(client)
    for number in range(N_READS):
        got = executor.reduce(data.reader(), plan.leaves(), Reading(), Reference(str(number)))
        assert got["count"] == data.n_rows
    return N_READS


def train(client: Any, path: Path, name: str) -> int:
    """Train; return the number of passes."""
    with tempfile.TemporaryDirectory() as folder:
        model = bf.train(path, Path(folder) / "run", name, scheduler=client, **CASES[name])
    return model.state.round


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    with connect(n_workers=options.workers, memory_limit=options.memory) as client:
        client.run(watch)
        before = list(client.run(seen).values())
        begun = time.perf_counter()
        passes = read(client, options.data) if name == "read" else train(client, options.data, name)
        seconds = time.perf_counter() - begun
        after = list(client.run(seen).values())
    counts: Counter[str] = Counter()
    for one in after:
        counts.update(one["counts"])
    busy = max(1, sum(counts.values()) - counts["idle"])
    cpu = sum(one["cpu"] for one in after) - sum(one["cpu"] for one in before)
    return {
        "benchmark": "out_of_core",
        "case": name,
        "passes": passes,
        "seconds": round(seconds, 1),
        "worker_cpu_seconds": round(cpu, 1),
        "cpu_seconds_per_pass": round(cpu / passes, 2),
        "share_of_busy_time": {key: round(counts[key] / busy, 3) for key in ("kernel", "read", "other")},
        "idle_share": round(counts["idle"] / max(1, sum(counts.values())), 3),
        "peak_mib": round(max(one["peak_kib"] for one in after) / 1024),
        "workers": options.workers,
        "memory_limit": options.memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=FOLDER / "scale.zarr")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="600MB")
    parser.add_argument("--cases", nargs="+", default=["read", *CASES], choices=["read", *CASES])
    options = parser.parse_args()
    if not options.data.exists():
        make(options.data)
    for name in options.cases:
        print(json.dumps(measure(name, options)), flush=True)


if __name__ == "__main__":
    main()
