"""Online SSBC: how well codes made on the way agree with the last ones, and what that costs in search.

    python benchmarks/online.py [--streams iid class rotation] [--anchors all first] [--seeds 3 4 5]
    python benchmarks/online.py --memory 10000000       # resident memory over an endless stream

20,000 MNIST digits stream by: in random order, sorted by class, or slowly turned from -45 to 45 degrees. The
1,000 anchors are drawn from other digits of all kinds (``all``) or from the first 4,096 of the stream
(``first``), as `bitfleet stream` does; the 300 queries are other digits, of all kinds (and turned at random),
coded by the last projection. Compared are the rule of `OnlineCoder` (aligned, frozen, burn-in coded once more
or not) with directions as they come (raw) and with their signs alone aligned. Limits were set on seeds from
100 on.

Prints one JSON line per result.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from bitfleet.tasks.affinity import Affinities
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.ssbc_sums import describe
from bitfleet.tasks.online import OnlineCoder
from mnist import load_mnist
from scipy.ndimage import rotate
from threadpoolctl import threadpool_limits

N_BITS, SKETCH, N_ANCHORS, N_QUERIES, N_FIRST = 64, 128, 1000, 300, 4096


class Signs(OnlineCoder):
    """Follows for ever, with each direction's sign aligned and nothing else."""

    def _follow(self) -> None:
        vectors, _ = self._directions()
        turned = np.sum(vectors * self.projection, axis=0) < 0
        self._set(vectors * np.where(turned, -1.0, 1.0))


class Raw(OnlineCoder):
    """Follows for ever, directions as they come."""

    def _follow(self) -> None:
        self._set(self._directions()[0])


class Followed(OnlineCoder):
    """Follows for ever, aligned, and is never frozen."""

    def _follow(self) -> None:
        super()._follow()
        self.n_frozen = -1


RULES = {"aligned and frozen": OnlineCoder, "aligned": Followed, "signs": Signs, "raw": Raw}


def turned(rows: np.ndarray, angles: np.ndarray) -> np.ndarray:
    images = rows.reshape(-1, 28, 28)
    return np.stack(
        [
            rotate(image, angle, reshape=False, order=1).ravel()
            for image, angle in zip(images, angles, strict=True)
        ]
    )


def draw(
    X: np.ndarray, y: np.ndarray, stream: str, n: int, seed: int, anchors_from: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows in the order of the stream, queries, and anchors."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    rows, queries, anchors = np.split(order[: n + N_QUERIES + N_ANCHORS], [n, n + N_QUERIES])
    if stream == "class":
        rows = rows[np.argsort(y[rows], kind="stable")]
    found = X[rows], X[queries], X[anchors]
    if stream == "rotation":
        spread = [rng.uniform(-45, 45, len(part)) for part in found[1:]]
        angles = [np.linspace(-45, 45, n), *spread]
        found = tuple(turned(part, a) for part, a in zip(found, angles, strict=True))
    if anchors_from == "first":
        found = found[0], found[1], found[0][np.sort(rng.choice(N_FIRST, N_ANCHORS, replace=False))]
    return found


def mean_precision(codes: np.ndarray, queries: np.ndarray, nearest: np.ndarray) -> float:
    total = 0.0
    for query, true in zip(queries, nearest, strict=True):
        distance = np.bitwise_count(codes ^ query).sum(axis=1)
        ranks = np.empty(len(codes), np.int64)
        ranks[np.argsort(distance, kind="stable")] = np.arange(1, len(codes) + 1)
        places = np.sort(ranks[true])
        total += float((np.arange(1, len(true) + 1) / places).mean())
    return total / len(queries)


def agreement(online: np.ndarray, final: np.ndarray, n: int) -> dict[str, float]:
    same = (unpack_bits(online, N_BITS) == unpack_bits(final, N_BITS)).mean(axis=1)
    return {
        f"{share:.0%}": round(float(same[int(share * n) : int(share * n) + 512].mean()), 4)
        for share in (0.01, 0.05, 0.2, 0.5)
    }


def compare(
    X: np.ndarray, y: np.ndarray, stream: str, anchors_from: str, n: int, seed: int, rules: list[str]
) -> None:
    rows, queries, anchors = draw(X, y, stream, n, seed, anchors_from)
    squares = np.square(rows, dtype=np.float64).sum(axis=1)
    nearest = np.argsort(squares - 2 * queries @ rows.T, axis=1, kind="stable")[:, :10]
    arrays, scalars = describe(anchors, np.ones(len(anchors), bool), "auto", center=True)
    A = Affinities(arrays["origin"], arrays["anchors"], scalars["sigma"], arrays["affinity_mean"])  # type: ignore[arg-type]
    for name in rules:
        rule = RULES[name]
        coder = rule(A, N_BITS, SKETCH)
        codes, _ = coder.encode_next(rows)
        final, coded = coder.encoder.encode(rows), coder.encoder.encode(queries)
        whole = mean_precision(final, coded, nearest)
        mixed = mean_precision(codes, coded, nearest)
        result: dict[str, Any] = {
            "benchmark": "online",
            "stream": stream,
            "anchors": anchors_from,
            "rule": name,
            "seed": seed,
            "n_rows": n,
            "agreement": agreement(codes, final, n),
            "map_10nn_all_final": round(whole, 4),
            "map_10nn_mixed": round(mixed, 4),
            "loss": round(whole - mixed, 4),
        }
        if rule is OnlineCoder:
            result |= {"frozen_after": coder.n_frozen, "monitor": vars(coder.monitor)}
            codes[: max(coder.n_frozen, 0)] = final[: max(coder.n_frozen, 0)]
            result["loss_after_coding_the_burn_in_again"] = round(
                whole - mean_precision(codes, coded, nearest), 4
            )
            coder.rebase()
            again, coded = coder.encoder.encode(rows), coder.encoder.encode(queries)
            result["map_10nn_after_a_rebase"] = round(mean_precision(again, coded, nearest), 4)
        print(json.dumps(result, default=float), flush=True)


def memory(n: int) -> None:
    """Stream rows of a generator and report the memory of the process, now and at its highest."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, 16)).astype(np.float32) * 2

    def some(size: int) -> np.ndarray:
        return (centres[rng.integers(200, size=size)] + rng.normal(size=(size, 16))).astype(np.float32)

    anchors = some(200)
    arrays, scalars = describe(anchors, np.ones(200, bool), "auto", center=True)
    A = Affinities(arrays["origin"], arrays["anchors"], scalars["sigma"], arrays["affinity_mean"])  # type: ignore[arg-type]
    coder, done, report = OnlineCoder(A, 16, 32), 0, 10_000
    page = resource.getpagesize()
    begun = time.perf_counter()
    while done < n:
        coder.encode_next(some(5000))
        done += 5000
        if done >= report or done >= n:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * page
            result = {
                "benchmark": "online",
                "what": "memory",
                "n_rows": done,
                "resident_mib": round(resident / 2**20, 1),
                "most_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
            print(json.dumps({**result, "seconds": round(time.perf_counter() - begun)}), flush=True)
            report *= 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", nargs="+", default=["iid", "class", "rotation"])
    parser.add_argument("--anchors", nargs="+", choices=["all", "first"], default=["all", "first"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--memory", type=int, help="rows to stream; nothing else is done")
    options = parser.parse_args()
    with threadpool_limits(1):
        if options.memory:
            memory(options.memory)
            return
        X, y = load_mnist(None)
        cells = itertools.product(options.streams, options.anchors, options.seeds)
        for stream, anchors_from, seed in cells:
            compare(X, y, stream, anchors_from, options.rows, seed, options.rules)


if __name__ == "__main__":
    main()
