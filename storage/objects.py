"""Where a run's bytes are kept: named objects that come into being whole or not at all.

`ObjectStore` is all that manifests and checkpoints ask of a store; that of object stores is in `s3_objects`.
Keys are relative POSIX paths.  `LocalObjects` keeps its promises by write, fsync, exclusive hard link, fsync
of the folder: a rename would silently replace what another driver has written.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .errors import CorruptObject
from .faults import NO_FAULTS, Faults
from .files import (
    TEMPORARY,
    child_names,
    hash_file,
    link,
    make_folder,
    modified,
    open_file,
    remove,
    sync_and_hash,
)
from .paths import resolve_inside, sync_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .places import Place


@dataclass(frozen=True, order=True)
class ObjectRecord:
    """One object as a manifest names it.

    Attributes
    ----------
    path : str
        Key relative to the store's root.
    size : int
        Bytes.
    sha256 : str
        Hex digest of the bytes.
    """

    path: str
    size: int
    sha256: str


class ObjectStore(Protocol):
    """What a run needs of the place where it is kept."""

    def path(self, key: str) -> Place:
        """Return the place of a key; `UnsafeObject` if it leaves the store."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Make an object durable under ``key``; return False, changing nothing, if there is one.

        Where answers can be lost, one with the same bytes counts as made by this call.
        """
        ...

    def put(self, key: str, data: bytes) -> None:
        """Make ``data`` the content of ``key``, at once, whatever was there."""
        ...

    def read(self, key: str, max_bytes: int) -> bytes:
        """Return an object's bytes."""
        ...

    def read_all(self, keys: Sequence[str], max_bytes: int) -> list[bytes]:
        """Return the bytes of several objects in order."""
        ...

    def list(self, prefix: str = "") -> list[str]:
        """Return the sorted names directly below ``prefix``, without unfinished writes."""
        ...

    def temporaries(self, prefix: str = "") -> tuple[str, ...]:
        """Return the keys of unfinished writes directly below ``prefix``."""
        ...

    def stage(self, prefix: str) -> Place:
        """Return an empty place for new objects; what is written there is for `seal`."""
        ...

    def seal(self, prefix: str) -> tuple[ObjectRecord, ...]:
        """Make everything below a staged prefix durable and return its records, sorted by path."""
        ...

    def fetch(self, prefix: str, records: Sequence[ObjectRecord]) -> Place:
        """Return a place that holds the recorded objects below ``prefix``, each checked as by `check`."""
        ...

    def check(self, record: ObjectRecord) -> None:
        """Raise `CorruptObject` unless the object has the recorded size and digest."""
        ...

    def exists(self, key: str) -> bool:
        """Tell whether there is an object or a prefix of that name."""
        ...

    def delete(self, key: str) -> None:
        """Delete an object, or all below a prefix; what is gone already is no error."""
        ...

    def age(self, key: str) -> float:
        """Return the seconds since the youngest change at or below ``key``."""
        ...


class LocalObjects:
    """Objects as files of a local or shared POSIX file system.

    Parameters
    ----------
    root : path
        Folder of the store; made when something is written.
    faults : Faults
        Told of the points within `create`.
    """

    def __init__(self, root: str | os.PathLike[str], faults: Faults = NO_FAULTS) -> None:
        self.root = Path(os.path.abspath(root))
        self._faults = faults

    def path(self, key: str) -> Path:
        """Return the file of a key.

        Raises
        ------
        UnsafeObject
            If the key is absolute, contains ``..``, or goes through a symbolic link.
        """
        path: Path = resolve_inside(self.root, key) if key else self.root
        return path

    def create(self, key: str, data: bytes) -> bool:
        """Make an object durable under ``key``; return False, changing nothing, if there is one.

        Raises
        ------
        OSError
            If writing or fsync fails; then ``key`` does not exist, unless the folder's fsync failed.
        StorageError
            If the file system has no hard links.
        """
        path = self.path(key)
        make_folder(path.parent)
        temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
        self._faults.reach("create.before_write")
        try:
            self._write(temporary, data)
            self._faults.reach("create.before_link")
            try:
                link(temporary, path)
            except FileExistsError:
                return False
            self._faults.reach("create.after_link")
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        sync_folder(path.parent)
        return True

    def put(self, key: str, data: bytes) -> None:
        """Make ``data`` the content of ``key``, at once, whatever was there."""
        path = self.path(key)
        make_folder(path.parent)
        temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            self._write(temporary, data)
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        sync_folder(path.parent)

    def read(self, key: str, max_bytes: int = 16 * 2**20) -> bytes:
        """Return an object's bytes.

        Raises
        ------
        CorruptObject
            If it is missing or no file, or larger than ``max_bytes``.
        """
        path = self.path(key)
        with open_file(path) as file:
            data: bytes = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise CorruptObject(f"{path} has more than {max_bytes:,} bytes: it is not what was written")
        return data

    def read_all(self, keys: Sequence[str], max_bytes: int) -> list[bytes]:
        """Return the bytes of several objects in order."""
        return [self.read(key, max_bytes) for key in keys]

    def list(self, prefix: str = "") -> list[str]:
        """Return the sorted names directly below ``prefix``, without unfinished writes."""
        return sorted(name for name in child_names(self.path(prefix)) if not name.startswith(TEMPORARY))

    def temporaries(self, prefix: str = "") -> tuple[str, ...]:
        """Return the keys of unfinished writes directly below ``prefix``."""
        names = (name for name in child_names(self.path(prefix)) if name.startswith(TEMPORARY))
        return tuple(sorted(f"{prefix}/{name}" if prefix else name for name in names))

    def stage(self, prefix: str) -> Path:
        """Return the folder of ``prefix``, made empty; what is written there is for `seal`."""
        path = self.path(prefix)
        make_folder(path.parent)
        path.mkdir()
        return path

    def seal(self, prefix: str) -> tuple[ObjectRecord, ...]:
        """Make everything below ``prefix`` durable and return its records, sorted by path."""
        records = []
        top = self.path(prefix)
        for folder, _, files in os.walk(top, topdown=False):
            for name in files:
                path = Path(folder, name)
                size, digest = sync_and_hash(path)
                records.append(ObjectRecord(path.relative_to(self.root).as_posix(), size, digest))
            sync_folder(Path(folder))
        sync_folder(top.parent)
        return tuple(sorted(records))

    def fetch(self, prefix: str, records: Sequence[ObjectRecord]) -> Path:
        """Return the folder that holds the objects below ``prefix``, after checking each."""
        for record in records:
            self.check(record)
        return self.path(prefix)

    def check(self, record: ObjectRecord) -> None:
        """Raise `CorruptObject` unless the object has the recorded size and digest."""
        path = self.path(record.path)
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != record.size:
                raise CorruptObject(f"{path} has {size:,} bytes instead of the {record.size:,} written")
            digest = hash_file(file)
        if digest != record.sha256:
            raise CorruptObject(f"{path} has changed: SHA-256 {digest} instead of {record.sha256}")

    def exists(self, key: str) -> bool:
        """Tell whether there is a file or folder of that name."""
        return self.path(key).exists()

    def delete(self, key: str) -> None:
        """Delete a file, or a folder with all below it; what is gone already is no error."""
        path = self.path(key)
        if path == self.root:
            raise ValueError("the root of a store is never deleted")
        remove(path)

    def age(self, key: str) -> float:
        """Return the seconds since the youngest change at or below ``key``; infinite if it is gone.

        Never less than 0, though the clock may have been set back since.
        """
        path = self.path(key)
        stamps = [modified(path)]
        for folder, _, files in os.walk(path):
            stamps += [modified(Path(folder)), *(modified(Path(folder, name)) for name in files)]
        return max(0.0, time.time() - max(stamps))

    def _write(self, path: Path, data: bytes) -> None:
        with open(path, "xb") as file:
            file.write(data)
            self._faults.reach("create.before_fsync")
            file.flush()
            os.fsync(file.fileno())
