"""Seconds per row as the rows grow: nothing that is linear becomes quadratic.  One JSON line per method.

    python benchmarks/growth.py [--rows 10000 100000 1000000 10000000] [--only NAME …]

Rows × 128 are generated block by block, never held together, and cost next to nothing to make: the same
65,536 random rows again and again.  One thread; processor seconds of training (LSH: the mean; ITQ: 64
bits, mean, components and 5 rotations; POSH: 32 of 1,024, mean and 1 epoch) and of encoding, divided by
the rows, with what the smallest size spends on starting included.  ``growth`` is the largest size's time
per row over that of the size before it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402
from bitfleet.cluster.serial import SerialExecutor  # noqa: E402
from bitfleet.pipeline.model import Model  # noqa: E402
from bitfleet.pipeline.train import train  # noqa: E402
from bitfleet.storage.memory import MemoryCheckpoints  # noqa: E402
from bitfleet.tasks.leaves import plan_leaves  # noqa: E402
from bitfleet.tasks.protocols import Block, DataInfo, RowRange  # noqa: E402
from bitfleet.tasks.registry import get  # noqa: E402

D, PERIOD = 128, 2**16
METHODS: dict[str, dict[str, Any]] = {
    "lsh": {"n_bits": 64},
    "itq": {"n_bits": 64, "n_iter": 5},
    "posh": {"n_bits": 1024, "n_active": 32, "n_epochs": 1},
}


@cache
def _rows() -> np.ndarray:
    scale = np.arange(1, D + 1) ** -0.5
    return np.random.default_rng(0).standard_normal((2 * PERIOD, D)).astype(np.float32) * scale.astype(
        np.float32
    )


@dataclass(frozen=True)
class Repeated:
    """A reader of rows that come back after 65,536; only leaves of at most so many are asked for."""

    n_rows: int
    n_features: int = D
    dtype: str = "float32"

    def read(self, address: RowRange) -> Block:
        first = address.start % PERIOD
        return Block(np.arange(address.start, address.stop), _rows()[first : first + len(address)])


def measure(name: str, n: int) -> dict[str, float]:
    """Return microseconds per row of training and encoding."""
    method = get(name)(**METHODS[name])
    reader = Repeated(n)
    plan = plan_leaves(n, D, min_leaves=method.min_leaves)
    begun = time.process_time()
    state = train(method, reader, SerialExecutor(), MemoryCheckpoints(), plan, 0, moments=None)
    trained = time.process_time()
    model = Model(method, state, DataInfo(n, D, reader.dtype))
    encoder = method.encoder(state)
    for leaf in plan.leaves():
        encoder.encode(reader.read(leaf).vectors)
    return {
        "train": round(1e6 * (trained - begun) / n, 3),
        "encode": round(1e6 * (time.process_time() - trained) / model.info.n_rows, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--only", nargs="+", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args()
    for name in options.only:
        measure(name, 1000)  # compiled and warm
        found = {n: measure(name, n) for n in options.rows}
        last, before = found[options.rows[-1]], found[options.rows[-2]]
        line = {
            "benchmark": "growth",
            "method": name,
            "parameters": METHODS[name],
            "features": D,
            "microseconds_per_row": {str(n): times for n, times in found.items()},
            "growth": {what: round(last[what] / before[what], 3) for what in last},
            "load": round(os.getloadavg()[0], 1),
            "threads": 1,
            "numpy": np.__version__,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
