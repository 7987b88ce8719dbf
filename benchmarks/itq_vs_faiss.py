"""ITQ against ``faiss.ITQMatrix`` on the same projected MNIST data: which rotation fits the codes better.

    python benchmarks/itq_vs_faiss.py [--bits 32] [--seeds 3] [--data mnist.npz]

Both get the same principal components V.  The loss is the mean of (sign(u) − u)² over all entries of u = V R,
V scaled to a mean square of 1: 2 − 2·mean|u|, which does not depend on the scale of the data.  Prints one
JSON line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from bitfleet.pipeline.fitting import fit_in_memory
from bitfleet.tasks.methods.base import front_of
from bitfleet.tasks.registry import get
from mnist import add_data_option, load_mnist


def quantisation_loss(rotated: np.ndarray) -> float:
    """Return 2 − 2·mean|u| of projected and rotated rows, scaled to a mean square of 1."""
    unit = rotated / np.sqrt(np.mean(np.square(rotated)))
    return float(np.mean(np.square(np.where(unit >= 0, 1.0, -1.0) - unit)))


def ours(vectors: np.ndarray, n_bits: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return principal components V (n, b) of the rows and our rotation R (b, b)."""
    with tempfile.TemporaryDirectory() as scratch:
        model = fit_in_memory(vectors, get("itq")(n_bits=n_bits), seed, Path(scratch))
    projected = np.concatenate(list(front_of(model.state).tiles(vectors, np.float64)))
    return projected, model.state.arrays["weights"]


def faiss_rotated(projected: np.ndarray) -> np.ndarray:
    """Return V rotated by ``faiss.ITQMatrix`` (its default 50 iterations), trained on V."""
    import faiss

    rows = np.ascontiguousarray(projected, np.float32)
    matrix = faiss.ITQMatrix(rows.shape[1])
    matrix.train(rows)
    return matrix.apply(rows).astype(np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bits", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    add_data_option(parser)
    options = parser.parse_args()
    vectors = load_mnist(options.data)[0]
    losses = []
    for seed in range(options.seeds):
        projected, rotation = ours(vectors, options.bits, seed)
        losses.append(quantisation_loss(projected @ rotation))
    theirs = quantisation_loss(faiss_rotated(projected))
    result = {
        "benchmark": "itq_vs_faiss",
        "data": "mnist",
        "rows": len(vectors),
        "bits": options.bits,
        "loss_bitfleet": [round(loss, 4) for loss in losses],
        "loss_faiss": round(theirs, 4),
        "loss_random_rotation": round(quantisation_loss(projected @ _random(options.bits)), 4),
        "ratio": round(max(losses) / theirs, 4),
        "at_least_20_percent_below": max(losses) <= 0.8 * theirs,
    }
    print(json.dumps(result), flush=True)


def _random(n_bits: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(0).normal(size=(n_bits, n_bits)))[0]


if __name__ == "__main__":
    main()
