"""NumPy's ``.npy``: mapped into memory, never unpickled."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from ..errors import DataRefused
from .source import Labels, Source, array_blocks, row_width

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def open_source(path: Path) -> Source:
    """Open the vectors in an ``.npy`` file."""
    array = _map(path)
    width = row_width(array.shape, array.dtype, str(path))
    return Source(
        path, width, array.dtype, array.shape[0], False, lambda rows: array_blocks(array, None, rows)
    )


def open_labels(path: Path) -> Labels:
    """Open the labels in an ``.npy`` file, shape (n,) or (n, 1)."""
    array = _map(path)
    if array.ndim not in (1, 2) or array.shape[1:] not in ((), (1,)):
        raise DataRefused(f"{path}: expected labels of shape (n,), got {array.shape}")

    def read(rows: int) -> Iterator[np.ndarray]:
        for start in range(0, len(array), rows):
            yield np.asarray(array[start : start + rows]).reshape(-1)

    return Labels(path, array.shape[0], read)


def _map(path: Path) -> np.ndarray:
    try:
        with path.open("rb") as stream:
            version = np.lib.format.read_magic(stream)
            shape, _, dtype = read_header(stream, version)
        if 0 in shape:  # nothing to map
            return np.empty(shape, dtype)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataRefused(f"{path}: no readable .npy file ({error})") from error


def read_header(stream: BinaryIO, version: tuple[int, int]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, Fortran order and dtype from an ``.npy`` header; `ValueError` if it is none of ours."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"format version {version} is for structured arrays, which are no vectors")
    shape, fortran, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which are never loaded")
    if any(n < 0 for n in shape):
        raise ValueError(f"the shape {shape} is negative")
    return shape, fortran, dtype
