"""What every source format gives: its width and dtype, and its rows as blocks in stored order.

A format module has ``open_source(path, *, vectors, labels) -> Source`` and opens nothing larger than a block
at a time.  Arrays of more than two dimensions (images) are flattened to one vector per row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np

from ..errors import DataRefused
from ..readers import check_vectors_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

Piece: TypeAlias = "tuple[np.ndarray, np.ndarray | None]"

VECTOR_NAMES = ("X", "x", "vectors", "data", "train", "vector", "embedding", "embeddings")
LABEL_NAMES = ("y", "label", "labels")


@dataclass(frozen=True)
class Source:
    """Vectors to be ingested, read block by block.

    Attributes
    ----------
    path : Path
    n_features : int
    dtype : dtype
    n_rows : int or None
        None if only reading tells.
    has_labels : bool
    read : callable
        ``read(rows)`` yields pairs of vectors (m, d) and labels (m,) or None, with m <= rows.  Labels are
        integers, bools, or strings (``""`` = none).
    notes : mapping
        JSON values to be recorded with the dataset.
    """

    path: Path
    n_features: int
    dtype: np.dtype
    n_rows: int | None
    has_labels: bool
    read: Callable[[int], Iterator[Piece]]
    notes: Mapping[str, Any] = field(default_factory=dict)

    def blocks(self, rows: int) -> Iterator[Piece]:
        """Yield vectors, shape (m, d) with m <= rows, and labels, shape (m,), or None."""
        return self.read(rows)


@dataclass(frozen=True)
class Labels:
    """Labels in a file of their own: their number, and a function that yields them in pieces."""

    path: Path
    n_rows: int
    read: Callable[[int], Iterator[np.ndarray]]


def row_width(shape: tuple[int, ...], dtype: np.dtype, where: str) -> int:
    """Return the number of features of an array of vectors; `DataRefused` if it is none."""
    if len(shape) < 2:
        raise DataRefused(
            f"{where}: expected a row of numbers for each vector, shape (n, d), got shape {shape}; one "
            "vector alone is x[None, :]"
        )
    check_vectors_dtype(dtype, where)
    width = math.prod(shape[1:])
    if width < 1:
        raise DataRefused(f"{where}: expected at least one feature, got shape {shape}")
    return width


def choose_arrays(
    shapes: Mapping[str, tuple[int, ...]], vectors: str | None, labels: str | None, where: str
) -> tuple[str, str | None]:
    """Return the names of the arrays that hold vectors and labels.

    Without a name, vectors are `VECTOR_NAMES` or the only array of two or more dimensions, and labels are
    `LABEL_NAMES` if the length fits.

    Raises
    ------
    DataRefused
        Listing what there is, if there is no such array or no single candidate.
    """
    listing = ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items())) or "nothing"
    for name in (vectors, labels):
        if name is not None and name not in shapes:
            raise DataRefused(f"{where}: there is no array {name!r}; there are: {listing}")
    if vectors is None:
        named = [name for name in VECTOR_NAMES if len(shapes.get(name, ())) >= 2]
        wide = [name for name, shape in shapes.items() if len(shape) >= 2]
        if not named and len(wide) != 1:
            raise DataRefused(
                f"{where}: name the array of vectors (--vectors NAME, vectors=NAME); there are: {listing}"
            )
        vectors = (named or wide)[0]
    n_rows = shapes[vectors][:1]
    if labels is None:
        labels = next((name for name in LABEL_NAMES if shapes.get(name) == n_rows and name != vectors), None)
    elif shapes[labels] not in (n_rows, (*n_rows, 1)):
        raise DataRefused(
            f"{where}: expected one label per row of {vectors!r} {shapes[vectors]}, "
            f"{labels!r} has shape {shapes[labels]}"
        )
    return vectors, labels


def array_blocks(vectors: Any, labels: Any | None, rows: int, chunk_rows: int = 1) -> Iterator[Piece]:
    """Yield blocks of two array-likes by slicing them, so that no chunk of the vectors is decoded twice."""
    n_rows = vectors.shape[0]
    step = max(rows // chunk_rows, 1) * chunk_rows
    for start in range(0, n_rows, step):
        stop = min(start + step, n_rows)
        block = np.asarray(vectors[start:stop])
        block = block.reshape(stop - start, math.prod(block.shape[1:]))
        names = None if labels is None else np.asarray(labels[start:stop]).reshape(stop - start)
        for first in range(0, len(block), rows):
            piece = slice(first, first + rows)
            yield block[piece], None if names is None else names[piece]


def stream_rows(
    stream: BinaryIO, shape: tuple[int, ...], dtype: np.dtype, rows: int, where: str
) -> Iterator[np.ndarray]:
    """Yield a row-major array from a byte stream, ``rows`` rows at a time.

    Raises
    ------
    DataRefused
        If the stream ends before the array does.
    """
    row_bytes = math.prod(shape[1:]) * dtype.itemsize
    for start in range(0, shape[0], rows):
        n = min(rows, shape[0] - start)
        data = read_exactly(stream, n * row_bytes)
        if len(data) < n * row_bytes:
            raise DataRefused(
                f"{where}: ends at row {start + len(data) // row_bytes} of {shape[0]}, it is cut off"
            )
        yield np.frombuffer(data, dtype).reshape(n, *shape[1:])


def read_exactly(stream: BinaryIO, n_bytes: int) -> bytes:
    """Return the next ``n_bytes`` of a stream, fewer only at its end."""
    pieces = []
    while n_bytes > 0 and (piece := stream.read(n_bytes)):
        pieces.append(piece)
        n_bytes -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
