"""Reads and writes arrays, groups and JSON so that a file can be wrong or hostile without doing harm.

Written: Zarr format 3, little-endian bytes, Zstandard, CRC-32C, every chunk (also of zeros), never over
anything that exists.  Read: only what `metadata` has on its white-list, only if `chunks` finds every chunk,
and no pickle anywhere.  Files are checked before Zarr opens them.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import zarr
import zarr.storage
from zarr.codecs import Crc32cCodec, ZstdCodec

from .chunks import check_chunks, require_chunks
from .documents import MAX_JSON_BYTES, parse_json, read_group, read_json, write_group
from .errors import CorruptObject, DestinationExists, StorageError
from .metadata import ALLOWED, ArrayLayout, check_array_metadata
from .object_paths import ObjectPath
from .paths import check_relative, resolve_inside, sync_folder, sync_tree
from .places import place, taken
from .s3 import calling, repeated
from .zarr_objects import ArrayStore

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import DTypeLike

    from .places import Place

__all__ = [
    "ALLOWED",
    "DEFAULT_MAX_BYTES",
    "MAX_JSON_BYTES",
    "CheckedArray",
    "check_array",
    "check_relative",
    "create_array",
    "decoding",
    "open_array",
    "parse_json",
    "read_array",
    "read_group",
    "read_json",
    "resolve_inside",
    "sync_folder",
    "sync_tree",
    "write_array",
    "write_group",
]

_T = TypeVar("_T")

DEFAULT_MAX_BYTES = 2**32
_TARGET_CHUNK_BYTES = 2**25


@dataclass(frozen=True)
class CheckedArray:
    """A Zarr array whose metadata and chunk files have been checked, and the only door to its rows.

    ``n_absent`` chunks are read as fill values, where that was asked for; else it is 0.
    """

    path: Place
    layout: ArrayLayout
    zarr: zarr.Array
    n_absent: int = 0

    def rows(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return the rows ``start <= row < stop`` as stored; `CorruptObject` if they cannot be decoded."""
        stop = self.layout.shape[0] if stop is None else stop
        with decoding(self.path):
            rows = reading(self.path, lambda: self.zarr[start:stop])
        # after reading: a chunk that vanished meanwhile has been read as zeros
        if not self.n_absent:
            require_chunks(self.path, self.layout, start, stop)
        return np.asarray(rows)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return rows by number, in the order given; every chunk is decoded once."""
        result = np.empty((len(rows), *self.layout.shape[1:]), self.layout.dtype)
        order = np.argsort(rows, kind="stable")
        chunk = np.asarray(rows)[order] // self.layout.chunks[0]
        for places in np.split(order, np.flatnonzero(np.diff(chunk)) + 1):
            if places.size:
                first, last = int(rows[places[0]]), int(rows[places[-1]])
                result[places] = self.rows(first, last + 1)[rows[places] - first]
        return result


def create_array(
    path: str | os.PathLike[str],
    shape: Sequence[int],
    dtype: DTypeLike,
    *,
    chunk_rows: int | None = None,
    dimension_names: Sequence[str] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> zarr.Array:
    """Create an array to be filled in whole row chunks; `DestinationExists` if anything is at ``path``.

    A chunk holds ``chunk_rows`` rows with all of their elements; by default about 32 MiB.
    """
    path = place(path)
    if taken(path):
        raise DestinationExists(f"{path} exists; choose another name or remove it")
    dtype = np.dtype(dtype)
    if dtype.name not in ALLOWED:
        raise TypeError(f"expected a bool, integer or floating dtype of at most 64 bits, got {dtype}")
    shape = tuple(int(n) for n in shape)
    row_bytes = max(1, math.prod(shape[1:]) * dtype.itemsize)
    if chunk_rows is None:
        chunk_rows = min(max(1, _TARGET_CHUNK_BYTES // row_bytes), max(shape[0], 1)) if shape else 1
    with calling(path):
        return _created(path, shape, dtype, chunk_rows, dimension_names, attributes)


def _created(
    path: Place,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    chunk_rows: int,
    dimension_names: Sequence[str] | None,
    attributes: Mapping[str, Any] | None,
) -> zarr.Array:
    return zarr.create_array(
        _zarr_store(path, read_only=False),
        shape=shape,
        chunks=(int(chunk_rows), *(max(n, 1) for n in shape[1:])) if shape else (),
        dtype=dtype.newbyteorder("="),
        compressors=(ZstdCodec(level=3), Crc32cCodec()),
        filters=(),
        fill_value=dtype.type(0),
        dimension_names=None if dimension_names is None else list(dimension_names),
        attributes=dict(attributes or {}),
        zarr_format=3,
        config={"write_empty_chunks": True},
    )


def _zarr_store(path: Place, *, read_only: bool) -> Any:
    """Return what Zarr's functions take as the store of an array."""
    return (
        ArrayStore(path.store, path.key, read_only=read_only) if isinstance(path, ObjectPath) else str(path)
    )


def zarr_group(path: Place) -> dict[str, Any]:
    """Return what Zarr's readers of groups take: ``store``, and ``group`` in an object store."""
    if isinstance(path, ObjectPath):
        return {"store": zarr.storage.ObjectStore(path.store, read_only=True), "group": path.key}
    return {"store": str(path)}


def write_array(
    path: str | os.PathLike[str],
    array: np.ndarray,
    *,
    chunk_rows: int | None = None,
    dimension_names: Sequence[str] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Write an array as a new Zarr array; `DestinationExists` if anything is at ``path``."""
    array = np.asarray(array)
    stored = create_array(
        path,
        array.shape,
        array.dtype,
        chunk_rows=chunk_rows,
        dimension_names=dimension_names,
        attributes=attributes,
    )
    with calling(path):
        stored[...] = array


def open_array(
    path: str | os.PathLike[str],
    *,
    dtypes: frozenset[str] = ALLOWED,
    max_bytes: int | None = None,
    foreign: bool = False,
    fill: bool = False,
) -> zarr.Array:
    """Open an array read-only after checking its metadata and chunk files; parameters as `check_array`."""
    return check_array(path, dtypes=dtypes, max_bytes=max_bytes, foreign=foreign, fill=fill).zarr


def check_array(
    path: str | os.PathLike[str],
    *,
    dtypes: frozenset[str] = ALLOWED,
    max_bytes: int | None = None,
    foreign: bool = False,
    fill: bool = False,
) -> CheckedArray:
    """Check an array's metadata and chunk files, then open it.

    Parameters
    ----------
    path : path
    dtypes : set of str
        Zarr data types that are accepted.
    max_bytes : int, optional
        The most that the whole array may take in memory; by default only its chunks are bounded.
    foreign : bool
        Accept what other programs write (see `metadata.check_array_metadata`).
    fill : bool
        Accept absent chunks, which are then read as fill values.

    Raises
    ------
    UnsafeObject
        If anything is not on the white-list.
    CorruptObject
        If metadata or chunks are absent or damaged.
    """
    path = place(path)
    meta = read_json(path / "zarr.json")
    layout = check_array_metadata(meta, str(path), dtypes=dtypes, max_bytes=max_bytes, foreign=foreign)
    n_absent = check_chunks(path, layout, foreign=foreign, fill=fill)
    with decoding(path):
        array = reading(path, lambda: opened(path, "r"))
    if array.shape != layout.shape or array.dtype != layout.dtype:
        raise CorruptObject(f"{path}: the metadata changed while it was read")
    return CheckedArray(path, layout, array, n_absent)


def read_array(
    path: str | os.PathLike[str],
    *,
    dtypes: frozenset[str] = ALLOWED,
    max_bytes: int | None = DEFAULT_MAX_BYTES,
) -> np.ndarray:
    """Return a whole stored array; refuses more than ``max_bytes`` before anything is allocated."""
    checked = check_array(path, dtypes=dtypes, max_bytes=max_bytes)
    if checked.layout.shape:
        return checked.rows()
    with decoding(checked.path):
        return np.asarray(reading(checked.path, lambda: checked.zarr[...]))


def opened(path: Place, mode: Literal["r", "r+"]) -> zarr.Array:
    """Open an array whose metadata has been checked."""
    return zarr.open_array(_zarr_store(path, read_only=mode == "r"), mode=mode, zarr_format=3)


def reading(path: Place, read: Callable[[], _T]) -> _T:
    """Return what ``read`` returns; from an object store, answers that break off are asked for again."""
    return repeated(read, path) if isinstance(path, ObjectPath) else read()


@contextlib.contextmanager
def decoding(path: Place) -> Iterator[None]:
    """Turn whatever a decoder raises about damaged bytes into `CorruptObject` naming the array."""
    try:
        yield
    except (StorageError, MemoryError):
        raise
    except Exception as error:
        raise CorruptObject(f"{path}: cannot be decoded ({error}); restore it from a copy") from error
