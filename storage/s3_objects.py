"""`S3Objects`: the objects of a run in an object store, and the choice between it and `LocalObjects`.

A commit relies on one request: ``PUT`` with ``If-None-Match: *``, which of any number of writers lets one
succeed.  All else is written under names that nobody else uses, or may be written any number of times.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from typing import TYPE_CHECKING

from .errors import CorruptObject, StoreRefused
from .faults import NO_FAULTS, Faults
from .object_paths import ObjectPath
from .objects import LocalObjects, ObjectRecord
from .paths import check_relative
from .places import each, place, read_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .objects import ObjectStore
    from .places import PathLike


def objects_at(path: PathLike, faults: Faults = NO_FAULTS) -> ObjectStore:
    """Return the store of the objects below a place."""
    found = place(path)
    return S3Objects(found, faults) if isinstance(found, ObjectPath) else LocalObjects(found, faults)


def require_conditions(path: PathLike) -> None:
    """Make sure that the store of a place honours conditional puts, where a commit relies on them.

    Raises
    ------
    StoreRefused
        If it lets a second writer overwrite what the first has made.
    """
    found = place(path)
    if not isinstance(found, ObjectPath):
        return
    probe = found / f".probe-{uuid.uuid4().hex}"
    try:
        if probe.create(b"first") and probe.create(b"second"):
            raise StoreRefused(
                f"{found}: this object store ignores `If-None-Match: *`, so two drivers could overwrite each "
                "other's rounds; use one that honours it, or keep the run on a disk"
            )
    finally:
        probe.unlink()


class S3Objects:
    """Objects of an object store; the verbs are those of `ObjectStore`.

    Parameters
    ----------
    root : ObjectPath
        Where the store begins.
    faults : Faults
        Told of the points within `create`.
    """

    def __init__(self, root: ObjectPath, faults: Faults = NO_FAULTS) -> None:
        self.root = root
        self._faults = faults
        self._staged: dict[str, ObjectPath] = {}

    def path(self, key: str) -> ObjectPath:
        """Return the place of a key; `UnsafeObject` if it leaves the store."""
        return self.root / check_relative(key) if key else self.root

    def create(self, key: str, data: bytes) -> bool:
        """Make an object durable under ``key``; return False, changing nothing, if there is another one."""
        path = self.path(key)
        self._faults.reach("create.before_write")
        self._faults.reach("create.before_link")
        made = path.create(data)
        self._faults.reach("create.after_link")
        return made

    def put(self, key: str, data: bytes) -> None:
        """Make ``data`` the content of ``key``, at once, whatever was there."""
        self.path(key).put(data)

    def read(self, key: str, max_bytes: int = 16 * 2**20) -> bytes:
        """Return an object's bytes; `CorruptObject` if it is missing or larger than ``max_bytes``."""
        return read_object(self.path(key), max_bytes)

    def read_all(self, keys: Sequence[str], max_bytes: int) -> list[bytes]:
        """Return the bytes of several objects in order."""
        return each(self.root, lambda key: self.read(key, max_bytes), keys)

    def list(self, prefix: str = "") -> list[str]:
        """Return the sorted names directly below ``prefix``."""
        return sorted(child.name for child in self.path(prefix).iterdir())

    def temporaries(self, prefix: str = "") -> tuple[str, ...]:
        """Return nothing: an object is there as a whole or not at all."""
        return ()

    def stage(self, prefix: str) -> ObjectPath:
        """Return a place in memory; what is written there is for `seal`."""
        if prefix in self._staged or self.path(prefix).is_dir():
            raise FileExistsError(f"{self.path(prefix)} exists")
        self._staged[prefix] = self.path(prefix).in_memory()
        return self._staged[prefix]

    def seal(self, prefix: str) -> tuple[ObjectRecord, ...]:
        """Send everything below a staged prefix and return its records, sorted by path."""
        staged = self._staged.pop(prefix)

        def send(name: str) -> ObjectRecord:
            data = (staged / name).read_bytes()
            key = f"{prefix}/{name}"
            self.put(key, data)
            return ObjectRecord(key, len(data), hashlib.sha256(data).hexdigest())

        return tuple(sorted(each(self.root, send, [item["path"] for item in staged.walk()])))

    def fetch(self, prefix: str, records: Sequence[ObjectRecord]) -> ObjectPath:
        """Return a place in memory that holds the recorded objects below ``prefix``, each checked."""
        fetched = self.root.in_memory()

        def bring(record: ObjectRecord) -> None:
            (fetched / record.path).put(self._checked(record))

        each(self.root, bring, records)
        return fetched / prefix

    def check(self, record: ObjectRecord) -> None:
        """Raise `CorruptObject` unless the object has the recorded size and digest."""
        self._checked(record)

    def exists(self, key: str) -> bool:
        """Tell whether there is an object or a prefix of that name."""
        return self.path(key).exists()

    def delete(self, key: str) -> None:
        """Delete an object and all below it; what is gone already is no error."""
        if not key:
            raise ValueError("the root of a store is never deleted")
        self._staged.pop(key, None)
        self.path(key).remove_tree()

    def age(self, key: str) -> float:
        """Return the seconds since the youngest change at or below ``key``; infinite if it is gone."""
        path = self.path(key)
        about = path.about() if key else None
        found = [*path.walk(), *([] if about is None else [about])]
        stamps = [item["last_modified"].timestamp() for item in found]
        return max(0.0, time.time() - max(stamps, default=float("-inf")))

    def _checked(self, record: ObjectRecord) -> bytes:
        path = self.path(record.path)
        data = read_object(path, record.size)
        if len(data) != record.size:
            raise CorruptObject(f"{path} has {len(data):,} bytes instead of the {record.size:,} written")
        digest = hashlib.sha256(data).hexdigest()
        if digest != record.sha256:
            raise CorruptObject(f"{path} has changed: SHA-256 {digest} instead of {record.sha256}")
        return data
