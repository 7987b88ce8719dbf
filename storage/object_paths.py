"""`ObjectPath`: an address ``s3://bucket/key``, with the verbs of `pathlib.Path` that storage needs.

There are no folders in an object store: a folder is there as long as a key begins with its name.  An
`ObjectPath` is an address and nothing else; where it is used, the client is opened from that process's
environment.  So it can be pickled into a task graph without carrying credentials.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import CorruptObject, StoreRefused, StoreUnavailable
from .paths import check_relative
from .s3 import bucket, calling, library, repeated

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEME = "s3://"
NO_ETAG = "of "  # begins what stands for the ETag where a store has none
_DELETED_AT_ONCE = 1000


class Child(NamedTuple):
    """What lies directly in a place of an object store.

    Attributes
    ----------
    name : str
    size : int or None
        Bytes; None for what is no object, but begins the keys of others.
    e_tag : str
        What changes with the content; the time of the last change where a store has none.
    """

    name: str
    size: int | None
    e_tag: str


@functools.total_ordering
class ObjectPath:
    """The address of an object, or of all that begin with it.

    Parameters
    ----------
    bucket : str
    key : str
        Without a slash at either end; empty for the bucket itself.
    memory : obstore.store.MemoryStore, optional
        Objects of this process instead of a bucket's.
    """

    __slots__ = ("_memory", "bucket", "key")

    def __init__(self, bucket: str, key: str = "", memory: Any = None) -> None:
        self.bucket = bucket
        self.key = check_relative(key) if key else ""
        self._memory = memory

    @classmethod
    def parse(cls, address: str) -> ObjectPath:
        """Return the path of ``s3://bucket/key``.

        Raises
        ------
        StoreRefused
            If it names no bucket, or holds a name and password.
        UnsafeObject
            If it leaves its place by ``..``.
        """
        name, _, key = address.removeprefix(SCHEME).partition("/")
        if "@" in name or ":" in name:
            raise StoreRefused(
                "expected s3://bucket/key without credentials; give them by the environment (AWS_…)"
            )
        if not name:
            raise StoreRefused(f"expected s3://bucket/key, got {address!r}")
        return cls(name, key.strip("/"))

    def in_memory(self) -> ObjectPath:
        """Return a place of the same name in this process's memory, empty."""
        return ObjectPath(self.bucket, self.key, library().store.MemoryStore())

    @property
    def store(self) -> Any:
        """The client, opened from this process's environment."""
        return bucket(self.bucket) if self._memory is None else self._memory

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        stem, dot, ending = self.name.rpartition(".")
        return dot + ending if stem else ""

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return self.name.removesuffix(self.suffix)

    @property
    def parent(self) -> ObjectPath:
        """What it lies in; the bucket lies in itself."""
        return self._at(self.key.rpartition("/")[0])

    def __truediv__(self, name: object) -> ObjectPath:
        return self._at(f"{self.key}/{name}" if self.key else str(name))

    def is_relative_to(self, other: object) -> bool:
        """Tell whether it is ``other`` or lies in it."""
        if not isinstance(other, ObjectPath) or other.bucket != self.bucket:
            return False
        return not other.key or self.key == other.key or self.key.startswith(other.key + "/")

    def relative_to(self, other: ObjectPath) -> str:
        """Return the key below ``other``."""
        if not self.is_relative_to(other):
            raise ValueError(f"{self} does not lie in {other}")
        return self.key[len(other.key) :].lstrip("/")

    def exists(self) -> bool:
        """Tell whether there is an object of that name, or one that lies in it."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Tell whether there is an object of that name."""
        return bool(self.key) and self.about() is not None

    def is_dir(self) -> bool:
        """Tell whether any object lies in it."""
        return repeated(lambda: next(iter(self._listed(chunk_size=1)), None) is not None, self)

    def is_symlink(self) -> bool:
        """Return False: there are no links."""
        return False

    def about(self) -> dict[str, Any] | None:
        """Return ``size``, ``e_tag`` and ``last_modified`` of the object, None if there is none."""
        obstore = library()

        try:
            return dict(repeated(lambda: obstore.head(self.store, self.key), self))
        except FileNotFoundError:
            return None

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield what lies directly in it."""
        obstore = library()

        found = repeated(lambda: obstore.list_with_delimiter(self.store, self.key or None), self)
        keys = [*found["common_prefixes"], *(item["path"] for item in found["objects"])]
        yield from (self._at(key) for key in sorted(keys))

    def children(self) -> list[Child]:
        """Return the objects directly in it, sorted by name, and what begins other keys, however many."""
        obstore = library()

        found = repeated(lambda: obstore.list_with_delimiter(self.store, self.key or None), self)
        start = len(self.key) + 1 if self.key else 0
        children = [Child(key[start:], None, "") for key in found["common_prefixes"]]
        for item in found["objects"]:
            stamp = item["e_tag"] or f"{NO_ETAG}{item['last_modified'].isoformat()}"
            children.append(Child(item["path"][start:], int(item["size"]), stamp))
        return sorted((child for child in children if child.name), key=lambda child: child.name)

    def walk(self) -> list[dict[str, Any]]:
        """Return ``path`` (from here), ``size``, ``e_tag`` and ``last_modified`` of all objects in it."""
        found = repeated(lambda: [dict(item) for batch in self._listed() for item in batch], self)
        start = len(self.key) + 1 if self.key else 0
        return sorted(({**item, "path": item["path"][start:]} for item in found), key=lambda i: i["path"])

    def read_bytes(self, max_bytes: int | None = None) -> bytes:
        """Return the object's bytes.

        Raises
        ------
        CorruptObject
            If there are more than ``max_bytes``.
        FileNotFoundError
            If there is no such object.
        """
        return repeated(lambda: self._read(max_bytes), self)

    def read_range(self, start: int, stop: int) -> bytes:
        """Return bytes ``start`` to ``stop``, all of which must be there."""
        obstore = library()

        if stop <= start:
            return b""
        return bytes(repeated(lambda: obstore.get_range(self.store, self.key, start=start, end=stop), self))

    def create(self, data: bytes) -> bool:
        """Make the object; return False if there is one with other bytes.

        The answer to a request may be lost though it was carried out, and the request then be repeated: so
        what is there already is ours if it is what we wrote.  Whoever must tell apart writers of equal bytes
        puts a write id into them.
        """
        obstore = library()

        def put() -> bool:
            try:
                with calling(self):
                    obstore.put(self.store, self.key, data, mode="create")
            except obstore.exceptions.AlreadyExistsError:
                return self._holds(data)
            return True

        return repeated(put, self)

    def put(self, data: bytes) -> None:
        """Make ``data`` the object's content, whatever was there."""
        obstore = library()

        repeated(lambda: obstore.put(self.store, self.key, data), self)

    def replace_if(self, e_tag: str, data: bytes) -> bool:
        """Make ``data`` the content unless it has changed since it had this ``e_tag``."""
        obstore = library()

        def put() -> bool:
            try:
                with calling(self):
                    obstore.put(self.store, self.key, data, mode={"e_tag": e_tag})
            except obstore.exceptions.PreconditionError:
                return self.is_file() and self.read_bytes() == data
            return True

        try:
            return repeated(put, self)
        except FileNotFoundError:
            return False

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object; one that is gone is no error."""
        obstore = library()

        repeated(lambda: obstore.delete(self.store, self.key), self)

    def remove_tree(self) -> None:
        """Delete the object and all that lie in it."""
        obstore = library()

        keys = [f"{self.key}/{item['path']}" if self.key else item["path"] for item in self.walk()]
        if self.key:
            keys.append(self.key)
        keys.reverse()  # a kill in between leaves no marker over a part, and no part without its claim
        for at in range(0, len(keys), _DELETED_AT_ONCE):
            part = keys[at : at + _DELETED_AT_ONCE]
            repeated(lambda part=part: obstore.delete(self.store, part), self)  # type: ignore[misc]

    def _holds(self, data: bytes) -> bool:
        """Tell whether what was written meanwhile is just this."""
        try:
            return self.read_bytes() == data
        except FileNotFoundError:  # two writers met in the same instant, or it was deleted again
            raise StoreUnavailable(f"{self}: the object store could not decide between two writers") from None

    def _read(self, max_bytes: int | None) -> bytes:
        obstore = library()

        answer = obstore.get(self.store, self.key)
        if max_bytes is not None and answer.meta["size"] > max_bytes:
            raise CorruptObject(f"{self} has more than {max_bytes:,} bytes: it is not what was written")
        return bytes(answer.bytes())

    def _listed(self, chunk_size: int = 1000) -> Any:
        obstore = library()

        return obstore.list(self.store, self.key or None, chunk_size=chunk_size)

    def _at(self, key: str) -> ObjectPath:
        return ObjectPath(self.bucket, key, self._memory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and self._identity() == other._identity()

    def __lt__(self, other: ObjectPath) -> bool:
        return self._identity() < other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, str, int]:
        return self.bucket, self.key, id(self._memory)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __fspath__(self) -> str:
        """Refuse: it counts as a path, but is no file of this machine, and must not be taken for one."""
        raise TypeError(f"{self} is in an object store; a file or folder of this machine is needed here")

    def __reduce__(self) -> tuple[Any, ...]:
        if self._memory is not None:
            raise TypeError("objects in this process's memory are not sent elsewhere")
        return ObjectPath, (self.bucket, self.key)
