"""Frequent Directions: a matrix of few rows that stands for all rows of a stream, with a certificate.

Of the rows A (n, d) seen so far B (l, d) is kept, l ``sketch_size``, such that for every direction x

    0 <= ‖A x‖² - ‖B x‖² <= Δ ‖x‖²        (0 <= AᵀA - BᵀB <= Δ I),

where Δ is computed, not estimated (Liberty, 2013; Ghashami, Liberty, Phillips and Woodruff, 2016). Rows are
gathered in a buffer of 2 l or so; when it is full it is *shrunk*: with C the buffer, U and w the eigenvectors
and falling eigenvalues of ``C Cᵀ`` and ``δ = w[l]``, the first to be given up,

    B <- diag(√(1 - δ / w_j)) U_lᵀ C,        Δ <- Δ + δ.

Nothing is divided by a small number, since ``1 - δ / w_j`` is in [0, 1], so that no eigenvalue is cut off by
a tolerance. Two sketches merge by stacking their buffers, and their certificates add; Δ is at most
``min_k ‖A - A_k‖² / (l + 1 - k)`` however the rows were split and merged.

Everything depends on the rows and their order alone, not on how many are given at a time, and a sketch is
its whole buffer: stored and read back it goes on to the same bits.
"""

from __future__ import annotations

import copy
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .protocols import Arrays

DTYPES = ("float64", "float32")
_ROUNDINGS = 16  # of each shrink's largest eigenvalue; less than half of it was the worst seen


class FrequentDirections:
    """A sketch of at most ``sketch_size`` rows, learned from rows that pass by once.

    Parameters
    ----------
    sketch_size : int
        Rows kept, l.
    buffer_size : int, optional
        Rows held in memory, more than ``sketch_size``; twice as many by default.  More give a smaller
        certificate and better directions; much more than four times as many cost time.
    dtype : {"float64", "float32"}
        In which rows are kept and multiplied.  float32 is about half as dear, but then
        ``slack_`` may be as large as the certificate.

    Attributes
    ----------
    components_ : ndarray, shape (r, d), r <= sketch_size
        The sketch B: orthogonal rows, longest first, each with its largest entry positive.
    certificate_ : float
        Δ, which no direction loses more than: ``0 <= ‖A x‖² - ‖B x‖² <= Δ ‖x‖²``.
    slack_ : float
        What rounding may add on both sides, ``16 ε (‖A‖² + Σ w_0)`` with the largest eigenvalue w_0
        of each shrink: an allowance, more than twice the worst that was seen (the BLAS matters), not proved.
    square_ : float
        ``‖A‖²``, the sum of all squares.
    n_samples_seen_, n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import FrequentDirections
    >>> A = np.random.default_rng(0).normal(size=(1000, 50)) * np.linspace(2, 0, 50)
    >>> left = FrequentDirections(20).partial_fit(A[:700])
    >>> both = left.merge(FrequentDirections(20).partial_fit(A[700:]))
    >>> B = both.components_
    >>> lost = np.linalg.eigvalsh(A.T @ A - B.T @ B)
    >>> B.shape, bool(lost[-1] <= both.certificate_ * (1 + 1e-6))
    ((20, 50), True)
    """

    def __init__(self, sketch_size: int, *, buffer_size: int | None = None, dtype: str = "float64") -> None:
        self.sketch_size = _integer("sketch_size", sketch_size, 1)
        least = self.sketch_size + 1
        self.buffer_size = (
            2 * self.sketch_size if buffer_size is None else _integer("buffer_size", buffer_size, least)
        )
        if str(np.dtype(dtype)) not in DTYPES:
            raise ValueError(f"expected dtype to be one of {', '.join(DTYPES)}, got {dtype!r}")
        self.dtype = np.dtype(dtype)
        self._buffer: np.ndarray | None = None  # of buffer_size rows, made when the first say how wide
        self._n_rows = 0  # of the buffer that are in use
        self._energies = np.zeros(0)  # squared lengths of its first rows, which are orthogonal
        self._n_squared = 0  # of its rows are in _square already
        self._square = 0.0
        self._certificate = 0.0
        self._rounding = 0.0  # the largest eigenvalues of all shrinks, added up
        self._count = 0
        self._read: FrequentDirections | None = None  # shrunk copy that the attributes are read from

    def partial_fit(self, rows: Any, y: Any = None) -> FrequentDirections:
        """Take in more rows.

        Parameters
        ----------
        rows : array or sparse matrix, shape (m, d)
            Sparse rows are made dense a buffer at a time.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the width changes or a row holds NaN or infinity; the sketch is then as it was.
        """
        rows = _checked(rows, self.n_features_in_, self.dtype)
        if self._buffer is None:
            self._buffer = np.empty((self.buffer_size, rows.shape[1]), self.dtype)
        self._read = None
        done = 0
        while done < rows.shape[0]:
            if self._n_rows == len(self._buffer):
                self._shrink()
            n = min(rows.shape[0] - done, len(self._buffer) - self._n_rows)
            self._buffer[self._n_rows : self._n_rows + n] = _dense(rows[done : done + n])
            self._n_rows += n
            done += n
        self._count += rows.shape[0]
        return self

    def merge(self, other: FrequentDirections) -> FrequentDirections:
        """Return the sketch of this one's rows followed by the other's; both stay as they are.

        Raises
        ------
        ValueError
            If sizes, width or type differ.
        """
        for field in ("sketch_size", "buffer_size", "dtype"):
            if getattr(self, field) != getattr(other, field):
                raise ValueError(
                    f"expected sketches of the same {field}, got {getattr(self, field)} and "
                    f"{getattr(other, field)}"
                )
        if other._buffer is None or self._buffer is None:
            return copy.deepcopy(self if other._buffer is None else other)
        if self._buffer.shape[1] != other._buffer.shape[1]:
            raise ValueError(
                f"expected sketches of rows of the same width, got {self.n_features_in_} and "
                f"{other.n_features_in_}"
            )
        merged = self._empty()
        stacked = np.concatenate([self._rows, other._rows])
        merged._take(stacked, self._energies, self._certificate + other._certificate)
        merged._square, merged._n_squared = self.square_ + other.square_, len(stacked)
        merged._rounding, merged._count = self._rounding + other._rounding, self._count + other._count
        if len(stacked) > self.buffer_size:
            merged._shrink()
            merged._take(merged._rows, merged._energies, merged._certificate)
        return merged

    @property
    def components_(self) -> np.ndarray:
        """The sketch B, shape (r, d)."""
        return self._shrunk()._rows.copy()

    @property
    def certificate_(self) -> float:
        """What no direction loses more than, Δ."""
        return self._shrunk()._certificate

    @property
    def energies_(self) -> np.ndarray:
        """The squared lengths of the components, float64, falling."""
        return self._shrunk()._energies.copy()

    @property
    def slack_(self) -> float:
        """What rounding may add to both sides of the certificate."""
        whole = self._shrunk()
        return float(np.finfo(self.dtype).eps) * _ROUNDINGS * (whole._square + whole._rounding)

    @property
    def square_(self) -> float:
        """The sum of squares of all rows."""
        fresh = self._rows[self._n_squared :].astype(np.float64)
        return self._square + float(np.einsum("ij,ij->", fresh, fresh))

    @property
    def n_samples_seen_(self) -> int:
        """Rows taken in."""
        return self._count

    @property
    def n_features_in_(self) -> int | None:
        """Columns; None before the first rows."""
        return None if self._buffer is None else self._buffer.shape[1]

    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Return eigenvalues of BᵀB, falling, and orthonormal eigenvectors (d, r)."""
        _, lengths, directions = scipy.linalg.svd(
            self.components_.astype(np.float64), full_matrices=False, check_finite=False
        )
        return lengths**2, directions.T

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything that the sketch is, the whole buffer included."""
        return {
            "rows": self._rows.copy(),
            "energies": self._energies.copy(),
            "n_squared": np.array(self._n_squared, np.int64),
            "square": np.array(self._square),
            "certificate": np.array(self._certificate),
            "rounding": np.array(self._rounding),
            "count": np.array(self._count, np.int64),
        }

    @classmethod
    def from_arrays(
        cls, sketch_size: int, arrays: Arrays, *, buffer_size: int | None = None
    ) -> FrequentDirections:
        """Rebuild a sketch from what `arrays` returned; it goes on to the same bits."""
        rows = arrays["rows"]
        sketch = cls(sketch_size, buffer_size=buffer_size, dtype=str(rows.dtype))
        if rows.ndim != 2 or len(rows) > sketch.buffer_size or len(arrays["energies"]) > len(rows):
            raise ValueError(
                f"expected at most {sketch.buffer_size} rows with a sketch of {sketch_size}, got {rows.shape}"
            )
        if not rows.size:  # nothing has come yet
            return sketch
        sketch._take(rows, arrays["energies"], float(arrays["certificate"]))
        sketch._n_squared, sketch._square = int(arrays["n_squared"]), float(arrays["square"])
        sketch._rounding, sketch._count = float(arrays["rounding"]), int(arrays["count"])
        return sketch

    def _empty(self) -> FrequentDirections:
        return FrequentDirections(self.sketch_size, buffer_size=self.buffer_size, dtype=str(self.dtype))

    @property
    def _rows(self) -> np.ndarray:
        return np.empty((0, 0), self.dtype) if self._buffer is None else self._buffer[: self._n_rows]

    def _take(self, rows: np.ndarray, energies: np.ndarray, certificate: float) -> None:
        """Copy these rows into a buffer of at least the usual size."""
        self._buffer = np.empty((max(len(rows), self.buffer_size), rows.shape[1]), self.dtype)
        self._buffer[: len(rows)] = rows
        self._n_rows, self._energies, self._certificate = len(rows), np.array(energies), certificate

    def _shrunk(self) -> FrequentDirections:
        """Return a copy with at most ``sketch_size`` rows, longest first."""
        if self._read is None:
            self._read = copy.deepcopy(self)
            if len(self._energies) < self._n_rows:
                self._read._shrink()
            self._read._square = self.square_
            _point_upwards(self._read._rows)
        return self._read

    def _shrink(self) -> None:
        """Turn the buffer's rows to orthogonal ones and give up all but the longest ``sketch_size``."""
        rows, l = self._rows, self.sketch_size  # noqa: E741
        gram = self._gram(rows)
        squares = np.diagonal(gram)[self._n_squared :]
        self._square += float(squares.sum(dtype=np.float64))
        if not np.isfinite(self._square):
            raise ValueError(f"expected finite sums of squares, but they overflow {self.dtype}; rescale")
        energies, turn = scipy.linalg.eigh(
            gram, lower=True, driver="evd", overwrite_a=True, check_finite=False
        )
        energies, turn = np.maximum(energies[::-1], 0).astype(np.float64), turn[:, ::-1]
        lost = float(energies[l]) if len(rows) > l else 0.0
        n = int(np.count_nonzero(energies[:l] > lost))
        turn = turn[:, :n] * np.sqrt(1 - lost / energies[:n]).astype(self.dtype)
        assert self._buffer is not None
        self._buffer[:n] = turn.T @ rows
        self._n_rows = self._n_squared = n
        self._energies = energies[:n] - lost
        self._certificate += lost
        self._rounding += float(energies[0])

    def _gram(self, rows: np.ndarray) -> np.ndarray:
        """Return the lower half of ``C Cᵀ``, which is diagonal where rows are orthogonal."""
        r = len(self._energies)
        gram = np.zeros((len(rows), len(rows)), self.dtype)
        np.fill_diagonal(gram[:r, :r], self._energies)
        fresh = rows[r:]
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            gram[r:, :r] = fresh @ rows[:r].T
            gram[r:, r:] = fresh @ fresh.T
        return gram


def _integer(name: str, value: int, least: int) -> int:
    try:
        found = index(value)
    except TypeError:
        found = least - 1
    if found < least or isinstance(value, bool):
        raise ValueError(f"expected {name} to be an integer >= {least}, got {value!r}")
    return found


def _checked(rows: Any, width: int | None, dtype: np.dtype[Any]) -> Any:
    """Return dense or sparse rows of the right shape and type, finite."""
    rows = rows.tocsr() if hasattr(rows, "tocsr") else np.asarray(rows)
    if rows.ndim != 2 or (width is not None and rows.shape[1] != width):
        raise ValueError(f"expected rows of shape (m, {'d' if width is None else width}), got {rows.shape}")
    if rows.dtype.kind not in "buif":
        raise ValueError(f"expected real numbers, got dtype {rows.dtype}")
    for first, values in _tiles(rows, dtype):
        with np.errstate(over="ignore", invalid="ignore"):
            suspicious = not np.isfinite(values.sum())  # the sum of finite numbers may overflow
        if suspicious and not np.isfinite(values).all():
            raise ValueError(f"expected finite rows, but rows from {first} on hold NaN or infinity")
    return rows


def _tiles(rows: Any, dtype: np.dtype[Any]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the stored values some rows at a time, in the type in which they will be kept."""
    for first in range(0, rows.shape[0], 1024):
        part = rows[first : first + 1024]
        with np.errstate(over="ignore"):
            yield first, (part.data if hasattr(part, "tocsr") else part).astype(dtype, copy=False)


def _dense(rows: Any) -> np.ndarray:
    return rows.toarray() if hasattr(rows, "toarray") else rows


def _point_upwards(rows: np.ndarray) -> None:
    """Turn rows round, in place, so that the largest entry of each, the first among equals, is positive."""
    if rows.size:
        leading = np.abs(rows).argmax(axis=1)
        rows[rows[np.arange(len(rows)), leading] < 0] *= -1
