"""ITQ against ``faiss.ITQMatrix`` on the same projected MNIST data: which rotation fits the codes better.

    python benchmarks/itq_vs_faiss.py [--bits 32] [--seeds 3] [--data mnist.npz]

Both get the same principal components V.  The loss is the mean of (sign(u) − u)² over all entries of u = V R:
once of V as it comes from pixels in [0, 1], and once of V scaled to a mean square of 1, 2 − 2·mean|u|, which
does not depend on the unit of the data.  Prints one JSON line; exits 1 if a loss is not 20 % below Faiss's.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from bitfleet.pipeline.fitting import fit_in_memory
from bitfleet.tasks.methods.base import front_of
from bitfleet.tasks.registry import get
from mnist import add_data_option, load_mnist


def quantisation_loss(rotated: np.ndarray) -> float:
    """Return the mean of (sign(u) − u)² over the entries of projected and rotated rows."""
    return float(np.mean(np.square(np.where(rotated >= 0, 1.0, -1.0) - rotated)))


def losses(rotations: list[np.ndarray], rows: np.ndarray) -> list[float]:
    """Return the loss of the rows under each rotation."""
    return [quantisation_loss(rows @ rotation) for rotation in rotations]


def ours(vectors: np.ndarray, n_bits: int, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return principal components V (n, b) of the rows, our rotation R (b, b), the loss that training saw."""
    with tempfile.TemporaryDirectory() as scratch:
        model = fit_in_memory(vectors, get("itq")(n_bits=n_bits), seed, Path(scratch))
    projected = np.concatenate(list(front_of(model.state).tiles(vectors, np.float64)))
    return projected, model.state.arrays["weights"], float(model.state.scalars["loss"]) / n_bits


def faiss_rotation(projected: np.ndarray) -> np.ndarray:
    """Return the rotation (b, b) of ``faiss.ITQMatrix`` (its default 50 iterations), trained on V."""
    import faiss

    matrix = faiss.ITQMatrix(projected.shape[1])
    matrix.train(np.ascontiguousarray(projected, np.float32))
    return matrix.apply(np.eye(projected.shape[1], dtype=np.float32)).astype(np.float64)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bits", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    add_data_option(parser)
    options = parser.parse_args()
    vectors = load_mnist(options.data)[0]
    rotations, seen = [], []
    for seed in range(options.seeds):
        projected, rotation, loss = ours(vectors, options.bits, seed)
        rotations.append(rotation)
        seen.append(loss)
    others = [faiss_rotation(projected), _random(options.bits)]
    scaled = projected / np.sqrt(np.mean(np.square(projected)))
    result = {
        "benchmark": "itq_vs_faiss",
        "data": "mnist",
        "rows": len(vectors),
        "bits": options.bits,
        "reported_in_training": [round(loss, 4) for loss in seen],
        "as_projected": _compared(losses(rotations, projected), losses(others, projected)),
        "mean_square_1": _compared(losses(rotations, scaled), losses(others, scaled)),
    }
    print(json.dumps(result), flush=True)
    below = [result[rows]["at_least_20_percent_below"] for rows in ("as_projected", "mean_square_1")]
    return int(not all(below))


def _compared(ours: list[float], others: list[float]) -> dict[str, object]:
    return {
        "loss_bitfleet": [round(loss, 4) for loss in ours],
        "loss_faiss": round(others[0], 4),
        "loss_random_rotation": round(others[1], 4),
        "ratio": round(max(ours) / others[0], 4),
        "at_least_20_percent_below": max(ours) <= 0.8 * others[0],
    }


def _random(n_bits: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(0).normal(size=(n_bits, n_bits)))[0]


if __name__ == "__main__":
    sys.exit(main())
