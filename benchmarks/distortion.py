"""Certified distortion over all pairs: throughput against the full matrix product, 60,000 and 240,000 rows.

    python benchmarks/distortion.py [--parts rates digits trained rotated neighbors] [--keep FOLDER]

MNIST on the unit sphere, codes of 30 bits, of ITQ where nothing else is said.  Times are CPU time of one
thread, or of all processes of a cluster; the product is NumPy's, float32, of all 784 coordinates, in tiles,
measured in turn with the passes.  Part "trained" compares methods by their certified distortions of the
60,000 training and the 10,000 test images, the best of several seeds each; with ``--keep`` it goes on where
it was stopped.  Prints one JSON line per result.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import bitfleet as bf  # noqa: E402
import numpy as np  # noqa: E402
from bitfleet.cluster.launch import connect  # noqa: E402
from bitfleet.pipeline.distortion import violators  # noqa: E402
from mnist import add_data_option  # noqa: E402
from nibh_data import mnist_digits, on_sphere, rotated_mean, write_rotated  # noqa: E402

PARTS = ("rates", "digits", "trained", "rotated", "neighbors")
METRICS = ("overlap_map@10", "overlap_map@50", "overlap_map@500", "kendall@50", "kendall@500", "gap@50")
N_BITS, TILE, RUNS = 30, 256, 3
WARM = 2000
SEEDS = 5
COLUMN_GENERATION: dict[str, Any] = {"n_warm": 400, "n_iter": 30, "threshold": 0.8}
#: What is compared in part "trained".
TRAINED: dict[str, tuple[Any, dict[str, Any]]] = {
    "itq": (bf.ITQ, {}),
    "nibh": (bf.NIBH, {}),
    "nibh_cg": (bf.NIBHCG, COLUMN_GENERATION),
    "nibh_cg_polish": (bf.NIBHCG, {**COLUMN_GENERATION, "n_iter": 2, "n_polish": 9, "n_moves": 2000}),
}


def report(part: str, **values: Any) -> None:
    rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in values.items()}
    print(json.dumps({"benchmark": "distortion", "part": part, **rounded}), flush=True)


def product_rate(rows: np.ndarray) -> float:
    """Return the pairs a second of the float32 product of all coordinates."""
    some = rows[: 16 * TILE]
    begin = time.thread_time()
    for a in range(0, len(some), TILE):
        for b in range(0, len(some), TILE):
            np.matmul(some[a : a + TILE], some[b : b + TILE].T)
    return len(some) ** 2 / (time.thread_time() - begin)


def rates(rows: np.ndarray, codes: np.ndarray, found: bf.Distortion) -> None:
    """Violators of several distortions over all pairs, each beside the full product."""
    n_pairs = found.n_pairs
    violators(codes[:WARM], rows[:WARM], found.scale, found.delta, n_bits=N_BITS)
    for delta in (found.delta, 1.0, 0.85):
        seconds, products, listed = [], [], 0
        for _ in range(RUNS):
            products.append(product_rate(rows))
            begin = time.thread_time()
            listed = len(violators(codes, rows, found.scale, delta, n_bits=N_BITS)["bits"])
            seconds.append(time.thread_time() - begin)
        rate, product = n_pairs / np.median(seconds), float(np.median(products))
        report(
            "rates", rows=len(rows), delta=delta, violators=listed, seconds=float(np.median(seconds)),
            million_pairs_a_second=rate / 1e6, product=product / 1e6, times_faster=rate / product,
        )  # fmt: skip


def digits(rows: np.ndarray, codes: np.ndarray) -> bf.Distortion:
    """All three exact distortions of 60,000 rows, by one pass in this process."""
    bf.max_distortion(codes[:WARM], rows[:WARM], n_bits=N_BITS)
    begin = time.thread_time()
    found = bf.max_distortion(codes, rows, n_bits=N_BITS)
    show("digits", found, time.thread_time() - begin)
    return found


def trained(train: np.ndarray, test: np.ndarray, folder: Path, labels: list[str], seeds: int) -> None:
    """The certified distortions of each method and seed, in cells that are kept; then each method's best."""
    (folder / "trained").mkdir(exist_ok=True)
    for label in labels:
        kept = []
        for seed in range(seeds):
            cell = folder / "trained" / f"{label}-{seed}.json"
            if not cell.exists():
                written = cell.with_suffix(".part")
                written.write_text(json.dumps(_trained_cell(label, seed, train, test, folder)))
                written.rename(cell)
            kept.append(json.loads(cell.read_text()))
        best = min(kept, key=lambda result: result["delta"])
        spread = {
            f"{name}_{how}": float(getattr(np, how)([result[name] for result in kept]))
            for name in ("delta", "delta_test", "cpu_seconds")
            for how in ("mean", "std")
        }
        report("trained", method=label, seeds=seeds, **best, **spread)


def _trained_cell(label: str, seed: int, train: np.ndarray, test: np.ndarray, folder: Path) -> dict[str, Any]:
    estimator, parameters = TRAINED[label]
    begin = time.process_time()
    made = estimator(n_bits=N_BITS, random_state=seed, **parameters)
    made.fit(train, checkpoint=folder / "trained" / f"{label}-{seed}")
    seconds = time.process_time() - begin
    deltas = (bf.max_distortion(made.encode(rows), rows, n_bits=N_BITS).delta for rows in (train, test))
    return dict(zip(("delta", "delta_test"), deltas, strict=True)) | {"seed": seed, "cpu_seconds": seconds}


def rotated(images: np.ndarray, train: np.ndarray, folder: Path, n_workers: int) -> None:
    """The same of 240,000 rows in files, on a cluster whose workers may use 1.5 GB each.

    What attempts that were stopped have taken is counted too.
    """
    data, stored = made(images, train, folder)
    attempts = folder / "rotated-attempts.jsonl"
    with connect("local", n_workers=n_workers, memory_limit="1.5 GB") as client:
        before, mine = client.run(time.process_time), time.process_time()
        begin = time.perf_counter()
        found = None
        try:
            found = bf.max_distortion(stored, data, scheduler=client, checkpoint=folder / "pass")
        finally:
            after = client.run(time.process_time)
            taken = {
                "worker_seconds": sum(after[name] - before[name] for name in before),
                "driver_seconds": time.process_time() - mine,
                "wall": time.perf_counter() - begin,
                "peak_worker_mb": max(client.run(_peak).values()) / 1e6,
            }
            with attempts.open("a") as file:
                file.write(json.dumps(taken) + "\n")
    told = [json.loads(line) for line in attempts.read_text().splitlines()]
    total = {name: float(sum(one[name] for one in told)) for name in taken}
    total["peak_worker_mb"] = max(one["peak_worker_mb"] for one in told)
    show(
        "rotated", found, total["worker_seconds"] + total["driver_seconds"], **total, workers=n_workers,
        attempts=len(told), commits=len([*(folder / "pass" / "manifests").glob("*.json")]),
    )  # fmt: skip


def neighbors(images: np.ndarray, test: np.ndarray, train: np.ndarray, folder: Path) -> None:
    """Metrics of true neighbours of 10,000 queries among the 240,000 rows."""
    data, stored = made(images, train, folder)
    queries, _ = on_sphere(test, rotated_mean(images))
    begin = time.process_time()
    found = bf.evaluate(folder / "itq.zarr", data, queries, METRICS, codes=stored)
    report(
        "neighbors", rows=data.n_rows, queries=len(queries), cpu_seconds=time.process_time() - begin,
        peak_mb=_peak() / 1e6, **dict(zip(METRICS, found.value.values.tolist(), strict=True)),
    )  # fmt: skip


def made(images: np.ndarray, train: np.ndarray, folder: Path) -> tuple[bf.Dataset, bf.Codes]:
    """Return the images with their rotations and the codes of a model trained on the images."""
    path, codes = folder / "rotated.zarr", folder / "rotated-codes.zarr"
    data = bf.open_dataset(path) if path.exists() else write_rotated(images, path)
    if not codes.exists():
        bf.ITQ(n_bits=N_BITS, random_state=0).fit(train).save(folder / "itq.zarr")
        bf.encode(bf.load(folder / "itq.zarr"), data, codes)
    return data, bf.open_codes(codes)


def show(part: str, found: bf.Distortion, seconds: float, **more: Any) -> None:
    deltas = {f"delta_{fit}": found.refit(fit).delta for fit in ("scale", "affine", "monotone")}
    report(
        part, rows=found.n_rows, n_pairs=found.n_pairs, cpu_seconds=seconds, scale=found.scale, **deltas,
        constant_T=found.constant, critical_bits=found.critical_bits, lower_bound=found.bound,
        million_pairs_a_second=found.n_pairs / seconds / 1e6, **more,
    )  # fmt: skip


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_option(parser)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--keep", type=Path, help="folder for what is made, to find it again")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--methods", nargs="+", choices=TRAINED, default=list(TRAINED), help='of "trained"')
    parser.add_argument("--seeds", type=int, default=SEEDS, help='of "trained"')
    given = parser.parse_args()
    images, test = mnist_digits(given.data)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows, mean = on_sphere(images)
        if {"rates", "digits"} & set(given.parts):
            codes = bf.ITQ(n_bits=N_BITS, random_state=0).fit(rows).encode(rows)
            found = digits(rows, codes)
            if "rates" in given.parts:
                rates(rows, codes, found)
        if "trained" in given.parts:
            trained(rows, on_sphere(test, mean)[0], folder, given.methods, given.seeds)
        if "rotated" in given.parts:
            rotated(images, rows, folder, given.workers)
        if "neighbors" in given.parts:
            neighbors(images, test, rows, folder)


if __name__ == "__main__":
    main()
