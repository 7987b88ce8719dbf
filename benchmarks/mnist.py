"""Data for benchmarks with labels: 70,000 MNIST digits in [0, 1], their GIST, and that of CIFAR-10."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import argparse

ROOT = Path(__file__).resolve().parent.parent
PLACES = (ROOT.parent / "shared" / "data" / "mnist.npz", ROOT / "benchmarks" / "data" / "mnist.npz")
GIST_OF_MNIST = ROOT / "benchmarks" / "data" / "mnist_gist512.npz"


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Let the caller say where the data is."""
    parser.add_argument("--data", type=Path, help="mnist.npz, made by: make_digits.py --all")


def load_mnist(path: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors, float32 of shape (70000, 784), and labels, int64."""
    found = next((place for place in ([path] if path else PLACES) if place.is_file()), None)
    if found is None:
        raise SystemExit(
            f"expected {path or PLACES[-1]}; make it with: python benchmarks/make_digits.py --all --dest "
            f"{path or PLACES[-1].relative_to(ROOT)}"
        )
    with np.load(found) as file:
        return (file["X"] / 255.0).astype(np.float32), file["y"].astype(np.int64)


def load_gist(path: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Return GIST descriptors of CIFAR-10, float32 of shape (60000, 512), and labels, int64."""
    found = path or PLACES[0].with_name("cifar10_gist512.npz")
    if not found.is_file():
        raise SystemExit(f"expected {found} with X uint8 (x = (X / 255)² · scale_max), y and scale_max")
    with np.load(found) as file:
        return ((file["X"] / 255.0) ** 2 * file["scale_max"]).astype(np.float32), file["y"].astype(np.int64)


def load_mnist_gist(path: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Return GIST descriptors of the digits, float32 of shape (70000, 512), and labels, int64."""
    found = path or GIST_OF_MNIST
    if not found.is_file():
        raise SystemExit(f"expected {found}; make it with: python benchmarks/make_gist.py")
    with np.load(found) as file:
        return file["X"].astype(np.float32), file["y"].astype(np.int64)
