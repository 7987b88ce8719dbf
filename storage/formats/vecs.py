"""``.fvecs``, ``.bvecs`` and ``.ivecs`` (TEXMEX): each row is its length as int32, then the numbers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from ..errors import DataRefused
from .source import Piece, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DTYPES: dict[str, np.dtype] = {".fvecs": np.dtype("<f4"), ".bvecs": np.dtype("u1"), ".ivecs": np.dtype("<i4")}


def open_source(path: Path) -> Source:
    """Open the vectors in a file whose suffix tells their dtype."""
    dtype = DTYPES[path.suffix.lower()]
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(4)
    if len(head) < 4:
        raise DataRefused(f"{path}: expected at least one vector, got {size} bytes")
    (width,) = struct.unpack("<i", head)
    row_bytes = 4 + width * dtype.itemsize
    if width < 1 or size < row_bytes:
        raise DataRefused(f"{path}: row 0 announces {width} numbers in a file of {size:,} bytes")
    n_rows = size // row_bytes

    def read(rows: int) -> Iterator[Piece]:
        record = np.dtype([("n", "<i4"), ("row", dtype, (width,))])
        with path.open("rb") as stream:
            for start in range(0, n_rows, rows):
                block = np.fromfile(stream, record, min(rows, n_rows - start))
                other = np.flatnonzero(block["n"] != width)
                if other.size:
                    row = start + int(other[0])
                    raise DataRefused(
                        f"{path}: row {row} announces {block['n'][other[0]]} numbers, row 0 has {width}"
                    )
                yield np.ascontiguousarray(block["row"]), None
        if size % row_bytes:
            raise DataRefused(f"{path}: ends within row {n_rows}, it is cut off")

    return Source(path, width, dtype, n_rows, False, read)
