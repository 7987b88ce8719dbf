"""A million codes for `search.py`: MNIST digits shifted by up to two pixels, encoded in several ways.

Rows are drawn from 69,000 of the images, queries from the other 1,000.  What has been made is kept in a
folder and found again there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from bitfleet.pipeline.fitting import fit_in_memory
from bitfleet.tasks.encode import ProjectionEncoder
from bitfleet.tasks.random import stream
from bitfleet.tasks.registry import get
from mnist import load_mnist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bitfleet.tasks.protocols import Encoder

N_ROWS, N_QUERIES, N_TRAIN = 1_000_000, 1_000, 5_000
_BLOCK = 20_000
_SIDE, _SHIFT = 28, 2


class ShiftedDigits:
    """Images of the database and of the queries, block by block."""

    def __init__(self, data: Path | None, n_rows: int = N_ROWS) -> None:
        images = load_mnist(data)[0]
        order = stream(0, "benchmark.digits").permutation(len(images))
        self._images, self._queries = images[order[N_QUERIES:]], images[order[:N_QUERIES]]
        self.n_rows = n_rows

    def train(self) -> np.ndarray:
        """Return rows to train on."""
        return np.ascontiguousarray(self.block(0)[:N_TRAIN], np.float32)

    def queries(self) -> np.ndarray:
        return _shifted(self._queries, stream(0, "benchmark.queries"))

    def blocks(self) -> Iterator[np.ndarray]:
        for index in range(-(-self.n_rows // _BLOCK)):
            yield self.block(index)

    def block(self, index: int) -> np.ndarray:
        rng = stream(0, "benchmark.rows", block=index)
        rows = min(_BLOCK, self.n_rows - index * _BLOCK)
        return _shifted(self._images[rng.integers(0, len(self._images), rows)], rng)


def _shifted(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shift every image by its own number of pixels, up to two in each direction; what enters is black."""
    padded = np.pad(images.reshape(-1, _SIDE, _SIDE), ((0, 0), (_SHIFT, _SHIFT), (_SHIFT, _SHIFT)))
    down, right = rng.integers(0, 2 * _SHIFT + 1, (2, len(images)))
    place = np.arange(_SIDE)
    rows = np.arange(len(images))[:, None, None]
    moved = padded[rows, (down[:, None] + place)[:, :, None], (right[:, None] + place)[:, None, :]]
    return moved.reshape(len(images), -1)


def sparse_encoder(name: str, digits: ShiftedDigits, scratch: Path, **parameters: int) -> Encoder:
    """Train "posh" or "pursuit_hash" with 1,024 bits on some of the rows."""
    method = get(name)(n_bits=1024, **parameters)
    return fit_in_memory(digits.train(), method, 0, scratch).encoder()


def rotated_pca_encoder(digits: ShiftedDigits, n_bits: int) -> ProjectionEncoder:
    """Return the signs of the first principal components, rotated at random."""
    train = digits.train().astype(np.float64)
    mean = train.mean(axis=0)
    components = np.linalg.eigh(np.cov(train.T))[1][:, ::-1][:, :n_bits]
    rotation = np.linalg.qr(stream(0, "benchmark.rotation").normal(size=(n_bits, n_bits)))[0]
    return ProjectionEncoder(mean, components @ rotation)


def made(path: Path, train: Callable[[], Encoder], digits: ShiftedDigits) -> tuple[np.ndarray, np.ndarray]:
    """Return packed codes of rows and queries, from ``path`` if they are there."""
    if not path.exists():
        encoder = train()
        codes = np.concatenate([encoder.encode(block) for block in digits.blocks()])
        np.savez(path, codes=codes, queries=encoder.encode(digits.queries()))
    with np.load(path) as stored:
        return stored["codes"], stored["queries"]
