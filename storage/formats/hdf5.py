"""HDF5, among others in the layout of ann-benchmarks (``train`` and ``test``); needs h5py."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataRefused
from .source import Piece, Source, array_blocks, choose_arrays, row_width

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def open_source(
    path: Path, *, vectors: str | None = None, labels: str | None = None, missing: str = "refuse"
) -> Source:
    """Open the vectors, and the labels if there are any, in an HDF5 file.

    Chunks that were never written are refused, or read as fill values and counted (``missing="fill"``).
    """
    try:
        import h5py
    except ImportError:
        raise DataRefused(f"{path}: reading HDF5 needs h5py; pip install 'bitfleet[hdf5]'") from None
    try:
        with h5py.File(path, "r") as file:
            found = _datasets(file, h5py, (vectors, labels))
            shapes = {name: dataset.shape for name, dataset in found.items()}
            chosen, label_name = choose_arrays(shapes, vectors, labels, str(path))
            dataset = found[chosen]
            width = row_width(dataset.shape, dataset.dtype, f"{path}[{chosen}]")
            n_rows, dtype = dataset.shape[0], dataset.dtype
            absent = sum(_unwritten(found[name]) for name in (chosen, label_name) if name is not None)
            if absent and missing != "fill":
                raise DataRefused(
                    f"{path}: {absent} chunks were never written; restore them, or read them as fill values "
                    "with missing='fill' (--missing fill)"
                )
    except OSError as error:
        raise DataRefused(f"{path}: no readable HDF5 file ({error})") from error

    def read(rows: int) -> Iterator[Piece]:
        with h5py.File(path, "r") as file:
            names = None if label_name is None else _label_view(file[label_name], h5py)
            try:
                yield from array_blocks(file[chosen], names, rows, (file[chosen].chunks or (1,))[0])
            except OSError as error:
                raise DataRefused(f"{path}: damaged HDF5 data ({error})") from error

    notes = {"missing_chunks_filled": absent} if absent else {}
    return Source(path, width, np.dtype(dtype), n_rows, label_name is not None, read, notes)


def _datasets(file: Any, h5py: Any, named: tuple[str | None, ...]) -> dict[str, Any]:
    """Return the datasets of a file by name, without following links into other files."""
    found: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.external or item.is_virtual:
            if name in named:
                raise DataRefused(f"{file.filename}: dataset {name!r} keeps its data in other files")
            return
        found[name] = item

    file.visititems(visit)  # hard links only
    return found


def _unwritten(dataset: Any) -> int:
    """Return the number of chunks that are not in the file."""
    if dataset.size == 0:
        return 0
    if dataset.chunks is None:
        return int(dataset.id.get_storage_size() == 0)
    grid = math.prod(-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True))
    return int(grid - dataset.id.get_num_chunks())


def _label_view(dataset: Any, h5py: Any) -> Any:
    return dataset.asstr() if h5py.check_string_dtype(dataset.dtype) is not None else dataset
