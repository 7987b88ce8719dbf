"""Make millions of deformed MNIST digits, straight to Zarr: for `large_scale.py`.

    python benchmarks/make_deformed_digits.py [--rows 2400000] [--data mnist.npz] [--dest benchmarks/data]

Every row is one of 69,000 images, shifted by up to 2.5 pixels, rotated by up to 15 degrees and scaled by 0.85
to 1.15, then brought to 128 principal components (of 20,000 such rows).  Queries are the other 1,000,
deformed once.  Random numbers are addressed by block: a row does not depend on how many there are.
Writes `deformed.zarr`, `deformed_queries.zarr` and the first 5,000 rows, `deformed_5000.zarr`, with labels.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import bitfleet as bf
import numba
import numpy as np
from bitfleet.tasks.random import stream
from mnist import add_data_option, load_mnist

FOLDER = Path(__file__).resolve().parent / "data"
N_ROWS, N_QUERIES, N_TRAIN, WIDTH = 2_400_000, 1_000, 5_000, 128
_BLOCK, _FOR_COMPONENTS = 20_000, 20_000
_SIDE, _SHIFT, _ANGLE, _SCALE = 28, 2.5, np.pi / 12, 0.15


@dataclass(frozen=True)
class Digits:
    """The images that rows and queries are made of, and the coordinates they are brought to."""

    images: np.ndarray
    labels: np.ndarray
    queries: np.ndarray
    query_labels: np.ndarray

    @classmethod
    def load(cls, path: Path | None) -> Digits:
        """Read MNIST and set the images of the queries apart."""
        images, labels = load_mnist(path)
        order = stream(0, "deformed.split").permutation(len(images))
        asked, rest = order[:N_QUERIES], order[N_QUERIES:]
        return cls(images[rest], labels[rest], images[asked], labels[asked])

    def block(self, index: int, rows: int = _BLOCK) -> tuple[np.ndarray, np.ndarray]:
        """Return the first rows of a block, as images, and their labels."""
        rng = stream(0, "deformed.rows", block=index)
        chosen = rng.integers(0, len(self.images), _BLOCK)
        settings = _settings(rng, _BLOCK)[:rows]
        return deformed(self.images, chosen[:rows], settings), self.labels[chosen[:rows]]

    def asked(self) -> np.ndarray:
        """Return the queries, as images."""
        rng = stream(0, "deformed.queries")
        return deformed(self.queries, np.arange(len(self.queries)), _settings(rng, len(self.queries)))


def components(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (784,) and first principal components (784, 128), float32."""
    mean = images.mean(axis=0, dtype=np.float64)
    centred = images - mean
    vectors = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :WIDTH]
    return mean.astype(np.float32), np.ascontiguousarray(vectors, np.float32)


def deformed(images: np.ndarray, chosen: np.ndarray, settings: np.ndarray) -> np.ndarray:
    """Return chosen images (m, 784), each turned, scaled and shifted by its row of settings (m, 4)."""
    out = np.empty((len(chosen), _SIDE * _SIDE), np.float32)
    _deform(images.reshape(-1, _SIDE, _SIDE), chosen, settings, out.reshape(-1, _SIDE, _SIDE))
    return out


def _settings(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw, for every image, the matrix (a, b; -b, a) and the shift from its pixels to the original's."""
    angle, scale = rng.uniform(-_ANGLE, _ANGLE, n), 1 + rng.uniform(-_SCALE, _SCALE, n)
    shift = rng.uniform(-_SHIFT, _SHIFT, (n, 2))
    return np.column_stack([np.cos(angle) / scale, np.sin(angle) / scale, shift])


@numba.njit(cache=True)
def _deform(images, chosen, settings, out):  # type: ignore[no-untyped-def]
    """Bilinear interpolation; what is outside is black."""
    middle = (_SIDE - 1) / 2
    for i in range(len(chosen)):
        image = images[chosen[i]]
        a, b, down, right = settings[i]
        for row in range(_SIDE):
            for column in range(_SIDE):
                y, x = row - middle - down, column - middle - right
                v, u = a * y - b * x + middle, b * y + a * x + middle
                top, left = int(np.floor(v)), int(np.floor(u))
                p, q = v - top, u - left
                value = 0.0
                for r in range(2):
                    for c in range(2):
                        if 0 <= top + r < _SIDE and 0 <= left + c < _SIDE:
                            weight = (p if r else 1 - p) * (q if c else 1 - q)
                            value += weight * image[top + r, left + c]
                out[i, row, column] = value


def writer(path: Path) -> bf.DatasetWriter:
    """Return a writer of rows with labels; an older data set there is replaced."""
    shutil.rmtree(path, ignore_errors=True)
    return bf.DatasetWriter(path, n_features=WIDTH, dtype="float32", with_labels=True)


def make(dest: Path, n_rows: int = N_ROWS, data: Path | None = None) -> None:
    """Write the three data sets into ``dest``."""
    dest.mkdir(parents=True, exist_ok=True)
    digits = Digits.load(data)
    mean, matrix = components(digits.block(0, _FOR_COMPONENTS)[0])
    with writer(dest / "deformed_queries.zarr") as queries:
        queries.append((digits.asked() - mean) @ matrix, digits.query_labels)
    with writer(dest / "deformed.zarr") as everything, writer(dest / "deformed_5000.zarr") as some:
        for first in range(0, n_rows, _BLOCK):
            images, labels = digits.block(first // _BLOCK, min(_BLOCK, n_rows - first))
            rows = (images - mean) @ matrix
            everything.append(rows, labels)
            if not first:
                some.append(rows[:N_TRAIN], labels[:N_TRAIN])
            print(f"\r{first + len(rows):,} rows", end="", file=sys.stderr, flush=True)
    print(f"\n{everything.path}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--dest", type=Path, default=FOLDER)
    add_data_option(parser)
    options = parser.parse_args()
    make(options.dest, options.rows, options.data)


if __name__ == "__main__":
    main()
