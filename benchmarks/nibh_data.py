"""The data of the NIBH paper: Random, translating squares, MNIST with its rotations, and its preprocessing.

Rows are float32; the paper subtracts the mean and puts every row on the unit sphere, which `on_sphere` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from bitfleet.storage.datasets import DatasetWriter
from bitfleet.tasks.random import stream
from mnist import load_mnist

if TYPE_CHECKING:
    from pathlib import Path

    from bitfleet.storage.datasets import Dataset

SIDE, N_TRAIN = 28, 60_000
TURNS = (0, 1, 2, 3)  # quarter turns, counter-clockwise
_BLOCK = 10_000


def random_rows(n_rows: int, seed: int = 0, n_features: int = 100) -> np.ndarray:
    """Return independent rows of a normal distribution with mean zero and identity covariance."""
    return stream(seed, "nibh_data.random").standard_normal((n_rows, n_features)).astype(np.float32)


def translating_squares(side: int = 10, square: int = 3) -> np.ndarray:
    """Return all images with one white square inside on black: 64 of 10 × 10 pixels, by row and column."""
    places = range(side - square + 1)
    images = np.zeros((len(places) ** 2, side, side), np.float32)
    for image, (down, right) in zip(images, [(a, b) for a in places for b in places], strict=True):
        image[down : down + square, right : right + square] = 1
    return images.reshape(len(images), -1)


def mnist_digits(path: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the official training and test images, in [0, 1], of shapes (60000, 784) and (10000, 784)."""
    images = load_mnist(path)[0]
    return images[:N_TRAIN], images[N_TRAIN:]


def rotated(images: np.ndarray, turns: tuple[int, ...] = TURNS) -> np.ndarray:
    """Return all images turned by each number of quarter turns: first all by the first number, and so on."""
    squares = images.reshape(-1, SIDE, SIDE)
    return np.concatenate([np.rot90(squares, turn, axes=(1, 2)).reshape(images.shape) for turn in turns])


def on_sphere(rows: np.ndarray, mean: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return rows minus their mean, each of length one, and the mean; a row at the mean stays zero.

    Parameters
    ----------
    rows : ndarray of float, shape (n, d)
    mean : ndarray of float64, shape (d,), optional
        That of the training rows, for test rows.
    """
    mean = rows.mean(axis=0, dtype=np.float64) if mean is None else mean
    out = np.empty(rows.shape, np.float32)
    for at in range(0, len(rows), _BLOCK):
        centred = rows[at : at + _BLOCK] - mean
        lengths = np.sqrt(np.einsum("ij,ij->i", centred, centred))
        out[at : at + _BLOCK] = centred / np.where(lengths > 0, lengths, 1.0)[:, None]
    return out, mean


def rotated_mean(images: np.ndarray) -> np.ndarray:
    """Return the mean of the images and their rotations."""
    mean = images.mean(axis=0, dtype=np.float64)[None]
    return np.mean([rotated(mean, (turn,))[0] for turn in TURNS], axis=0)


def write_rotated(images: np.ndarray, dest: Path) -> Dataset:
    """Write the images and their rotations by 90°, 180° and 270°, on the sphere, as a data set.

    Of the 60,000 training images these are the paper's 240,000 rows; all of them are never in memory.
    """
    mean = rotated_mean(images)
    writer = DatasetWriter(dest, n_features=images.shape[1], dtype=np.float32)
    for turn in TURNS:
        for at in range(0, len(images), _BLOCK):
            writer.append(on_sphere(rotated(images[at : at + _BLOCK], (turn,)), mean)[0])
    return writer.close()
