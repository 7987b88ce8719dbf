"""The real digits that come with the package, for demonstrations and examples."""

from __future__ import annotations

from importlib import resources

import numpy as np


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the bundled handwritten digits, the official test part of MNIST.

    Returns
    -------
    images : ndarray of uint8, shape (10000, 784)
        Grey images of 28 × 28 pixels, row by row.
    labels : ndarray of int64, shape (10000,)
        Which digit each of them is.

    Examples
    --------
    >>> import bitfleet as bf
    >>> images, labels = bf.load_digits()
    >>> images.shape, labels[:5].tolist()
    ((10000, 784), [7, 2, 1, 0, 4])
    """
    source = resources.files(__package__) / "demo" / "digits.npz"
    with resources.as_file(source) as path, np.load(path) as file:
        return file["X"], file["y"].astype(np.int64)
