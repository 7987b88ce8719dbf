"""Are an array's chunk files all there, and nothing else?  Looked at before anything is decoded.

Zarr reads an absent chunk as fill values, that is, as zeros that nobody has measured.  Here it is an error:
the files found are compared with the chunk grid, inside shards the index.  For Zstandard the size that a
frame announces is compared with the chunk's, so that no file makes us allocate more than its metadata says.
"""

from __future__ import annotations

import math
import os
import struct
from typing import TYPE_CHECKING

from .errors import CorruptObject, UnsafeObject
from .object_paths import ObjectPath
from .places import each, edges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .metadata import ArrayLayout, ShardLayout
    from .places import Place

_DEBRIS = ".partial"  # what Zarr leaves of a chunk whose writer was killed; never read
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER = 18  # bytes, at most
_FOREIGN_OVERHEAD = 1024
_ABSENT = (2**64 - 1, 2**64 - 1)


def check_chunks(path: Place, layout: ArrayLayout, *, foreign: bool = False, fill: bool = False) -> int:
    """Compare the files below an array's folder with its chunk grid and return the number of absent chunks.

    Parameters
    ----------
    path : Path or ObjectPath
    layout : ArrayLayout
    foreign : bool
        Written by another program: other files beside the chunks are none of our business.
    fill : bool
        Count absent chunks instead of raising.

    Raises
    ------
    CorruptObject
        If a chunk is absent (and not ``fill``) or its announced size is wrong.
    UnsafeObject
        If there is a symbolic link or, unless ``foreign``, any other file.
    """
    sizes = dict(_files(path))
    found = set(sizes) - {"zarr.json"}
    present = {index: key for key in found if (index := _index(key, layout)) is not None}
    n_absent = math.prod(layout.grid) - len(present)
    if n_absent and not fill:
        first = next(layout.key(index) for index in _indices(layout.grid) if index not in present)
        raise CorruptObject(
            f"{path}: {n_absent:,} of {math.prod(layout.grid):,} chunks are missing, the first is {first!r}; "
            "restore them from a copy"
        )
    if not foreign and (strangers := found.difference(present.values())):
        raise UnsafeObject(
            f"{path}: {min(strangers)!r} is no chunk of this array; remove it or restore the array"
        )

    def check(index: tuple[int, ...]) -> int:
        key = present[index]
        return _check_contents(path / key, sizes[key], index, layout, foreign=foreign, fill=fill)

    return n_absent + sum(each(path, check, sorted(present)))


def require_chunks(path: Place, layout: ArrayLayout, start: int, stop: int) -> None:
    """Raise `CorruptObject` unless all chunks of the rows ``start <= row < stop`` are there now."""
    if stop <= start or 0 in layout.shape:
        return
    first, last = start // layout.chunks[0], (stop - 1) // layout.chunks[0]
    rows = range(first, last + 1)
    files = (path / layout.key((row, *rest)) for row in rows for rest in _indices(layout.grid[1:]))

    def require(file: Place) -> None:
        if not file.is_file():
            raise CorruptObject(f"{file}: this chunk is missing; restore it from a copy")

    each(path, require, files)


def stored_bytes(path: Place) -> int:
    """Return the size of all files below an array's folder."""
    return sum(
        os.stat(os.fspath(path / name)).st_size if size is None else size for name, size in _files(path)
    )


def _files(path: Place) -> Iterator[tuple[str, int | None]]:
    """Yield all files below a folder by relative name, with their sizes if these are known; refuse links."""
    if isinstance(path, ObjectPath):
        yield from ((item["path"], item["size"]) for item in path.walk())
        return
    for folder, folders, names in os.walk(path):
        relative = os.path.relpath(folder, path)
        for name in (*folders, *names):
            if os.path.islink(os.path.join(folder, name)):
                raise UnsafeObject(
                    f"{os.path.join(folder, name)}: symbolic links inside an array are refused"
                )
        for name in names:
            if not name.endswith(_DEBRIS):
                yield name if relative == "." else f"{relative}/{name}".replace(os.sep, "/"), None


def _index(key: str, layout: ArrayLayout) -> tuple[int, ...] | None:
    """Return the place in the grid of the chunk with this key, None if there is none."""
    parts = [part for part in key.split(layout.separator) if part.isascii() and part.isdigit()]
    index = tuple(int(part) for part in parts) if layout.grid else ()
    inside = len(index) == len(layout.grid) and all(i < k for i, k in zip(index, layout.grid, strict=True))
    return index if inside and layout.key(index) == key else None


def _indices(grid: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield all indices of a grid in row-major order; lazily, for a crafted grid may be of any size."""
    for flat in range(math.prod(grid)):
        index = []
        for size in reversed(grid):
            flat, i = divmod(flat, size)
            index.append(i)
        yield tuple(reversed(index))


def _check_contents(
    file: Place, size: int | None, index: tuple[int, ...], layout: ArrayLayout, *, foreign: bool, fill: bool
) -> int:
    """Check what a chunk's file announces; return the number of absent chunks inside a shard."""
    if layout.shard is not None:
        return _check_shard(file, size, index, layout, layout.shard, fill=fill)
    if "zstd" in layout.codecs and set(layout.codecs[layout.codecs.index("zstd") + 1 :]) <= {"crc32c"}:
        announced = _zstd_content_size(edges(file, _ZSTD_HEADER, 0, size)[1])
        if foreign:  # others may leave the size out, and may compress or checksum twice
            fits = announced is None or announced <= layout.chunk_bytes + _FOREIGN_OVERHEAD
        else:
            fits = announced == layout.chunk_bytes
        if not fits:
            raise CorruptObject(
                f"{file}: expected a Zstandard frame of {layout.chunk_bytes:,} bytes, it announces "
                f"{'no size' if announced is None else format(announced, ',')}"
            )
    return 0


def _zstd_content_size(head: bytes) -> int | None:
    """Return the content size in a Zstandard frame header (RFC 8878, 3.1.1.1), None if there is none."""
    if len(head) < 6 or head[:4] != _ZSTD_MAGIC:
        return None
    descriptor = head[4]
    single_segment = descriptor >> 5 & 1
    n_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    field = head[start : start + n_bytes]
    if n_bytes == 0 or len(field) < n_bytes:
        return None
    return int.from_bytes(field, "little") + (256 if n_bytes == 2 else 0)


def _check_shard(
    file: Place,
    size: int | None,
    shard_index: tuple[int, ...],
    layout: ArrayLayout,
    shard: ShardLayout,
    *,
    fill: bool,
) -> int:
    """Compare a shard's index with the chunks that the array's shape needs of it."""
    inner_grid = tuple(c // i for c, i in zip(layout.chunks, shard.chunk_shape, strict=True))
    n_index, n_checksum = 16 * math.prod(inner_grid), 4 * shard.index_checksum
    n_read = n_index + n_checksum
    size, first, last = edges(file, *((0, n_read) if shard.index_at_end else (n_read, 0)), size)
    if size < n_index + n_checksum:
        raise CorruptObject(
            f"{file}: {size:,} bytes are too few for a shard of {math.prod(inner_grid):,} chunks"
        )
    entries = struct.iter_unpack("<QQ", (last or first)[:n_index])
    n_absent = 0
    for number, entry in zip(_indices(inner_grid), entries, strict=True):
        corner = [
            s * c + k * i
            for s, c, k, i in zip(shard_index, layout.chunks, number, shard.chunk_shape, strict=True)
        ]
        if any(c >= n for c, n in zip(corner, layout.shape, strict=True)):
            continue  # beyond the array's end
        if entry == _ABSENT and not fill:
            raise CorruptObject(f"{file}: chunk {number} of this shard is missing; restore it from a copy")
        if entry != _ABSENT and sum(entry) > size:
            raise CorruptObject(f"{file}: chunk {number} lies beyond the end of this shard")
        n_absent += entry == _ABSENT
    return n_absent
