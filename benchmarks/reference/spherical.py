"""Algorithm 2 of the POSH paper in plain NumPy, from its pseudocode: spherical k-means on unit rows.

A unit that wins no row has no direction; as in the paper's listing its weights become zero. So do they
stay: a zero row has score zero everywhere, and wins only where every other score is negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator


def normalize(matrix: np.ndarray) -> np.ndarray:
    """Return the matrix with rows of unit length, zero rows as they are."""
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(lengths == 0, 1.0, lengths)


def learn(
    x: np.ndarray, start: np.ndarray, *, n_epochs: int = 50, batch_size: int = 100
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (W, M) after every mini-batch; W changes only at the end of an epoch.

    Parameters
    ----------
    x : ndarray of float64, shape (n, d)
        Centred rows.
    start : ndarray of float64, shape (D, d)
        W₀, standard normal entries.
    """
    w = normalize(start)
    for _ in range(n_epochs):
        m = np.zeros_like(w)
        for first in range(0, len(x), batch_size):
            rows = normalize(x[first : first + batch_size])
            codes = np.zeros((len(rows), len(w)))
            codes[np.arange(len(rows)), np.argmax(rows @ w.T, axis=1)] = 1.0
            m += codes.T @ rows
            if first + batch_size >= len(x):
                w = normalize(m)
            yield w, m.copy()
