"""Sources that grow while they are read: a Zarr array that is appended to, or a folder that files drop into.

Rows are only ever appended. Of an array a row counts as there once its whole chunk is, of a folder once its
file is; files are taken in the order of their names, so that a new one must sort behind all that are there,
and must be moved into the folder complete. Names that begin with a dot or end in ``.tmp`` or ``.part`` are
not looked at, and what is of no known format is left out.
"""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .chunks import require_chunks
from .documents import read_json
from .errors import CorruptObject, DataRefused
from .formats import detect_format, open_source
from .formats.source import row_width
from .formats.zarr import chosen_array
from .metadata import check_array_metadata
from .safe import check_array

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

_UNFINISHED = (".tmp", ".part", ".partial")
_PIECE = 8192
SETTLE = 2.0  # seconds


class Growing(Protocol):
    """What both kinds have in common."""

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

    def available(self, *, ended: bool = False) -> int:
        """Return how many rows are there now; with ``ended`` those of a last incomplete chunk, too."""
        ...

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows that are there, as stored."""
        ...

    def fingerprint(self, n_rows: int) -> str:
        """Return what tells where the first rows came from, as far as that can be told without reading."""
        ...


def open_growing(
    path: str | os.PathLike[str], *, vectors: str | None = None, settle: float = SETTLE
) -> Growing:
    """Open a growing Zarr array, a group with one, or a folder of files.

    Raises
    ------
    DataRefused
        If there is nothing to take rows from (yet).
    """
    path = Path(path)
    if not path.is_dir():
        raise DataRefused(f"{path}: expected a Zarr array or a folder that files drop into, there is none")
    if any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
        return GrowingArray(chosen_array(path, vectors), settle)
    return GrowingFolder(path, vectors)


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

    def available(self, *, ended: bool = False) -> int:
        """Return the rows up to the first chunk that is absent, or that is not full unless ``ended``."""
        while (wait := (self.path / "zarr.json").stat().st_mtime + self.settle - time.time()) > 0:
            time.sleep(min(wait, self.settle))
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
        for place in range(math.prod(layout.grid[1:])):
            rest = np.unravel_index(place, layout.grid[1:]) if layout.grid[1:] else ()
            file = self.path / layout.key((number, *(int(i) for i in rest)))
            if not file.is_file():
                return None
            about = file.stat()
            found.append((about.st_mtime_ns, about.st_size))
        return tuple(found)

    def _layout(self) -> Any:
        return check_array_metadata(read_json(self.path / "zarr.json"), str(self.path), foreign=True)


@dataclass
class GrowingFolder:
    """A folder of files of vectors, each of any format that tells its number of rows."""

    path: Path
    vectors: str | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    _known: dict[str, int] = field(default_factory=dict)  # rows of each file, in order of names

    @property
    def n_features(self) -> int:
        """Width of a row."""
        return self._first().n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return np.dtype(self._first().dtype)

    def available(self, *, ended: bool = False) -> int:
        """Return the rows of all files.

        Raises
        ------
        DataRefused
            If a file has gone, or a new one sorts before those that were there.
        """
        names = self._names()
        if names[: len(self._known)] != list(self._known):
            odd = sorted(set(names) ^ set(self._known)) or names
            raise DataRefused(
                f"{self.path}: files must be added behind those that are there, in order of their names, and "
                f"stay; look at {odd[0]!r}"
            )
        for name in names[len(self._known) :]:
            source = self._open(name)
            if source.n_rows is None:
                raise DataRefused(f"{self.path / name}: this format does not tell its rows; use npy or Zarr")
            if source.n_features != self.n_features:
                raise DataRefused(
                    f"{self.path / name}: rows of {source.n_features} features, {names[0]} has "
                    f"{self.n_features}; move the file away and go on"
                )
            self._known[name] = int(source.n_rows)
        return sum(self._known.values())

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows that are there."""
        found, begin = [], 0
        for name, n in self._known.items():
            low, high = max(start - begin, 0), min(stop - begin, n)
            if low < high:
                found += self._part(name, low, high)
            begin += n
        rows = np.concatenate(found) if found else np.empty((0, self.n_features), self.dtype)
        if len(rows) != stop - start:
            raise CorruptObject(
                f"{self.path}: expected rows {start} to {stop}, the files gave {len(rows)}; one has changed"
            )
        return rows

    def fingerprint(self, n_rows: int) -> str:
        """Return the SHA-256 of names and lengths of the files that the first rows came from."""
        content, begin = hashlib.sha256(), 0
        for name, n in self._known.items():
            if begin >= n_rows:
                break
            content.update(f"{name}\0{n}\n".encode())
            begin += n
        return content.hexdigest()

    def _part(self, name: str, low: int, high: int) -> list[np.ndarray]:
        parts, done = [], 0
        for piece, _ in self._open(name).blocks(_PIECE):
            if done >= high:
                break
            parts.append(np.asarray(piece)[max(low - done, 0) : high - done])
            done += len(piece)
        return [part for part in parts if len(part)]

    def _names(self) -> list[str]:
        return sorted(
            child.name
            for child in self.path.iterdir()
            if not child.name.startswith(".")
            and not child.name.endswith(_UNFINISHED)
            and (child.name in self._known or self._is_of_vectors(child))
        )

    def _is_of_vectors(self, file: Path) -> bool:
        try:
            detect_format(file)
        except DataRefused as error:
            self.left_out[file.name] = str(error)
            return False
        self.left_out.pop(file.name, None)
        return True

    def _first(self) -> Any:
        names = self._names()
        if not names:
            raise DataRefused(f"{self.path}: there are no files yet")
        return self._open(names[0])

    def _open(self, name: str) -> Any:
        return open_source(self.path / name, vectors=self.vectors)
