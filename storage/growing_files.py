"""Files that drop into a place, one after the other, and are taken as rows of one stream.

They are taken in the order of their names, so that a new one must sort behind all that are there; they must
stay as they are, and be moved there complete. Names that begin with a dot or end in ``.tmp`` or ``.part`` are
not looked at, and what is of no known format is left out.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import CorruptObject, DataRefused, NothingYet
from .formats import detect_format, open_source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .formats import Source
    from .places import Place

_UNFINISHED = (".tmp", ".part", ".partial")
_PIECE = 8192


class GrowingFiles:
    """Files of vectors, each of any format that tells its number of rows, wherever they are.

    Parameters
    ----------
    path : Path or ObjectPath
        Where they drop.
    vectors : str, optional
        Name of the array in files of several.
    """

    def __init__(self, path: Place, vectors: str | None = None) -> None:
        self.path, self.vectors = path, vectors
        self.left_out: dict[str, str] = {}
        self._known: dict[str, int] = {}  # rows of each file, in order of names
        self._about: tuple[int, np.dtype[Any]] | None = None

    @property
    def n_features(self) -> int:
        """Width of a row."""
        return self._kind()[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return self._kind()[1]

    def available(self, *, ended: bool = False, enough: int | None = None) -> int:
        """Return the rows of all files, or of the first ones that have ``enough``.

        Raises
        ------
        DataRefused
            If a file has gone or is damaged, or a new one sorts before those that were there.
        """
        names = self._names()
        if names[: len(self._known)] != list(self._known):
            odd = sorted(set(names) ^ set(self._known)) or names
            raise DataRefused(
                f"{self.path}: files must be added behind those that are there, in order of their names, and "
                f"stay; look at {odd[0]!r}"
            )
        there = sum(self._known.values())
        for name in names[len(self._known) :]:
            if enough is not None and there >= enough:
                break
            self._known[name] = self._rows_of(name, names[0])
            there += self._known[name]
        return there

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
        content = hashlib.sha256()
        for name in self._first(n_rows):
            content.update(f"{name}\0{self._known[name]}\n".encode())
        return content.hexdigest()

    def record(self, n_rows: int) -> dict[str, np.ndarray]:
        """Return nothing: files that are at hand are looked at again."""
        return {}

    def recall(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take nothing."""

    def close(self) -> None:
        """Do nothing: nothing is kept."""

    def _first(self, n_rows: int) -> list[str]:
        """Return the names of the files that the first rows came from."""
        names, begin = [], 0
        for name, n in self._known.items():
            if begin >= n_rows:
                break
            names.append(name)
            begin += n
        return names

    def _kind(self) -> tuple[int, np.dtype[Any]]:
        """Return width and type of the first file's rows."""
        if self._about is None:
            names = self._names()
            if not names:
                raise NothingYet(f"{self.path}: there are no files yet")
            source = self._open(names[0])
            self._about = source.n_features, np.dtype(source.dtype)
        return self._about

    def _rows_of(self, name: str, first: str) -> int:
        source = self._open(name)
        if source.n_rows is None:
            raise DataRefused(f"{self.path / name}: this format does not tell its rows; use npy or Zarr")
        if source.n_features != self.n_features:
            raise DataRefused(
                f"{self.path / name}: rows of {source.n_features} features, {first} has {self.n_features}; "
                "move the file away and go on"
            )
        return int(source.n_rows)

    def _part(self, name: str, low: int, high: int) -> list[np.ndarray]:
        """Return some rows of a file, in pieces."""
        return pieces(self._open(name), low, high)

    def _names(self) -> list[str]:
        """Return the names of all files that are to be taken, sorted."""
        raise NotImplementedError

    def _open(self, name: str) -> Any:
        """Open a file as a `formats.Source`."""
        raise NotImplementedError


class GrowingFolder(GrowingFiles):
    """A folder of this machine that files are moved into."""

    path: Path

    def _names(self) -> list[str]:
        return sorted(
            child.name
            for child in self.path.iterdir()
            if is_finished(child.name) and (child.name in self._known or self._is_of_vectors(child))
        )

    def _is_of_vectors(self, file: Path) -> bool:
        try:
            detect_format(file)
        except DataRefused as error:
            self.left_out[file.name] = str(error)
            return False
        self.left_out.pop(file.name, None)
        return True

    def _open(self, name: str) -> Any:
        return open_source(self.path / name, vectors=self.vectors)


def pieces(source: Source, low: int, high: int) -> list[np.ndarray]:
    """Return some rows of a source as it comes."""
    parts, done = [], 0
    for piece, _ in source.blocks(_PIECE):
        if done >= high:
            break
        parts.append(np.asarray(piece)[max(low - done, 0) : high - done])
        done += len(piece)
    return [part for part in parts if len(part)]


def is_finished(name: str) -> bool:
    """Tell whether a file of this name is whole, as far as its name says."""
    return not name.startswith(".") and not name.endswith(_UNFINISHED)
