"""Each kernel beside its own physical limit, measured in the same run: one JSON line per kernel.

    python benchmarks/kernels.py [--rounds 5] [--only NAME …]

One thread.  A limit is what the machine needs at least for the part of the work that cannot be avoided,
by rates that are measured beside it: matrix products (float32 and float64), bytes copied in memory,
additions, logical operations, bits counted and exponentials in the first cache.  Kernel and limit are
timed in turn, and the best of the rounds counts; ``ratio`` is the limit's share of the kernel's time, 1
where nothing is left to gain.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402
from bitfleet.pipeline.fitting import fit_in_memory  # noqa: E402
from bitfleet.tasks.affinity import Affinities  # noqa: E402
from bitfleet.tasks.kernels._numba import engine  # noqa: E402
from bitfleet.tasks.kernels.accumulate import add_rows  # noqa: E402
from bitfleet.tasks.kernels.fast import sure_signs  # noqa: E402
from bitfleet.tasks.kernels.hamming import as_words, nearest_codes  # noqa: E402
from bitfleet.tasks.kernels.pack import unpack_bits  # noqa: E402
from bitfleet.tasks.kernels.screened_rows import hamming_matrix, make_basis, screened  # noqa: E402
from bitfleet.tasks.kernels.screening import limits_in_units, suspects  # noqa: E402
from bitfleet.tasks.kernels.vertical import make_columns, search_columns  # noqa: E402
from bitfleet.tasks.kernels.wta import top_active  # noqa: E402
from bitfleet.tasks.registry import get  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

D = 128  # features throughout
IN_CACHE = 2048  # numbers of eight bytes: half of a first cache


@dataclass
class Kernel:
    """Something to time, and how much of which rate it needs at least."""

    run: Callable[[], Any]
    needs: dict[str, float]
    shape: str


def rates() -> dict[str, tuple[Callable[[], Any], float]]:
    """Return for each rate something to time and how many units it does."""
    rng = np.random.default_rng(0)
    found: dict[str, tuple[Callable[[], Any], float]] = {}
    for name in ("float32", "float64"):
        a, out = rng.random((1024, 1024)).astype(name), np.empty((1024, 1024), name)
        found[f"{name} product flop"] = (lambda a=a, out=out: np.matmul(a, a, out=out)), 2.0 * 1024**3
    source, target = np.ones(2**24), np.zeros(2**24)
    found["bytes copied"] = (lambda: np.copyto(target, source)), 2.0 * source.nbytes

    def repeated(call: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(2000):
                call()

        return run

    x, y = rng.random(IN_CACHE), rng.random(IN_CACHE)
    words, counts = rng.integers(0, 2**63, IN_CACHE).astype(np.uint64), np.empty(IN_CACHE, np.uint8)
    other, low = words[::-1].copy(), -rng.random(2 * IN_CACHE).astype(np.float32)
    exps = np.empty_like(low)
    found["float64 additions"] = repeated(lambda: np.add(x, y, out=y)), 2000.0 * IN_CACHE
    found["words and-ed"] = repeated(lambda: np.bitwise_and(words, other, out=other)), 2000.0 * IN_CACHE
    found["words bit-counted"] = repeated(lambda: np.bitwise_count(words, out=counts)), 2000.0 * IN_CACHE
    found["float32 exponentials"] = repeated(lambda: np.exp(low, out=exps)), 2000.0 * 2 * IN_CACHE
    return found


def winner_take_all() -> Kernel:
    rng = np.random.default_rng(1)
    m, b, n_active = 8192, 1024, 32
    scores = rng.standard_normal((m, b)).astype(np.float32)
    vectors, total = rng.standard_normal((m, D)).astype(np.float32), np.zeros((b, D))
    return Kernel(
        lambda: add_rows(total, top_active(scores, n_active), vectors),
        {"bytes copied": 4.0 * m * b, "float64 additions": float(m * n_active * D)},
        f"{m} rows, {n_active} of {b} bits, {D} features",
    )


def sign_accumulate() -> Kernel:
    rng = np.random.default_rng(2)
    m, b = 2**16, 64
    rows = rng.standard_normal((m, D)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        model = fit_in_memory(rows[:4096], get("itq")(n_bits=b, n_iter=1), 0, Path(folder))
    sums = model.method.accumulator(model.state)
    projected = rng.standard_normal((m, b))
    return Kernel(
        lambda: sums.add(sums.init(), projected),
        {"float64 product flop": 4.0 * m * b * b},
        f"{m} rows, {b} bits: rotate, sign, correlate (ITQ)",
    )


def pack() -> Kernel:
    rng = np.random.default_rng(3)
    m, b = 2**16, 256
    scores = rng.standard_normal((m, b)).astype(np.float32)
    packed, lengths, limits = np.empty((m, b // 8), np.uint8), np.ones(m), np.full(b, 1e-6)
    return Kernel(
        lambda: sure_signs(scores, lengths, limits, packed),
        {"bytes copied": m * b * (4 + 1 / 8)},
        f"{m} rows of {b} float32 scores, with doubts listed",
    )


def unpack() -> Kernel:
    m, b = 2**18, 256
    packed = np.random.default_rng(4).integers(0, 256, (m, b // 8)).astype(np.uint8)
    return Kernel(
        lambda: unpack_bits(packed, b), {"bytes copied": m * b * (1 + 1 / 8)}, f"{m} codes of {b} bits"
    )


def bit_sliced_scan() -> Kernel:
    rng = np.random.default_rng(5)
    n, b, n_active, q = 2**19, 1024, 32, 64
    active = np.sort(rng.random((n, b), dtype=np.float32).argpartition(n_active)[:, :n_active], axis=1)
    columns = make_columns(active, b)
    queries = active[rng.choice(n, q)]
    return Kernel(
        lambda: search_columns(columns, queries, 100),
        {"words and-ed": q * n_active * n / 64},
        f"{q} queries, {n} codes, {n_active} of {b} bits, k = 100; one operation a word",
    )


def hamming_top_k() -> Kernel:
    rng = np.random.default_rng(6)
    n, w, q = 2**19, 4, 64
    codes = rng.integers(0, 2**63, (n, w)).astype(np.uint64)
    queries = as_words(codes[:q].view(np.uint8))
    return Kernel(
        lambda: nearest_codes(queries, codes, 100),
        {"words bit-counted": float(q * n * w)},
        f"{q} queries, {n} codes of {64 * w} bits, k = 100",
    )


def secant_screening() -> Kernel:
    rng = np.random.default_rng(7)
    m, b = 6144, 32
    rows = rng.standard_normal((m, D)) * np.arange(1, D + 1) ** -0.7
    packed = np.packbits(rows[:, :b] > 0, axis=1, bitorder="little")
    basis = make_basis(rows[:2000])
    side = screened(rows, packed, basis)
    hamming = hamming_matrix(side.words, side.words[:, :500])
    squares = np.square(rows[:, None, :8] - rows[None, :500, :8]).sum(axis=2)
    squares += np.square(rows[:, 8:]).sum(axis=1)[:, None] + np.square(rows[:500, 8:]).sum(axis=1)
    squares -= 2 * rows[:, 8:] @ rows[:500, 8:].T
    seen = [squares[hamming == h] for h in range(b + 1)]
    low = np.array([s.min() * 0.98 if s.size else np.inf for s in seen])
    high = np.array([s.max() * 1.02 if s.size else -1.0 for s in seen])
    low, high = limits_in_units(low, high, basis.unit)
    counts = np.bincount(hamming.ravel(), minlength=b + 1)
    k = int(basis.levels[0]) + 2

    def run() -> None:
        for _ in suspects(side, side, low.copy(), high.copy(), counts, basis.levels, same=True):
            pass

    return Kernel(
        run, {"float32 product flop": float(m * m * k)}, f"all pairs of {m} rows, {k - 2} coordinates first"
    )


def affinity_exp() -> Kernel:
    rng = np.random.default_rng(8)
    m, n_anchors = 2**14, 512
    rows = rng.standard_normal((m, D)).astype(np.float32)
    affinities = Affinities(rows.mean(axis=0, dtype=float), rows[:n_anchors], 12.0, np.full(n_anchors, 0.2))
    return Kernel(
        lambda: [None for _ in affinities.tiles(rows, np.float32)],
        {"float32 product flop": 2.0 * m * n_anchors * D, "float32 exponentials": float(m * n_anchors)},
        f"{m} rows, {n_anchors} anchors, {D} features",
    )


KERNELS: dict[str, Callable[[], Kernel]] = {
    "winner-take-all + sparse accumulate": winner_take_all,
    "sign + accumulate": sign_accumulate,
    "sign + pack": pack,
    "unpack": unpack,
    "bit-sliced scan": bit_sliced_scan,
    "Hamming top-k": hamming_top_k,
    "secant screening": secant_screening,
    "affinity + exp": affinity_exp,
}


def seconds_of(call: Callable[[], Any]) -> float:
    """Return this thread's processor seconds, so that other processes count less."""
    begun = time.thread_time()
    call()
    return time.thread_time() - begun


def measure(name: str, limits: dict[str, tuple[Callable[[], Any], float]], rounds: int) -> dict[str, Any]:
    """Time a kernel and its limits in turn."""
    kernel = KERNELS[name]()
    kernel.run()  # compiled and warm
    times, per_unit = [], {unit: [] for unit in kernel.needs}
    for _ in range(rounds):
        for unit, best in per_unit.items():
            call, n_units = limits[unit]
            best.append(seconds_of(call) / n_units)
        times.append(seconds_of(kernel.run))
    limit = sum(n * min(per_unit[unit]) for unit, n in kernel.needs.items())
    return {
        "benchmark": "kernels",
        "kernel": name,
        "case": kernel.shape,
        "limit": " + ".join(kernel.needs),
        "ratio": round(limit / min(times), 3),
        "seconds": round(min(times), 5),
        "limit_seconds": round(limit, 5),
        "rates_per_second": {unit: float(f"{1 / min(best):.3g}") for unit, best in per_unit.items()},
        "load": round(os.getloadavg()[0], 1),
        "threads": 1,
        "engine": engine(),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=list(KERNELS), choices=list(KERNELS))
    options = parser.parse_args()
    limits = rates()
    for name in options.only:
        print(json.dumps(measure(name, limits, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
