"""Blocks of rows by address: what a worker calls to get at the data.

A `DatasetReader` is a path and a few numbers, so it travels in a task graph; the worker opens the files
itself, once per process.  An `ArrayReader` does the same over an array in memory.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import CorruptObject, DataRefused
from .metadata import ALLOWED
from .places import place, version
from .safe import read_group
from .sealed import check_attributes, sealed_array

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable

    from .safe import CheckedArray

MAX_GROUP_BYTES = 2**24  # a group's attributes hold the names of labels
LABEL_DTYPES = frozenset({"int64"})


@dataclass(frozen=True)
class StoredBlock:
    """Some rows: numbers (int64), vectors (float32 or float64, read-only), labels (int64) or None."""

    rows: np.ndarray
    vectors: np.ndarray
    labels: np.ndarray | None = None


@dataclass(frozen=True)
class DatasetReader:
    """Reads blocks of a stored dataset.

    Attributes
    ----------
    path : str
        Absolute.
    n_rows, n_features : int
    dtype : str
        Of blocks in memory: ``"float64"`` for float64 data, else ``"float32"``.
    chunk_rows : int
        Rows in one chunk, for who wants to read along chunks.
    digest : str
        The dataset's; if another dataset has taken its place, `CorruptObject`.
    """

    path: str
    n_rows: int
    n_features: int
    dtype: str
    chunk_rows: int
    has_labels: bool
    digest: str

    def read(self, address: Any) -> Any:
        """Return the block at an address (``start, stop`` or ``rows``), or two for ``left, right``."""
        if hasattr(address, "left"):
            return self.read(address.left), self.read(address.right)
        if hasattr(address, "rows"):
            vectors, labels = self._arrays()
            rows = row_numbers(address.rows, self.n_rows)
            return StoredBlock(
                rows,
                in_memory(vectors.take(rows), self.dtype),
                None if labels is None else labels.take(rows),
            )
        return self.widen(self.fetch(address))

    def fetch(self, address: Any) -> StoredBlock:
        """Return the block of a row range with its vectors as they are stored."""
        start, stop = row_range(address, self.n_rows)
        vectors, labels = self._arrays()
        return StoredBlock(
            np.arange(start, stop, dtype=np.int64),
            vectors.rows(start, stop),
            None if labels is None else labels.rows(start, stop),
        )

    def widen(self, block: StoredBlock) -> StoredBlock:
        """Return a fetched block with its vectors as `read` returns them."""
        return StoredBlock(block.rows, in_memory(block.vectors, self.dtype), block.labels)

    def _arrays(self) -> tuple[CheckedArray, CheckedArray | None]:
        vectors = stored_array(self.path, self.digest, "vectors")
        labels = stored_array(self.path, self.digest, "label", LABEL_DTYPES) if self.has_labels else None
        return vectors, labels


@dataclass(frozen=True, eq=False)
class ArrayReader:
    """Reads blocks of an array in memory, which it never changes.

    Parameters
    ----------
    vectors : ndarray, shape (n, d)
        Of any numeric dtype and memory order.
    labels : ndarray of int, shape (n,), optional
    """

    vectors: np.ndarray
    labels: np.ndarray | None = None
    n_rows: int = field(init=False)
    n_features: int = field(init=False)
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        vectors = np.asarray(self.vectors)
        check_vectors_dtype(vectors.dtype, "the array")
        if vectors.ndim != 2:
            raise DataRefused(
                f"expected a row of numbers for each vector, shape (n, d), got shape {vectors.shape}"
            )
        labels = None if self.labels is None else np.asarray(self.labels)
        if labels is not None and (labels.shape != vectors.shape[:1] or labels.dtype.kind not in "biu"):
            raise DataRefused(
                f"expected {len(vectors)} integer labels, got {labels.dtype} with shape {labels.shape}"
            )
        for name, value in {
            "vectors": vectors,
            "labels": labels,
            "n_rows": vectors.shape[0],
            "n_features": vectors.shape[1],
            "dtype": memory_dtype(vectors.dtype),
        }.items():
            object.__setattr__(self, name, value)

    def read(self, address: Any) -> Any:
        """Return the block at an address (``start, stop`` or ``rows``), or two for ``left, right``."""
        if hasattr(address, "left"):
            return self.read(address.left), self.read(address.right)
        if hasattr(address, "rows"):
            rows = row_numbers(address.rows, self.n_rows)
            where: Any = rows
        else:
            start, stop = row_range(address, self.n_rows)
            rows, where = np.arange(start, stop, dtype=np.int64), slice(start, stop)
        labels = None if self.labels is None else self.labels[where].astype(np.int64)
        return StoredBlock(rows, in_memory(self.vectors[where], self.dtype), labels)


def memory_dtype(stored: np.dtype | str) -> str:
    """Return the dtype that blocks of stored data have in memory."""
    return "float64" if np.dtype(stored).newbyteorder("=") == np.float64 else "float32"


def in_memory(vectors: np.ndarray, dtype: str) -> np.ndarray:
    """Return rows as a C-contiguous, read-only view or copy of the given dtype."""
    result = np.ascontiguousarray(vectors, dtype=dtype)
    result = result.view() if result is vectors else result
    result.flags.writeable = False
    return result


def check_vectors_dtype(dtype: np.dtype, where: str) -> None:
    """Raise `DataRefused` unless vectors may have this dtype."""
    if dtype.newbyteorder("=").name not in ALLOWED:
        raise DataRefused(
            f"{where}: expected bool, integer or floating vectors of at most 64 bits, got {dtype}"
        )


def stored_array(
    path: str | os.PathLike[str], digest: str, name: str, dtypes: frozenset[str] = ALLOWED
) -> CheckedArray:
    """Return a checked array of the finished group with this digest; opened once per process and content.

    Raises
    ------
    CorruptObject
        If the group is gone, unfinished or damaged, or another one has taken its place.
    UnsafeObject
        If reading it would need anything outside the white-list.
    """
    try:
        now = version(place(path) / "zarr.json")
    except (FileNotFoundError, NotADirectoryError):
        raise CorruptObject(f"{path}: gone or unfinished, its zarr.json is missing") from None
    return _open(str(path), digest, name, dtypes, now)


@functools.lru_cache(maxsize=32)
def _open(path: str, digest: str, name: str, dtypes: frozenset[str], version: Hashable) -> CheckedArray:
    folder = place(path)
    attributes = read_group(folder, max_bytes=MAX_GROUP_BYTES)
    found = attributes.get("digest")
    if found != digest:
        raise CorruptObject(
            f"{path}: expected the content with digest {digest[:12]}, another is there ({found!s:.12})"
        )
    check_attributes(folder, attributes)
    return sealed_array(folder, attributes, name, dtypes)


def row_range(address: Any, n_rows: int) -> tuple[int, int]:
    """Return ``start, stop`` of an address; `IndexError` if it is not within ``n_rows`` rows."""
    start, stop = int(address.start), int(address.stop)
    if not 0 <= start <= stop <= n_rows:
        raise IndexError(f"rows {start} to {stop} are not within a data set of {n_rows} rows")
    return start, stop


def row_numbers(rows: Any, n_rows: int) -> np.ndarray:
    """Return row numbers as int64; `IndexError` if one is not within ``n_rows`` rows."""
    numbers = np.asarray(rows, dtype=np.int64).reshape(-1)
    outside = numbers[(numbers < 0) | (numbers >= n_rows)]
    if outside.size:
        raise IndexError(f"row {outside[0]} is not within a data set of {n_rows} rows")
    return numbers
