"""Sources that grow while they are read: a Zarr array that is appended to, or files that drop into a place.

Rows are only ever appended. Of an array a row counts as there once its whole chunk is, of a folder or a
bucket once its file is (`growing_files`, `growing_objects`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .chunks import require_chunks
from .documents import read_json
from .errors import NothingYet, StoreRefused
from .formats.source import row_width
from .formats.zarr import chosen_array
from .growing_files import GrowingFolder
from .growing_objects import GrowingObjects
from .metadata import check_array_metadata
from .object_paths import ObjectPath
from .places import place
from .safe import check_array

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .places import PathLike

_MARKERS = ("zarr.json", ".zarray", ".zgroup")
SETTLE = 2.0  # seconds


class Growing(Protocol):
    """What all kinds have in common."""

    @property
    def n_features(self) -> int:
        """Width of a row."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        ...

    @property
    def left_out(self) -> Mapping[str, str]:
        """What lies there and is none of it, by name, and why."""
        ...

    def available(self, *, ended: bool = False, enough: int | None = None) -> int:
        """Return how many rows are there now; with ``ended`` those of a last incomplete chunk, too.

        Whoever needs no more than ``enough`` rows may get a smaller number than all, but not below that.
        """
        ...

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows that are there, as stored."""
        ...

    def fingerprint(self, n_rows: int) -> str:
        """Return what tells where the first rows came from, as far as that can be told without reading."""
        ...

    def record(self, n_rows: int) -> dict[str, np.ndarray]:
        """Return arrays that say which files the first rows came from, where this is to be remembered."""
        ...

    def recall(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take what `record` returned, before anything is asked that depends on it."""
        ...

    def close(self) -> None:
        """Remove what was kept on the way."""
        ...


def open_growing(path: PathLike, *, vectors: str | None = None, settle: float = SETTLE) -> Growing:
    """Open a growing Zarr array, a group with one, a folder of files, or a prefix of objects.

    Raises
    ------
    NothingYet
        If there is nothing to take rows from yet.
    StoreRefused
        If it is a Zarr array in an object store.
    """
    found = place(path)
    is_zarr = any((found / name).exists() for name in _MARKERS)
    if isinstance(found, ObjectPath):
        if is_zarr:
            raise StoreRefused(
                f"{found}: a Zarr array that grows must be on a file system, not in an object store; in a "
                "bucket a stream takes files (npy, Parquet, ...) that are put below a prefix"
            )
        return GrowingObjects(found, vectors)
    if not found.is_dir():
        raise NothingYet(f"{found}: expected a Zarr array or a folder that files drop into, there is none")
    if is_zarr:
        _settled(found / "zarr.json", settle)
        return GrowingArray(chosen_array(found, vectors), settle)
    return GrowingFolder(found, vectors)


@dataclass
class GrowingArray:
    """A Zarr format 3 array of others that is appended to along its first axis.

    Who appends makes the array longer first and writes then; until it is written, a chunk that was not full
    is there with fill values for rows.  So a last chunk is not taken before it is full, nor, once seen while
    it was not, before its file has changed, and nothing for ``settle`` seconds after a change of length.
    """

    path: Path
    settle: float = SETTLE
    left_out: dict[str, str] = field(default_factory=dict)
    _whole: int = 0  # leading chunks that are known to be there
    _partial: tuple[int, tuple[tuple[int, int], ...]] | None = None  # a chunk seen before it was full

    @property
    def n_features(self) -> int:
        """Width of a row."""
        layout = self._layout()
        return row_width(layout.shape, layout.dtype, str(self.path))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return np.dtype(self._layout().dtype)

    def available(self, *, ended: bool = False, enough: int | None = None) -> int:
        """Return the rows up to the first chunk that is absent, or that is not full unless ``ended``."""
        _settled(self.path / "zarr.json", self.settle)
        layout = self._layout()
        n, height = layout.shape[0], layout.chunks[0]
        while (self._whole + 1) * height <= n and self._is_written(layout, self._whole):
            self._whole += 1
        there = self._whole * height
        if there < n and (stamp := self._stamp(layout, self._whole)) is not None:
            if n < there + height and self._partial is None:
                self._partial = self._whole, stamp
            return n if ended and n < there + height else there
        return there

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows that are there; `CorruptObject` if a chunk of them is not, or not readable."""
        array = check_array(self.path, foreign=True, fill=True)
        rows = array.rows(start, stop)
        require_chunks(self.path, array.layout, start, stop)  # whatever is absent elsewhere
        return rows.reshape(len(rows), -1)

    def fingerprint(self, n_rows: int) -> str:
        """Return nothing: chunks have no names of their own."""
        return ""

    def record(self, n_rows: int) -> dict[str, np.ndarray]:
        """Return nothing, as `fingerprint`."""
        return {}

    def recall(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take nothing."""

    def close(self) -> None:
        """Do nothing: nothing is kept."""

    def _is_written(self, layout: Any, number: int) -> bool:
        """Tell whether a chunk that should be full is there, and other than it was when it was not full."""
        stamp = self._stamp(layout, number)
        if stamp is None or self._partial == (number, stamp):
            return False
        self._partial = None
        return True

    def _stamp(self, layout: Any, number: int) -> tuple[tuple[int, int], ...] | None:
        """Return times and sizes of a row of chunks' files; None if one is absent."""
        found = []
        for column in range(math.prod(layout.grid[1:])):
            rest = np.unravel_index(column, layout.grid[1:]) if layout.grid[1:] else ()
            file = self.path / layout.key((number, *(int(i) for i in rest)))
            if not file.is_file():
                return None
            about = file.stat()
            found.append((about.st_mtime_ns, about.st_size))
        return tuple(found)

    def _layout(self) -> Any:
        return check_array_metadata(read_json(self.path / "zarr.json"), str(self.path), foreign=True)


def _settled(file: Path, settle: float) -> None:
    """Wait until a file has not changed for so many seconds."""
    while file.exists() and (wait := file.stat().st_mtime + settle - time.time()) > 0:
        time.sleep(min(wait, settle))
