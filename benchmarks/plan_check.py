"""`bitfleet plan` beside the jobs themselves.

    python benchmarks/plan_check.py [--data benchmarks/data/scale.zarr] [--jobs …]

Plans a job, runs it, and prints one JSON line with both times and their ratio.  The start of a
cluster is not in them.  On a machine with other work a
run takes longer than planned: ``load`` is the number of processes that wanted a core meanwhile, and
``cpu_ratio`` compares with the processor seconds of serial jobs, which other work changes less.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import bitfleet as bf  # noqa: E402
from bitfleet.cluster.launch import connect  # noqa: E402
from make_deformed_digits import FOLDER  # noqa: E402
from scale_data import make  # noqa: E402

LOCAL = {"n_workers": 2, "memory_limit": "1 GiB"}
ALONE = {"scheduler": "serial"}
JOBS: dict[str, dict[str, Any]] = {
    "itq, one core": {"method": {"name": "itq", "n_bits": 64, "n_iter": 4}, "cluster": ALONE},
    "posh, one core": {
        "method": {"name": "posh", "n_bits": 1024, "n_active": 32, "n_epochs": 1},
        "cluster": ALONE,
    },
    "lsh, one core": {"method": {"name": "lsh", "n_bits": 256}, "cluster": ALONE},
    "posh, two workers": {
        "method": {"name": "posh", "n_bits": 1024, "n_active": 32, "n_epochs": 3},
        "cluster": LOCAL,
    },
    "itq, two workers": {"method": {"name": "itq", "n_bits": 32, "n_iter": 20}, "cluster": LOCAL},
}


def check(name: str, data: Path) -> dict[str, Any]:
    cores = os.sched_getaffinity(0)
    if JOBS[name]["cluster"] is ALONE:
        os.sched_setaffinity(0, {min(cores)})  # so that nothing is read beside
    with tempfile.TemporaryDirectory() as folder:
        job = JOBS[name] | {
            "data": {"path": str(data)},
            "run": {"path": f"{folder}/run"},
            "encode": {"path": f"{folder}/codes.zarr"},
        }
        planned = bf.plan(job)
        table, method = dict(job["cluster"]), dict(job["method"])
        if table.get("scheduler") == "serial":
            seconds, cpu = run(job, method, None)
        else:
            with connect(**table) as client:
                seconds, cpu = run(job, method, client)
    os.sched_setaffinity(0, cores)
    load = os.getloadavg()[0]
    result = {
        "benchmark": "plan_check",
        "job": name,
        "rows": planned["rows"],
        "planned_seconds": planned["seconds"],
        "seconds": round(seconds, 2),
        "ratio": round(planned["seconds"] / seconds, 3),
        "calibration_seconds": planned["calibration_seconds"],
        "load": load,
    }
    if not planned["workers"]:
        result["cpu_seconds"] = round(cpu, 2)
        result["cpu_ratio"] = round(planned["seconds"] / cpu, 3)
    return result


def run(job: dict[str, Any], method: dict[str, Any], client: Any) -> tuple[float, float]:
    """Train and encode; return the seconds and this process's processor seconds."""
    name = method.pop("name")
    begun, cpu = time.perf_counter(), time.process_time()
    model = bf.train(job["data"]["path"], job["run"]["path"], name, scheduler=client, **method)
    bf.encode(model, job["data"]["path"], job["encode"]["path"], scheduler=client)
    return time.perf_counter() - begun, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=FOLDER / "scale.zarr")
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS)
    options = parser.parse_args()
    if not options.data.exists():
        make(options.data)
    for name in options.jobs:
        print(json.dumps(check(name, options.data)), flush=True)


if __name__ == "__main__":
    main()
