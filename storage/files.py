"""File operations for which a crash may come at any instant: durable names, exact errors."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import uuid
from typing import TYPE_CHECKING, BinaryIO

from .errors import CorruptObject, DestinationExists, StorageError
from .paths import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEMPORARY = ".tmp-"  # begins the name of what is being written
_READ_BYTES = 2**20
_NO_LINKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def child_names(path: Path) -> list[str]:
    """Return the names in a folder; none if there is no such folder."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def make_folder(path: Path) -> None:
    """Make a folder and its parents, each durable in its own parent."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        sync_folder(folder.parent)


def link(source: Path, target: Path) -> None:
    """Give a file a second name, at once; `FileExistsError` if that name is taken."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except PermissionError as error:
        if os.access(target.parent, os.W_OK):  # writable, so it is links that the file system refuses
            raise StorageError(_no_links(target)) from error
        raise
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise StorageError(_no_links(target)) from error
        raise


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield where to write a new file, which takes the name ``path`` when the block has ended without error.

    Raises
    ------
    DestinationExists
        If anything is at ``path``, before or afterwards; it is left as it was.
    """
    _refuse_taken(path)
    temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}{path.suffix}"
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # at once, and never over another file
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            _refuse_taken(path)
            temporary.replace(path)
        sync_folder(path.parent)
    except FileExistsError as error:
        raise DestinationExists(f"{path} exists; choose another name or remove it") from error
    finally:
        temporary.unlink(missing_ok=True)


def _refuse_taken(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise DestinationExists(f"{path} exists; choose another name or remove it")


@contextlib.contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open for reading; `CorruptObject` if that is no file or not there."""
    try:
        file = os.fdopen(open_regular(path, os.O_RDONLY), "rb")
    except FileNotFoundError as error:
        raise CorruptObject(f"{path} is missing") from error
    except (IsADirectoryError, NotADirectoryError) as error:
        raise CorruptObject(f"{path} is expected to be a file") from error
    with file:
        yield file


def open_regular(path: Path, flags: int) -> int:
    """Return a descriptor of a file; `IsADirectoryError` for what else has the name, such as a pipe.

    A stranger's folder may hold pipes, and who opens one for reading waits for whoever writes into it.
    """
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, "no ordinary file", str(path))
    return descriptor


def hash_file(file: BinaryIO) -> str:
    """Return the SHA-256 of the rest of a file as hex."""
    digest = hashlib.sha256()
    while piece := file.read(_READ_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def sync_and_hash(path: Path) -> tuple[int, str]:
    """Make a file durable; return its size and SHA-256."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size, hash_file(file)


def modified(path: Path) -> float:
    """Return the time of the last change, minus infinity if there is no such file or folder."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return float("-inf")


def remove(path: Path) -> None:
    """Delete without following links; two processes may do so at once."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):  # Linux says the one of a folder, other systems the other
        if not path.is_dir() or path.is_symlink():
            raise
        for child in list(path.iterdir()):
            remove(child)
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()


def _no_links(target: Path) -> str:
    return (
        f"the file system of {target.parent} has no hard links, without which two drivers could overwrite "
        "each other; keep the run on a POSIX file system"
    )
