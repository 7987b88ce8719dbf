"""Objects that drop into a bucket, taken as rows of one stream.

An object is there as a whole or not at all, so nothing has to settle. What was taken is remembered by name,
rows, size and ETag with every commit: a stream that goes on asks for no object twice to know what it holds,
and one that was replaced since is noticed. Of ``.npy`` just the rows that are wanted are read; what is in
other formats is fetched whole, one object at a time.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import CorruptObject, DataRefused
from .formats import HEAD_BYTES, format_of_content, format_of_name, open_source
from .formats.npy import read_header
from .formats.source import row_width
from .growing_files import GrowingFiles, is_finished, pieces
from .object_paths import Child, ObjectPath
from .object_reads import LocalCopy, read_part

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE_OBJECTS = "source_objects"  # the array that remembers
_NPY_HEADER = 16_384  # NumPy refuses longer ones


class GrowingObjects(GrowingFiles):
    """The objects directly below a prefix."""

    path: ObjectPath

    def __init__(self, path: ObjectPath, vectors: str | None = None) -> None:
        super().__init__(path, vectors)
        self._there: dict[str, Child] = {}  # as listed last
        self._taken: dict[str, Child] = {}  # as they were when their rows were counted
        self._formats: dict[Child, str | None] = {}
        self._copy = LocalCopy()
        self._rows: tuple[Child, _RemoteRows] | None = None  # the last that were opened

    def record(self, n_rows: int) -> dict[str, np.ndarray]:
        """Return names, rows, sizes and ETags of the objects that the first rows came from."""
        rows = [(name, self._known[name], *self._taken[name][1:]) for name in self._first(n_rows)]
        return {SOURCE_OBJECTS: np.frombuffer(json.dumps(rows).encode(), np.uint8)}

    def recall(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take what `record` returned; without it, as of a folder's stream, count again."""
        if SOURCE_OBJECTS in arrays:
            found = json.loads(arrays[SOURCE_OBJECTS].tobytes())
            self._known = {name: n for name, n, _, _ in found}
            self._taken = {name: Child(name, size, e_tag) for name, _, size, e_tag in found}

    def close(self) -> None:
        """Remove the copy of an object that was read last."""
        self._copy.remove()

    def _names(self) -> list[str]:
        self._there = {child.name: child for child in self.path.children()}
        for name, then in self._taken.items():
            now = self._there.get(name, then)
            if now != then:
                raise CorruptObject(
                    f"{self.path / name} has changed since its rows were taken: it had {then.size:,} bytes "
                    f"and ETag {then.e_tag}, now {now.size or 0:,} and {now.e_tag}; put back what was there"
                )
        return sorted(
            name
            for name, child in self._there.items()
            if is_finished(name) and (name in self._known or self._format(child) is not None)
        )

    def _rows_of(self, name: str, first: str) -> int:
        n = super()._rows_of(name, first)
        self._taken[name] = self._there[name]
        return n

    def _format(self, child: Child) -> str | None:
        """Return the name of an object's format; None, and why, if it is left out."""
        if child not in self._formats:
            try:
                self._formats[child] = self._detected(child)
                self.left_out.pop(child.name, None)
            except DataRefused as error:
                self._formats[child], self.left_out[child.name] = None, str(error)
        return self._formats[child]

    def _detected(self, child: Child) -> str:
        path = self.path / child.name
        if child.size is None:
            raise DataRefused(f"{path}: begins the names of other objects; give it as a source of its own")
        kind = format_of_name(path.suffix)
        if kind is not None:
            return kind
        return format_of_content(read_part(path, child, 0, min(child.size, HEAD_BYTES)), str(path))

    def _open(self, name: str) -> Any:
        child, path = self._there[name], self.path / name
        if self._format(child) == "npy" and self.vectors is None:
            if self._rows is not None and self._rows[0] == child:
                return self._rows[1]
            rows = _RemoteRows.of(path, child)
            if rows is not None:
                self._rows = child, rows
                return rows
        return self._opened_copy(child, path)

    def _part(self, name: str, low: int, high: int) -> list[np.ndarray]:
        opened = self._open(name)
        if isinstance(opened, _RemoteRows):
            return [opened.rows(low, high)]
        try:
            found = pieces(opened, low, high)
        except DataRefused as error:
            raise self._told(error, name) from None
        if high == self._known[name]:
            self._copy.remove()
        return found

    def _opened_copy(self, child: Child, path: ObjectPath) -> Any:
        suffix = path.suffix if format_of_name(path.suffix) else ""
        try:
            return open_source(self._copy.of(path, child, suffix), vectors=self.vectors)
        except DataRefused as error:
            raise self._told(error, child.name) from None

    def _told(self, error: DataRefused, name: str) -> DataRefused:
        """Return an error of a copy as one of the object."""
        return DataRefused(str(error).replace(str(self._copy.file), str(self.path / name)))


@dataclass(frozen=True)
class _RemoteRows:
    """The rows of an ``.npy`` object, each read where it is."""

    path: ObjectPath
    child: Child
    n_features: int
    dtype: np.dtype[Any]
    n_rows: int
    offset: int

    @classmethod
    def of(cls, path: ObjectPath, child: Child) -> _RemoteRows | None:
        """Open an object; None if its rows are not in one piece each."""
        size = child.size or 0
        head = io.BytesIO(read_part(path, child, 0, min(size, _NPY_HEADER)))
        try:
            shape, fortran, dtype = read_header(head, np.lib.format.read_magic(head))
        except (ValueError, EOFError) as error:
            raise DataRefused(f"{path}: no readable .npy file ({error})") from error
        if fortran:
            return None
        width = row_width(shape, dtype, str(path))
        found = cls(path, child, width, dtype, shape[0], head.tell())
        expected = found._place(shape[0])
        if size < expected:
            raise DataRefused(
                f"{path}: expected {expected:,} bytes for shape {shape} of {dtype}, got {size:,}: cut off"
            )
        return found

    def rows(self, low: int, high: int) -> np.ndarray:
        """Return some rows, flattened."""
        data = read_part(self.path, self.child, self._place(low), self._place(high))
        return np.frombuffer(data, self.dtype).reshape(high - low, self.n_features)

    def _place(self, row: int) -> int:
        return self.offset + row * self.n_features * self.dtype.itemsize
