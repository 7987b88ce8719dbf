"""Millions of rows through the public API: train, encode, evaluate, refine, search by a coarse quantizer.

    python benchmarks/large_scale.py [--data benchmarks/data] [--work benchmarks/data/large_scale]
                                     [--models …] [--stages …] [--workers 0]

The rows are those of `make_deformed_digits.py`, made if they are not there: 2.4 million of 128 numbers.  They
play the part of the POSH paper's Table 3 (Places205): 1,000 queries, label MAP@1000 and Precision@1000, mean
and components of all rows, training on 5,000 rows and on all.  Every stage is a process of its own, whose
peak memory is measured; with `--workers`, it starts a local Dask cluster of so many processes with a limit of
1 GiB each.  What a former run has done is not done again.  Prints one JSON line per stage.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import bitfleet as bf  # noqa: E402
import numpy as np  # noqa: E402
from make_deformed_digits import FOLDER, make  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

METRICS = ("map@1000", "precision@1000")
SPARSE = {"n_bits": 1024, "n_active": 32}

#: model: (method, training rows, hyper-parameters)
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "lsh": ("lsh", "all", {"n_bits": 32, "n_components": 32}),
    "itq 5000": ("itq", "5000", {"n_bits": 32}),
    "itq all": ("itq", "all", {"n_bits": 32}),
    "posh 5000": ("posh", "5000", SPARSE),
    "posh all": ("posh", "all", SPARSE),
    "spherical_hash 5000": ("spherical_hash", "5000", SPARSE),
    "spherical_hash all": ("spherical_hash", "all", SPARSE | {"n_epochs": 10}),
}
REFINED = ("posh 5000", "posh all")
CLUSTERED = ("posh all",)


class Place:
    """Where data and results are, and on what is computed."""

    def __init__(self, data: Path, work: Path, workers: int) -> None:
        self.data, self.work, self.workers = data, work, workers

    @property
    def rows(self) -> Path:
        return self.data / "deformed.zarr"

    @property
    def queries(self) -> Path:
        return self.data / "deformed_queries.zarr"

    def path(self, model: str, kind: str) -> Path:
        return self.work / f"{model.replace(' ', '_')}.{kind}"

    def on(self, run: Callable[[Any], Any]) -> Any:
        """Call with a client of a local cluster, or None."""
        if not self.workers:
            return run(None)
        from distributed import Client, LocalCluster

        options = {"threads_per_worker": 1, "memory_limit": "1GiB", "dashboard_address": None}
        with LocalCluster(n_workers=self.workers, **options) as cluster, Client(cluster) as client:
            return run(client)


def train(place: Place, name: str) -> dict[str, Any]:
    """Train in a run directory; mean and components are those of all rows."""
    method, on, params = MODELS[name]
    data = place.rows if on == "all" else place.data / f"deformed_{on}.zarr"
    run = place.path(name, "run")
    model = place.on(
        lambda client: bf.train(
            data, run, method, scheduler=client, preprocess_on=place.rows if on != "all" else None, **params
        )
    )
    return {"digest": model.digest[:12]}


def encode(place: Place, name: str) -> dict[str, Any]:
    """Write the codes of all rows."""
    dest = place.path(name, "codes")
    shutil.rmtree(dest, ignore_errors=True)
    codes = place.on(lambda client: bf.encode(place.path(name, "run"), place.rows, dest, scheduler=client))
    return {"rows": codes.n_rows}


def evaluate(place: Place, name: str) -> dict[str, Any]:
    """Measure MAP@1000 and Precision@1000."""
    return _measured(place, place.path(name, "run"), name)


def refine(place: Place, name: str) -> dict[str, Any]:
    """Fit a decoder to all rows in one pass, and measure again with twice as many candidates."""
    decoding = place.path(name, "decoding")
    shutil.rmtree(decoding, ignore_errors=True)
    model = place.on(lambda client: bf.fit_decoder(place.path(name, "run"), place.rows, scheduler=client))
    return _measured(place, model.save(decoding), name, refine=2)


def cluster(place: Place, name: str) -> dict[str, Any]:
    """Search by the coarse quantizer: queries a second of CPU time, recall and MAP beside exact search."""
    codes, data, asked = bf.open_codes(place.path(name, "codes")), *_labels(place)
    probes = bf.load(place.path(name, "run")).encode(place.queries)
    values: dict[str, Any] = {}
    exact = bf.CodeIndex(codes).search(probes, 1000)
    values["map exhaustive"] = _map(data[exact[1]] == asked[:, None])
    begun = time.process_time()
    index = bf.CodeIndex(codes, n_clusters="auto")
    values |= {"n_clusters": index.n_clusters, "build seconds": round(time.process_time() - begun, 1)}
    for n_probe in (10, 20, 50):
        seconds = []
        for _ in range(6):
            begun = time.thread_time()
            found = index.search(probes, 1000, n_probe=n_probe)
            seconds.append(time.thread_time() - begun)
        # a result counts if it is no farther than the exhaustive search's last: ties may differ
        values[f"probe {n_probe}"] = {
            "queries_per_second": round(len(probes) / float(np.median(seconds[1:]))),
            "recall": round(float((found[0] <= exact[0][:, -1:]).mean()), 4),
            "map": _map(data[found[1]] == asked[:, None]),
        }
    return values


def _measured(place: Place, model: Path, name: str, **options: Any) -> dict[str, Any]:
    codes = place.path(name, "codes")
    found = place.on(
        lambda client: bf.evaluate(
            model, place.rows, place.queries, METRICS, codes=codes, scheduler=client, **options
        )
    )
    return {metric: round(100 * float(found["value"].sel(metric=metric)), 2) for metric in METRICS}


def _labels(place: Place) -> tuple[np.ndarray, np.ndarray]:
    return bf.open_dataset(place.rows).labels(), bf.open_dataset(place.queries).labels()


def _map(relevant: np.ndarray) -> float:
    precision = np.cumsum(relevant, axis=1) / np.arange(1, relevant.shape[1] + 1)
    average = (precision * relevant).sum(axis=1) / np.maximum(relevant.sum(axis=1), 1)
    return round(100 * float(average.mean()), 2)


STAGES: dict[str, tuple[Callable[[Place, str], dict[str, Any]], tuple[str, ...]]] = {
    "train": (train, tuple(MODELS)),
    "encode": (encode, tuple(MODELS)),
    "evaluate": (evaluate, tuple(MODELS)),
    "refine": (refine, REFINED),
    "cluster": (cluster, CLUSTERED),
}


def measured(stage: str, place: Place, name: str) -> dict[str, Any]:
    """Run a stage in this process; add seconds, CPU seconds and peak memory, workers' included."""
    begun = time.perf_counter()
    values = STAGES[stage][0](place, name)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return values | {
        "seconds": round(time.perf_counter() - begun, 1),
        "cpu_seconds": round(sum(u.ru_utime + u.ru_stime for u in used), 1),
        "peak_mib": round(used[0].ru_maxrss / 1024),
        "largest_worker_mib": round(used[1].ru_maxrss / 1024) if place.workers else 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=FOLDER)
    parser.add_argument("--work", type=Path, default=FOLDER / "large_scale")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS, metavar="MODEL")
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES)
    parser.add_argument("--workers", type=int, default=0, help="of a local Dask cluster; 0: this process")
    options = parser.parse_args()
    place = Place(options.data, options.work, options.workers)
    if not place.rows.exists():
        make(options.data)
    place.work.mkdir(parents=True, exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    for name in options.models:
        for stage in options.stages:
            if name not in STAGES[stage][1]:
                continue
            kept = place.path(name, f"{stage}.json")
            if not kept.exists():
                with ProcessPoolExecutor(1, spawn) as fresh:  # so that its peak is this stage's own
                    values = fresh.submit(measured, stage, place, name).result()
                values["workers"] = place.workers
                kept.write_text(json.dumps(values))
            line = {"benchmark": "large_scale", "model": name, "stage": stage}
            print(json.dumps(line | json.loads(kept.read_text())), flush=True)


if __name__ == "__main__":
    main()
