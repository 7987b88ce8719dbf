"""Zarr of others (format 3), read through the same checks as our own but with more codecs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..documents import read_json
from ..errors import DataRefused, NothingYet, UnsafeObject
from ..metadata import check_array_metadata
from ..paths import resolve_inside
from ..readers import MAX_GROUP_BYTES
from ..safe import check_array
from .source import Piece, Source, array_blocks, choose_arrays, row_width

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..safe import CheckedArray


def open_source(
    path: Path, *, vectors: str | None = None, labels: str | None = None, missing: str = "refuse"
) -> Source:
    """Open an array, or the arrays of vectors and labels in a group.

    Absent chunks are refused, or read as fill values and counted (``missing="fill"``).
    """
    if not (path / "zarr.json").exists() and any((path / name).exists() for name in (".zarray", ".zgroup")):
        raise UnsafeObject(
            f"{path}: Zarr format 2 is not read, its metadata may name codecs that run code; "
            "rewrite it with zarr-python: zarr.create_array(NEW, data=OLD_ARRAY, zarr_format=3)"
        )
    meta = read_json(path / "zarr.json", max_bytes=MAX_GROUP_BYTES)
    if meta.get("node_type") == "array":
        if vectors is not None or labels is not None:
            raise DataRefused(f"{path}: is a single array, there is no {vectors or labels!r} in it")
        array, names = _open(path, missing), None
        label_names: list[str] = []
    else:
        shapes = _members(path)
        chosen, label_name = choose_arrays(shapes, vectors, labels, str(path))
        array = _open(resolve_inside(path, chosen), missing)
        names = None if label_name is None else _open(resolve_inside(path, label_name), missing)
        label_names = _label_names(meta) if label_name == "label" else []
    width = row_width(array.layout.shape, array.layout.dtype, str(array.path))
    chunk_rows = (array.layout.shard.chunk_shape if array.layout.shard else array.layout.chunks)[0]
    absent = array.n_absent + (0 if names is None else names.n_absent)

    def read(rows: int) -> Iterator[Piece]:
        columns = _Sliced(array), None if names is None else _Sliced(names)
        for block, piece in array_blocks(*columns, rows, chunk_rows):
            yield block, piece if piece is None or not label_names else _named(piece, label_names)

    notes = {"missing_chunks_filled": absent} if absent else {}
    return Source(path, width, array.layout.dtype, array.layout.shape[0], names is not None, read, notes)


def chosen_array(path: Path, vectors: str | None) -> Path:
    """Return the folder of the array of vectors: ``path`` itself, or the one in the group.

    Raises
    ------
    NothingYet
        If the group has no such array.
    DataRefused
        If it has several and none is named.
    """
    meta = read_json(path / "zarr.json", max_bytes=MAX_GROUP_BYTES)
    if meta.get("node_type") == "array":
        return path
    shapes = _members(path)
    if vectors not in shapes if vectors is not None else all(len(shape) < 2 for shape in shapes.values()):
        listing = ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items())) or "nothing"
        raise NothingYet(f"{path}: there is no array {vectors or 'of vectors'} yet; there are: {listing}")
    return resolve_inside(path, choose_arrays(shapes, vectors, None, str(path))[0])


class _Sliced:
    """A checked array that is sliced like an ndarray."""

    def __init__(self, array: CheckedArray) -> None:
        self.array = array
        self.shape = array.layout.shape

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.array.rows(rows.start, rows.stop)


def _open(path: Path, missing: str) -> CheckedArray:
    return check_array(path, foreign=True, fill=missing == "fill")


def _members(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a group's own arrays; what we would not read is left out."""
    shapes = {}
    for folder in sorted(path.iterdir()):
        if folder.is_symlink() or not (folder / "zarr.json").is_file():
            continue
        meta = read_json(folder / "zarr.json", max_bytes=MAX_GROUP_BYTES)
        if meta.get("node_type") == "array":
            try:
                shapes[folder.name] = check_array_metadata(meta, str(folder), foreign=True).shape
            except UnsafeObject:
                if folder.name == "vectors":
                    raise
    return shapes


def _label_names(meta: dict[str, Any]) -> list[str]:
    attributes = meta.get("attributes")
    names = attributes.get("label_names", []) if isinstance(attributes, dict) else []
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def _named(labels: np.ndarray, names: list[str]) -> np.ndarray:
    """Return labels as names, "" for those that have none."""
    table = np.asarray([*names, ""], dtype=object)
    inside = (labels >= 0) & (labels < len(names))
    return table[np.where(inside, labels, len(names))]
