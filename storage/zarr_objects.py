"""Zarr on objects: zarr-python's own `ObjectStore`, with one array as its root.

Opened with a path inside a bucket, Zarr would write group metadata for each part of it, up to the bucket's
root: where we want a marker to come last, and where other people's objects are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zarr.storage import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


class ArrayStore(ObjectStore[Any]):
    """The objects of one array.

    Parameters
    ----------
    client : obstore store
    root : str
        Key of the array.
    read_only : bool
    """

    def __init__(self, client: Any, root: str, *, read_only: bool) -> None:
        super().__init__(client, read_only=read_only)
        self._root = root + "/" if root else ""

    def with_read_only(self, read_only: bool = False) -> ArrayStore:  # type: ignore[override]
        """Return the same objects, to be written or not."""
        return ArrayStore(self.store, self._root.removesuffix("/"), read_only=read_only)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return an object's bytes, None if it is not there."""
        return await super().get(self._root + key, prototype, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return parts of objects."""
        return await super().get_partial_values(prototype, [(self._root + k, r) for k, r in key_ranges])

    async def exists(self, key: str) -> bool:
        """Tell whether an object is there."""
        return await super().exists(self._root + key)

    async def set(self, key: str, value: Buffer) -> None:
        """Write an object."""
        await super().set(self._root + key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write an object unless it is there."""
        await super().set_if_not_exists(self._root + key, value)

    async def delete(self, key: str) -> None:
        """Delete an object."""
        await super().delete(self._root + key)

    @property
    def supports_listing(self) -> bool:
        """Return False: an array's keys follow from its shape."""
        return False
