"""Models as files: one Zarr group of arrays whose attributes hold the header and a digest of it all.

A model is prepared beside its place and takes it whole; nothing is ever overwritten, and nothing is believed
before its digest is checked.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np

from .claims import claim_folder, release_folder
from .digest import array_digest, canonical_json, json_digest
from .errors import CorruptObject, DataRefused, DestinationExists, StorageError
from .files import TEMPORARY, make_folder, remove
from .identity import as_json
from .manifest import check_array_name
from .metadata import ALLOWED
from .object_paths import ObjectPath
from .places import each, place, taken
from .rounds import read_only
from .safe import (
    MAX_JSON_BYTES,
    read_array,
    read_group,
    resolve_inside,
    sync_folder,
    sync_tree,
    write_array,
    write_group,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from .places import Place

FORMAT_VERSION = 1
_ATTRIBUTE = "bitfleet_model"
_MAX_HEADER_BYTES = MAX_JSON_BYTES // 4


def model_digest(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of a model's content: the header's canonical JSON and every array's digest."""
    digests = {name: array_digest(name, array) for name, array in arrays.items()}
    return json_digest({"header": as_json(header), "arrays": digests})


def save_model(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> str:
    """Write a model that does not exist yet, and return its digest.

    Parameters
    ----------
    path : path
        The model's folder.
    header : mapping
        JSON values, at most 256 KiB.
    arrays : mapping of str to ndarray

    Raises
    ------
    DestinationExists
        If anything is at ``path``; it is left as it was.
    """
    target = place(path)
    header = as_json(header)
    size = len(canonical_json(header))
    if size > _MAX_HEADER_BYTES:
        raise ValueError(f"expected a header of at most {_MAX_HEADER_BYTES:,} bytes, got {size:,}")
    for name in arrays:
        check_array_name(name)
    digest = model_digest(header, arrays)
    if isinstance(target, ObjectPath):
        _save_objects(target, header, arrays, digest)
        return digest
    if taken(target):
        raise DestinationExists(f"{target} exists; choose another name or remove it")
    make_folder(target.parent)
    staging = target.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        staging.mkdir()
        _write(staging, header, arrays, digest)
        sync_tree(staging)
        _move(staging, target)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(staging)
        raise
    return digest


def load_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a model's header and arrays (read-only), checked against its digest.

    Raises
    ------
    CorruptObject
        If anything is missing or has changed.
    DataRefused
        If it is a dataset or codes.
    UnsafeObject
        If anything is stored in a way that is not accepted.
    """
    path = place(path)
    attributes = read_group(path)
    stored = attributes.get(_ATTRIBUTE)
    if stored is None and (other := attributes.get("bitfleet_format")) in ("dataset", "codes"):
        raise DataRefused(f"{path} is a {other}, expected a model or a finished run; are the paths in order?")
    if not isinstance(stored, dict):
        raise CorruptObject(f"{path} is no bitfleet model: its group has no attribute {_ATTRIBUTE!r}")
    if stored.get("format_version") != FORMAT_VERSION:
        raise StorageError(
            f"{path} has format version {stored.get('format_version')!r}, this bitfleet reads "
            f"{FORMAT_VERSION}; use the version that wrote it or a newer one"
        )
    header, records = stored.get("header"), stored.get("arrays")
    if not isinstance(header, dict) or not isinstance(records, dict):
        raise CorruptObject(f"{path}: the model's header or its list of arrays is missing")
    arrays = {name: _read(path, name, record) for name, record in records.items()}
    digest = model_digest(header, arrays)
    if digest != stored.get("digest"):
        raise CorruptObject(
            f"{path} is not the model that was saved: SHA-256 {digest} instead of {stored.get('digest')}"
        )
    return header, arrays


def _save_objects(
    target: ObjectPath, header: dict[str, Any], arrays: Mapping[str, np.ndarray], digest: str
) -> None:
    """Write a model where nothing can be moved: its arrays, and then its document, which only one makes.

    Of a writer of the same model that was killed, or still writes, all is written again: it is the same.
    """
    claim_folder(target, content=digest)
    staging = target.in_memory()
    _write(staging, header, arrays, digest)
    marker = "zarr.json"

    def send(name: str) -> None:
        (target / name).put((staging / name).read_bytes())

    each(target, send, [item["path"] for item in staging.walk() if item["path"] != marker])
    made = (target / marker).create((staging / marker).read_bytes())
    release_folder(target)
    if not made:
        raise DestinationExists(f"{target} exists; choose another name or remove it")


def _write(staging: Place, header: dict[str, Any], arrays: Mapping[str, np.ndarray], digest: str) -> None:
    for name, array in arrays.items():
        write_array(staging / name, array)
    records = {name: {"dtype": a.dtype.name, "shape": list(a.shape)} for name, a in arrays.items()}
    content = {"format_version": FORMAT_VERSION, "header": header, "arrays": records, "digest": digest}
    write_group(staging, {_ATTRIBUTE: content})


def _move(staging: Path, target: Path) -> None:
    """Take the final name; a folder's rename fails if another model is there meanwhile."""
    try:
        staging.rename(target)
    except OSError as error:
        if taken(target):
            raise DestinationExists(f"{target} exists; choose another name or remove it") from error
        raise
    sync_folder(target.parent)


def _read(path: Place, name: str, record: Any) -> np.ndarray:
    try:
        check_array_name(name)
        dtype, shape = record["dtype"], tuple(record["shape"])
        if dtype not in ALLOWED or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"dtype {dtype!r}, shape {shape!r}")
    except (TypeError, ValueError, LookupError) as error:
        raise CorruptObject(f"{path}: the entry of array {name!r} is damaged: {error}") from error
    expected = math.prod(shape) * np.dtype(dtype).itemsize
    array = read_array(resolve_inside(path, name), dtypes=frozenset({dtype}), max_bytes=expected)
    if array.shape != shape:
        raise CorruptObject(f"{path / name} has shape {array.shape}, the model's header says {shape}")
    return read_only(np.asarray(array, order="C"))
