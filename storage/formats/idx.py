"""IDX, the format of the MNIST family: big-endian header, row-major data, often inside gzip."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np

from ..errors import DataRefused
from .source import Labels, Piece, Source, read_exactly, row_width, stream_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DTYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def open_source(path: Path) -> Source:
    """Open the vectors (or images, flattened) in an IDX file, gzip-compressed or not."""
    shape, dtype = _describe(path)
    width = row_width(shape, dtype, str(path))

    def read(rows: int) -> Iterator[Piece]:
        for block in _stream(path, rows):
            yield block.reshape(len(block), width), None

    return Source(path, width, dtype, shape[0], False, read)


def open_labels(path: Path) -> Labels:
    """Open the labels in a one-dimensional IDX file, gzip-compressed or not."""
    shape, _ = _describe(path)
    if len(shape) != 1:
        raise DataRefused(f"{path}: expected labels of shape (n,), got {shape}")
    return Labels(path, shape[0], lambda rows: _stream(path, rows))


def is_idx(head: bytes) -> bool:
    """Tell whether the first four bytes are IDX's magic number."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _DTYPES and 1 <= head[3] <= 8


def _describe(path: Path) -> tuple[tuple[int, ...], np.dtype]:
    with _open(path) as stream:
        try:
            shape, dtype = _header(stream, path)
        except (OSError, EOFError, zlib.error) as error:
            raise DataRefused(f"{path}: damaged gzip data ({error})") from error
        size = path.stat().st_size
        expected = 4 + 4 * len(shape) + math.prod(shape) * dtype.itemsize
    if not _is_gzip(path) and size != expected:
        raise DataRefused(f"{path}: expected {expected:,} bytes for shape {shape} of {dtype}, got {size:,}")
    return shape, dtype


def _stream(path: Path, rows: int) -> Iterator[np.ndarray]:
    with _open(path) as stream:
        try:
            shape, dtype = _header(stream, path)
            yield from stream_rows(stream, shape, dtype, rows, str(path))
            if stream.read(1):
                raise DataRefused(f"{path}: holds more than the {shape[0]} rows that it announces")
        except (OSError, EOFError, zlib.error) as error:
            raise DataRefused(f"{path}: damaged gzip data ({error})") from error


def _header(stream: BinaryIO, path: Path) -> tuple[tuple[int, ...], np.dtype]:
    magic = read_exactly(stream, 4)
    if not is_idx(magic):
        raise DataRefused(f"{path}: no IDX file, it begins with {magic.hex(' ')}")
    sizes = read_exactly(stream, 4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise DataRefused(f"{path}: ends within its header, it is cut off")
    return struct.unpack(f">{magic[3]}I", sizes), np.dtype(_DTYPES[magic[2]])


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def _open(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, "rb")) if _is_gzip(path) else path.open("rb")
