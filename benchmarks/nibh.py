"""Near-isometric hashing of 100 points: how much less it distorts than ITQ, both chosen from a hundred.

    python benchmarks/nibh.py [--seeds 5]

Points of MNIST and of the paper's Random, fresh draws, centred and on the unit sphere: δ over all their pairs
of ITQ (the best of 100 rotations), of NIBH with both solvers (the best of its 100 candidates) and of NIBH-CG,
which solves for a quarter of the pairs at most.  Prints one JSON line per result; `nibh_tables.py` has all
methods and more rows.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from bitfleet.tasks.random import stream
from nibh_cells import FRESH, N_FEW
from nibh_data import mnist_digits, random_rows
from nibh_fits import fit
from nibh_judge import listed_delta
from scipy.spatial.distance import pdist
from threadpoolctl import threadpool_limits


def small_rows(what: str, seed: int) -> np.ndarray:
    """Return 100 points on the sphere, float64: exact distances, exact codes."""
    if what == "random":
        rows = random_rows(N_FEW, seed).astype(np.float64)
    else:
        images = mnist_digits()[0]
        chosen = stream(seed, "nibh.small").choice(len(images), N_FEW, replace=False)
        rows = images[np.sort(chosen)].astype(np.float64)
    rows -= rows.mean(axis=0)
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def small(what: str, n_bits: int, seeds: int) -> None:
    """Print δ of all methods on one kind of data at one length."""
    found: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    most_active = 0
    for seed in range(FRESH, FRESH + seeds):
        rows = small_rows(what, seed)
        distances = pdist(rows)
        rotations = [
            listed_delta(fit("itq", rows, 1000 * seed + k, n_bits=n_bits).bits(rows), distances)
            for k in range(100)
        ]
        found.setdefault("itq_mean", []).append(float(np.mean(rotations)))
        found.setdefault("itq_best_of_100", []).append(min(rotations))
        for label, name, params in (
            ("nibh", "nibh", {}),
            ("nibh_admm", "nibh", {"solver": "admm"}),
            ("nibh_cg", "nibh_cg", {}),
        ):
            fitted = fit(name, rows, seed, n_bits=n_bits, **params)
            found.setdefault(label, []).append(listed_delta(fitted.bits(rows), distances))
            seconds.setdefault(label, []).append(fitted.seconds)
            most_active = max(most_active, int(fitted.state.scalars.get("most_active", 0)))
    means = {label: float(np.mean(values)) for label, values in found.items()}
    result = {
        "data": what, "n_bits": n_bits, "seeds": seeds,
        "delta": {k: round(v, 4) for k, v in means.items()},
        "sd": {k: round(float(np.std(v, ddof=1)), 4) for k, v in found.items()} if seeds > 1 else None,
        "below_itq_best": {
            k: round(1 - means[k] / means["itq_best_of_100"], 4) for k in ("nibh", "nibh_admm", "nibh_cg")
        },
        "cg_over_nibh": round(means["nibh_cg"] / means["nibh"] - 1, 4),
        "cg_most_active_share": round(most_active / (N_FEW * (N_FEW - 1) / 2), 4),
        "cpu_seconds": {k: round(float(np.median(v)), 2) for k, v in seconds.items()},
    }  # fmt: skip
    print(json.dumps({"benchmark": "nibh", **result}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="draws")
    seeds = parser.parse_args().seeds
    with threadpool_limits(1):
        for what in ("mnist", "random"):
            for n_bits in (15, 30):
                small(what, n_bits, seeds)


if __name__ == "__main__":
    main()
