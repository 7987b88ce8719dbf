"""The exact sums that a sketch stands for, where they are affordable: ``AᵀA`` itself, and which to take.

Up to some multiple of the sketch's size the Gram matrix of all columns costs less time than shrinking, merges
by adding and loses nothing; beyond, `sketch.FrequentDirections` has less to do and to keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy.linalg

from .sketch import FrequentDirections

if TYPE_CHECKING:
    from .protocols import Arrays

EXACT_UP_TO = 8  # columns a sketch row


class ExactGram:
    """``AᵀA`` itself, with the verbs of `FrequentDirections`: no error, d² numbers.

    Parameters
    ----------
    n_features : int
    dtype : {"float64", "float32"}
        In which some rows at a time are multiplied; sums are float64.
    """

    def __init__(self, n_features: int, *, dtype: str = "float64") -> None:
        self.dtype = np.dtype(dtype)
        self._gram = np.zeros((n_features, n_features))
        self._count = 0

    def partial_fit(self, rows: np.ndarray) -> ExactGram:
        """Take in more rows."""
        rows = rows.astype(self.dtype, copy=False)
        self._gram += rows.T @ rows
        self._count += len(rows)
        return self

    def merge(self, other: ExactGram) -> ExactGram:
        """Return the sums over both."""
        merged = ExactGram(len(self._gram), dtype=str(self.dtype))
        merged._gram, merged._count = self._gram + other._gram, self._count + other._count
        return merged

    @property
    def certificate_(self) -> float:
        """Zero: nothing is lost."""
        return 0.0

    @property
    def square_(self) -> float:
        """The sum of squares of all rows."""
        return float(np.trace(self._gram))

    @property
    def slack_(self) -> float:
        """What rounding may add; see `FrequentDirections`."""
        return float(np.finfo(self.dtype).eps) * self.square_

    @property
    def n_samples_seen_(self) -> int:
        """Rows taken in."""
        return self._count

    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Return eigenvalues, falling, and orthonormal eigenvectors (d, d)."""
        values, vectors = scipy.linalg.eigh(self._gram, driver="evd", check_finite=False)
        return np.maximum(values[::-1], 0), vectors[:, ::-1]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything that it is."""
        return {"gram": self._gram, "count": np.array(self._count, np.int64)}

    @classmethod
    def from_arrays(cls, arrays: Arrays, dtype: str) -> ExactGram:
        """Rebuild it from what `arrays` returned."""
        sums = cls(0, dtype=dtype)
        sums._gram, sums._count = np.array(arrays["gram"]), int(arrays["count"])
        return sums


class Sketch(Protocol):
    """What `FrequentDirections` and `ExactGram` have in common."""

    def partial_fit(self, rows: Any) -> Any:
        """Take in more rows."""
        ...

    def merge(self, other: Any) -> Any:
        """Join two."""
        ...

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything that it is."""
        ...

    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Return eigenvalues, falling, and orthonormal eigenvectors."""
        ...

    @property
    def certificate_(self) -> float:
        """What no direction loses more than."""
        ...

    @property
    def slack_(self) -> float:
        """What rounding may add."""
        ...

    @property
    def square_(self) -> float:
        """The sum of squares of all rows."""
        ...

    @property
    def n_samples_seen_(self) -> int:
        """Rows taken in."""
        ...


def sketch_for(
    n_features: int, sketch_size: int, buffer_size: int, dtype: str, arrays: Arrays | None = None
) -> Sketch:
    """Return the cheaper of exact sums and a sketch, empty or with the content of ``arrays``."""
    if n_features <= EXACT_UP_TO * sketch_size:
        return ExactGram(n_features, dtype=dtype) if arrays is None else ExactGram.from_arrays(arrays, dtype)
    if arrays is None:
        return FrequentDirections(sketch_size, buffer_size=buffer_size, dtype=dtype)
    return FrequentDirections.from_arrays(sketch_size, arrays, buffer_size=buffer_size)
