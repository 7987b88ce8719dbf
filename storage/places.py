"""Where things are kept: a folder of this machine, or an address ``s3://bucket/prefix``.

`place` turns what a caller gave into a `pathlib.Path` or an `ObjectPath`; both have the verbs that storage
needs.  The functions beside it are those that the two do differently.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from .errors import CorruptObject, StoreRefused
from .files import make_folder as make_local_folder
from .files import open_file
from .files import remove as remove_local
from .object_paths import SCHEME, ObjectPath
from .paths import sync_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Place: TypeAlias = "Path | ObjectPath"
PathLike: TypeAlias = "str | os.PathLike[str]"

_T = TypeVar("_T")
_R = TypeVar("_R")
_MAX_TOKEN_BYTES = 64
_SCHEMES = ("gs", "gcs", "az", "abfs", "abfss", "http", "https", "hdfs", "file", "memory")
_AT_ONCE = 16  # requests to an object store: each waits, none computes


def place(path: PathLike) -> Place:
    """Return a place, absolute.

    A `pathlib.Path` made of ``s3://…``, which has lost a slash, is understood.

    Raises
    ------
    StoreRefused
        If it is an address of another kind, or holds credentials.
    """
    if isinstance(path, ObjectPath):
        return path
    text = os.fspath(path)
    if text.startswith(SCHEME):
        return ObjectPath.parse(text)
    if not isinstance(path, str) and text.startswith("s3:/"):
        return ObjectPath.parse(SCHEME + text.removeprefix("s3:/"))
    scheme, colon, _ = text.partition(":/")  # of two slashes `pathlib` leaves one
    if colon and (text.startswith(f"{scheme}://") or scheme in _SCHEMES):
        raise StoreRefused(f"expected a path or s3://bucket/prefix, got {scheme}://…")
    return Path(os.path.abspath(text))


def is_remote(path: object) -> bool:
    """Tell whether a path is an address in an object store."""
    if isinstance(path, ObjectPath):
        return True
    return isinstance(path, str | os.PathLike) and isinstance(place(path), ObjectPath)


def local(path: PathLike, what: str) -> Path:
    """Return a path of this machine; `StoreRefused` saying that ``what`` has to be one."""
    found = place(path)
    if isinstance(found, ObjectPath):
        raise StoreRefused(f"{found}: {what} must be on a file system, not in an object store")
    return found


def inside(path: Place, folder: Place) -> str | None:
    """Return the name of ``path`` from ``folder`` on, None if it does not lie in it."""
    if isinstance(path, ObjectPath) != isinstance(folder, ObjectPath):
        return None
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else None  # type: ignore[arg-type]


def make_folder(path: Place) -> None:
    """Make a folder and its parents durable; in an object store there is nothing to make."""
    if not isinstance(path, ObjectPath):
        make_local_folder(path)


def taken(path: Place) -> bool:
    """Tell whether anything, also a dangling link, has this name."""
    return path.exists() if isinstance(path, ObjectPath) else os.path.lexists(path)


def read_object(path: Place, max_bytes: int) -> bytes:
    """Return a file's bytes; `CorruptObject` if it is absent or larger than ``max_bytes``."""
    if isinstance(path, ObjectPath):
        try:
            return path.read_bytes(max_bytes)
        except FileNotFoundError:
            raise _absent(path) from None
    with open_file(path) as file:
        data: bytes = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise CorruptObject(f"{path} has more than {max_bytes:,} bytes: it is not what was written")
    return data


def edges(path: Place, head: int, tail: int, size: int | None = None) -> tuple[int, bytes, bytes]:
    """Return a file's size, its first ``head`` and its last ``tail`` bytes (fewer if it is shorter)."""
    if isinstance(path, ObjectPath):
        if size is None:
            about = path.about()
            if about is None:
                raise FileNotFoundError(2, "there is no such object", str(path))
            size = int(about["size"])
        first = path.read_range(0, min(head, size))
        return size, first, path.read_range(size - min(tail, size), size)
    with open_file(path) as stream:
        first = stream.read(head)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - tail))
        return size, first, stream.read(tail)


def each(path: Place, function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Return ``function(item)`` for all items in order; those that wait for an object store wait together."""
    items = list(items)
    if not isinstance(path, ObjectPath) or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="bitfleet-objects") as pool:
        return list(pool.map(function, items))


def remove_tree(path: Place) -> None:
    """Delete all at and below a place, as far as that can be done."""
    if isinstance(path, ObjectPath):
        path.remove_tree()
    else:
        shutil.rmtree(path, ignore_errors=True)


def remove(path: Place) -> None:
    """Delete all at and below a place, without following links; raise if that cannot be done."""
    if isinstance(path, ObjectPath):
        path.remove_tree()
    else:
        remove_local(path)


def sync(path: Place) -> None:
    """Flush all below a place to disk; what is in an object store is durable when it is there."""
    if not isinstance(path, ObjectPath):
        sync_tree(path)


def version(path: Place) -> Any:
    """Return what changes when another file takes this name; `FileNotFoundError` if there is none."""
    if isinstance(path, ObjectPath):
        about = path.about()
        if about is None:
            raise FileNotFoundError(2, "there is no such object", str(path))
        return str(about["e_tag"]), int(about["size"])
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


@contextmanager
def temporary_place(beside: Place | None = None, prefix: str = "bitfleet-") -> Iterator[Place]:
    """Yield an empty place that is removed in the end: in ``beside``, or in this machine's own folder."""
    if not isinstance(beside, ObjectPath):
        with tempfile.TemporaryDirectory(prefix=prefix, dir=beside) as name:
            yield Path(name)
        return
    scratch = beside / f"{prefix}{uuid.uuid4().hex}"
    try:
        yield scratch
    finally:
        scratch.remove_tree()


@dataclass(frozen=True)
class Probe:
    """Reads a token where it runs: who cannot, does not see the place."""

    path: str

    def __call__(self) -> str:
        """Return the token."""
        return read_object(place(self.path), _MAX_TOKEN_BYTES).decode()

    @classmethod
    @contextmanager
    def written(cls, folder: ObjectPath) -> Iterator[tuple[Probe, str]]:
        """Yield a probe and the token that it is to read in ``folder``; both are gone in the end."""
        token = uuid.uuid4().hex
        path = folder / f".probe-{token}"
        path.put(token.encode())
        try:
            yield cls(str(path)), token
        finally:
            path.unlink()


def _absent(path: ObjectPath) -> CorruptObject:
    return CorruptObject(f"{path} is expected to be a file" if path.is_dir() else f"{path} is missing")
