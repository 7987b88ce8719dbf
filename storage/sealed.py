"""Groups of arrays whose marker tells of every damaged, swapped or replaced file when they are opened.

The attributes of the group's ``zarr.json`` hold, beside their content::

    seals     name of array → SHA-256 of its metadata and of the size and checksum of each chunk's file
    sha256    of the canonical JSON of all other attributes

Our chunk files end in the CRC-32C of what they hold, which decoding compares; so a seal is taken without
reading what is in them.  It is against accidents: who makes a file anew can make its seal anew.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

from .digest import json_digest
from .documents import write_group
from .errors import CorruptObject
from .paths import resolve_inside
from .places import each, edges
from .safe import check_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .metadata import ArrayLayout
    from .places import Place
    from .safe import CheckedArray

SEALS, SHA256 = "seals", "sha256"
_CHECKSUM_BYTES = 4


def write_sealed_group(path: Place, attributes: Mapping[str, Any], names: Iterable[str]) -> None:
    """Write a group's marker, durably and never over another, over its finished arrays ``names``."""
    seals = {name: _seal(path / name, check_array(path / name).layout) for name in names}
    content = {**attributes, SEALS: seals}
    write_group(path, {**content, SHA256: json_digest(content)})


def check_attributes(path: Place, attributes: Mapping[str, Any]) -> None:
    """Raise `CorruptObject` if a group's attributes are not those that were written with it."""
    content = {key: value for key, value in attributes.items() if key != SHA256}
    if SHA256 in attributes and attributes[SHA256] != json_digest(content):
        raise CorruptObject(f"{path / 'zarr.json'} has changed since it was written; restore it from a copy")


def sealed_array(
    path: Place, attributes: Mapping[str, Any], name: str, dtypes: frozenset[str]
) -> CheckedArray:
    """Open the array ``name`` of a group after `check_array` and a comparison with its seal."""
    folder = resolve_inside(path, name)
    checked = check_array(folder, dtypes=dtypes)
    seals = attributes.get(SEALS, {})
    if not isinstance(seals, dict):
        raise CorruptObject(f"{path}: attribute {SEALS} is wrong: {seals!r:.40}")
    if SEALS in attributes and seals.get(name) != _seal(folder, checked.layout):
        raise CorruptObject(
            f"{folder}: chunks or metadata are not those that were written, though each is whole; "
            "restore them from a copy"
        )
    return checked


def _seal(path: Place, layout: ArrayLayout) -> str:
    try:
        digest = hashlib.sha256((path / "zarr.json").read_bytes())
        places = (_unravelled(index, layout.grid) for index in range(math.prod(layout.grid)))
        keys = [layout.key(place) for place in places]
        ends = each(path, lambda key: edges(path / key, 0, _CHECKSUM_BYTES), keys)
    except FileNotFoundError as error:
        raise CorruptObject(f"{error.filename} has vanished; restore it from a copy") from error
    for key, (size, _, checksum) in zip(keys, ends, strict=True):
        digest.update(f"\n{key} {size} {checksum.hex()}".encode())
    return digest.hexdigest()


def _unravelled(flat: int, grid: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for size in reversed(grid):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))
