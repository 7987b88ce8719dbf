"""Reading what was listed, and nothing else: an object that has been replaced since is an error, not data."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .claims import mark, remove_abandoned
from .errors import CorruptObject
from .object_paths import NO_ETAG
from .s3 import library, repeated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .object_paths import Child, ObjectPath

PREFIX = "bitfleet-object-"
_PIECE_BYTES = 2**20


def read_part(path: ObjectPath, child: Child, start: int, stop: int) -> bytes:
    """Return bytes ``start`` to ``stop`` of an object.

    Raises
    ------
    CorruptObject
        If it is not the one that was listed as ``child``.
    """
    if stop <= start:
        return b""

    def read() -> bytes:
        return bytes(_get(path, child, range=(start, stop)).bytes())

    with _unchanged(path):
        data = repeated(read, path)
    if len(data) != stop - start:
        raise CorruptObject(f"{path}: bytes {start:,} to {stop:,} are not there; it has changed")
    return data


class LocalCopy:
    """At most one object at a time as a file of this machine, in its folder for temporary files."""

    def __init__(self) -> None:
        self.file: Path | None = None
        self._holds: tuple[str, Child] | None = None
        self._folder: Any = None

    def of(self, path: ObjectPath, child: Child, suffix: str) -> Path:
        """Return the file that holds an object, fetched if need be; `CorruptObject` as `read_part`."""
        if self.file is not None and self._holds == (str(path), child):
            return self.file
        self.remove()
        remove_abandoned(Path(tempfile.gettempdir()), PREFIX)
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX)
        mark(Path(self._folder.name))
        file = Path(self._folder.name, f"object{suffix}")
        with _unchanged(path):
            repeated(lambda: _fetch(path, child, file), path)
        self.file, self._holds = file, (str(path), child)
        return file

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self.file = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _fetch(path: ObjectPath, child: Child, to: Path) -> None:
    with to.open("wb") as file:
        for piece in _get(path, child).stream(min_chunk_size=_PIECE_BYTES):
            file.write(piece)
        if file.tell() != child.size:
            raise CorruptObject(f"{path} has {file.tell():,} bytes, it was listed with {child.size:,}")


def _get(path: ObjectPath, child: Child, **options: Any) -> Any:
    if not child.e_tag.startswith(NO_ETAG):
        options["if_match"] = child.e_tag
    return library().get(path.store, path.key, options=options)


@contextmanager
def _unchanged(path: ObjectPath) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, library().exceptions.PreconditionError):
        raise CorruptObject(
            f"{path} was replaced or removed since it was listed; put back what was there"
        ) from None
