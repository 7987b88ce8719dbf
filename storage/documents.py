"""JSON files and Zarr groups, read with limits and written durably, never over another.

A document is untrusted: its size, depth, keys and numbers are bounded before anyone looks at its meaning.
A group's document repeats those of its arrays (consolidated metadata), for xarray; we go by the arrays' own.
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

from .errors import CorruptObject, DestinationExists, UnsafeObject
from .object_paths import ObjectPath
from .paths import sync_folder
from .places import each, place

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .places import Place

MAX_JSON_BYTES = 2**20
MAX_JSON_DEPTH = 64
_CONSOLIDATED = "consolidated_metadata"


def write_group(path: str | os.PathLike[str], attributes: Mapping[str, Any]) -> None:
    """Write a group's ``zarr.json`` durably and never over another: the commit marker of what it holds."""
    path = place(path)
    if not isinstance(path, ObjectPath):
        path.mkdir(parents=True, exist_ok=True)
    document = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": dict(attributes),
        _CONSOLIDATED: _consolidated(path),
    }
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
    if isinstance(path, ObjectPath):
        if not (path / "zarr.json").create(text.encode("utf-8")):
            raise DestinationExists(f"{path} exists; choose another name or remove it")
        return
    _create_file(path / "zarr.json", text)


def read_group(path: str | os.PathLike[str], *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the attributes of a Zarr format 3 group.

    Raises
    ------
    UnsafeObject
        If it is no such group.
    CorruptObject
        If we wrote it and what it repeats of its arrays is not what they say.
    """
    path = place(path)
    meta = read_json(path / "zarr.json", max_bytes=max_bytes)
    attributes = meta.get("attributes", {})
    if meta.get("zarr_format") != 3 or meta.get("node_type") != "group" or not isinstance(attributes, dict):
        raise UnsafeObject(f"{path}: expected a Zarr format 3 group with attributes")
    if _CONSOLIDATED in meta and any(key.startswith("bitfleet_") for key in attributes):
        _check_consolidated(path, meta[_CONSOLIDATED])
    return attributes


def read_json(path: str | os.PathLike[str], max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises
    ------
    UnsafeObject
        If it is a link, larger than ``max_bytes``, nested deeper than `MAX_JSON_DEPTH`, has a key twice, or
        a number that is not finite.
    CorruptObject
        If it is absent or no JSON object.
    """
    path = place(path)
    if isinstance(path, ObjectPath):
        return parse_json(_read_object(path, max_bytes), str(path))
    if path.is_symlink():
        raise UnsafeObject(f"{path}: a symbolic link is refused here")
    if not path.is_file():
        raise CorruptObject(f"{path}: this file is missing")
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > max_bytes:
            raise UnsafeObject(f"{path}: expected at most {max_bytes:,} bytes of JSON, got {size:,}")
        return parse_json(stream.read(size), str(path))


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in ``text``, with the checks of `read_json`."""
    try:
        value = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_no_duplicates,
            parse_float=_finite,
            parse_constant=_finite,
        )
        too_deep = _depth_exceeds(value, MAX_JSON_DEPTH)
    except RecursionError:
        too_deep = True
    except UnsafeObject as error:
        raise UnsafeObject(f"{where}: {error}") from None
    except ValueError as error:
        raise CorruptObject(f"{where}: no valid JSON ({error})") from error
    if too_deep:
        raise UnsafeObject(f"{where}: JSON is nested deeper than {MAX_JSON_DEPTH} levels")
    if not isinstance(value, dict):
        raise CorruptObject(f"{where}: expected a JSON object, got {type(value).__name__}")
    return value


def _create_file(path: Path, text: str) -> None:
    """Create a file with this content durably, or raise and leave the one that is there."""
    folder = path.parent
    temporary = folder / f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with temporary.open("x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(temporary, path)
    except FileExistsError as error:
        raise DestinationExists(f"{folder} exists; choose another name or remove it") from error
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(folder)


def _read_object(path: ObjectPath, max_bytes: int) -> bytes:
    try:
        return path.read_bytes(max_bytes)
    except FileNotFoundError:
        raise CorruptObject(f"{path}: this file is missing") from None
    except CorruptObject:
        raise UnsafeObject(f"{path}: expected at most {max_bytes:,} bytes of JSON, got more") from None


def _consolidated(path: Place) -> dict[str, Any]:
    """Return what Zarr calls consolidated metadata: the documents of the group's arrays."""
    children: list[Place] = sorted(path.iterdir(), key=_name)
    there = each(path, _has_document, children)
    names = [child.name for child, is_array in zip(children, there, strict=True) if is_array]
    arrays = dict(zip(names, each(path, lambda n: read_json(path / n / "zarr.json"), names), strict=True))
    return {"kind": "inline", "must_understand": False, "metadata": arrays}


def _name(path: Place) -> str:
    return path.name


def _has_document(folder: Place) -> bool:
    return (folder / "zarr.json").exists()


def _check_consolidated(path: Place, stored: Any) -> None:
    """Compare what a group repeats of its arrays with their own documents."""
    listed = stored.get("metadata") if isinstance(stored, dict) else None
    found = _consolidated(path)["metadata"]
    for name, document in listed.items() if isinstance(listed, dict) else [(_CONSOLIDATED, stored)]:
        if found.get(name) != document:
            raise CorruptObject(
                f"{path / 'zarr.json'}: the metadata of {name!r} are not those that were written with it; "
                "restore them from a copy"
            )


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise UnsafeObject("a key occurs twice in one JSON object")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise UnsafeObject(f"the number {text} is not finite")
    return value


def _depth_exceeds(value: Any, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
        ]
    return any(isinstance(item, dict | list) for item in level)
