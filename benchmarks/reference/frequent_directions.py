"""Frequent Directions row by row, as in the program that its author published, from its description.

A buffer of 2 l rows takes one row at a time; when it is full, the singular value decomposition of the whole
buffer is shrunk by its l-th squared singular value, which empties the second half. It is what `bitfleet`'s
sketch is held to and timed against; NumPy's SVD in float64, nothing done for speed and nothing against it.
"""

from __future__ import annotations

import numpy as np


class FrequentDirections:
    """The sketch and what shrinking has taken so far.

    Parameters
    ----------
    n_features, sketch_size : int
    """

    def __init__(self, n_features: int, sketch_size: int) -> None:
        self.sketch_size = sketch_size
        self.buffer = np.zeros((2 * sketch_size, n_features))
        self.next_row = 0
        self.lost = 0.0

    def append(self, row: np.ndarray) -> None:
        """Take one row."""
        if self.next_row >= len(self.buffer):
            self._rotate()
        self.buffer[self.next_row] = row
        self.next_row += 1

    def sketch(self) -> np.ndarray:
        """Return the whole buffer: its second half holds the rows since the last rotation."""
        return self.buffer[: self.next_row]

    def _rotate(self) -> None:
        l = self.sketch_size  # noqa: E741
        _, s, vt = np.linalg.svd(self.buffer, full_matrices=False)
        shrunk = np.sqrt(s[:l] ** 2 - s[l - 1] ** 2)
        self.buffer[:l] = shrunk[:, None] * vt[:l]
        self.buffer[l:] = 0
        self.lost += s[l - 1] ** 2
        self.next_row = l
