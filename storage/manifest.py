"""The record of one committed round: what it consists of, what it follows, and whose run it belongs to.

A manifest is one JSON file, ``manifests/00000003.json``, that exists or does not: its creation *is* the
commit.  It names every object of the round with size and SHA-256, carries the digest of its own content and
that of its parent, so that the manifests of a run are one chain, and a write id by which a driver knows its
own manifest again.  It is written in one form only; any byte that differs from that form is an error.
"""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .digest import canonical_json, json_digest
from .errors import CorruptObject, StorageError
from .objects import ObjectRecord
from .safe import check_relative, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT_VERSION = 1
MAX_MANIFEST_BYTES = 64 * 2**20
FOLDER = "manifests"

_NAME = re.compile(r"(\d{8})\.json")
_HEX = re.compile(r"[0-9a-f]{64}")
_ATTEMPT = re.compile(r"(\d{8})-[0-9a-f]{32}")
_ARRAY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_MAX_ROUND = 99_999_999


@dataclass(frozen=True)
class ArrayRecord:
    """What a manifest says of one array."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """One committed round.

    Attributes
    ----------
    round : int
    parent : str or None
        Digest of the manifest of the round before; None for round 0.
    attempt : str
        Folder below ``objects/`` that holds the round's arrays.
    write_id : str
        Random; tells the writer that a manifest found in its place is its own.
    committed_at : str
        UTC time in ISO 8601; for people alone.
    driver : dict
        Host and process id of the writer; for people alone.
    config_digest : str
        Digest of the run's configuration.
    identity : dict
        What a resumed run must agree with (data digest, tree, seed, environment, ...).
    keep : int
        How many rounds the writer keeps.
    scalars : dict
        The round's scalars.
    arrays : dict of str to ArrayRecord
    objects : tuple of ObjectRecord
        Every file of the round, sorted by path.
    """

    round: int
    parent: str | None
    attempt: str
    write_id: str
    config_digest: str
    identity: Mapping[str, Any]
    keep: int
    scalars: Mapping[str, Any]
    arrays: Mapping[str, ArrayRecord]
    objects: tuple[ObjectRecord, ...]
    committed_at: str = field(default_factory=lambda: now())
    driver: Mapping[str, Any] = field(
        default_factory=lambda: {"host": socket.gethostname(), "pid": os.getpid()}
    )

    @property
    def digest(self) -> str:
        """SHA-256 of the content's canonical JSON."""
        return json_digest(self._content())

    def to_bytes(self) -> bytes:
        """Return the file's bytes."""
        return _text({**self._content(), "sha256": self.digest})

    @classmethod
    def from_bytes(cls, data: bytes, where: str, number: int) -> Manifest:
        """Return the manifest in ``data``, which was found under the name of round ``number``.

        Raises
        ------
        CorruptObject
            If the bytes are not those that `to_bytes` wrote, or belong to another round.
        StorageError
            If a newer version of the format wrote them.
        """
        document = parse_json(data, where)
        stated = document.pop("sha256", None)
        try:
            digest = json_digest(document)
        except ValueError:  # half of a surrogate pair: no text that we write
            digest = ""
        if stated != digest or data != _text({**document, "sha256": stated}):
            raise CorruptObject(f"{where} has changed since it was written: its own digest does not fit")
        version = document.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise StorageError(
                f"{where} has format version {version!r}, this bitfleet reads {FORMAT_VERSION}; "
                "use the version that wrote it or a newer one"
            )
        manifest = _build(document, where)
        if manifest.round != number:
            raise CorruptObject(f"{where} holds the manifest of round {manifest.round}, not of {number}")
        return manifest

    @property
    def winner(self) -> str:
        """Who wrote it, in words."""
        host, pid = self.driver.get("host"), self.driver.get("pid")
        return f"process {pid} on {host} at {self.committed_at}"

    def _content(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            **{item.name: getattr(self, item.name) for item in fields(self)},
            "arrays": {
                name: {"dtype": record.dtype, "shape": list(record.shape)}
                for name, record in self.arrays.items()
            },
            "objects": [
                {"path": record.path, "size": record.size, "sha256": record.sha256} for record in self.objects
            ],
        }


def now() -> str:
    """Return the UTC time in ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def manifest_key(number: int) -> str:
    """Return the key of a round's manifest."""
    if not 0 <= number <= _MAX_ROUND:
        raise ValueError(f"expected a round of 0 to {_MAX_ROUND:,}, got {number}")
    return f"{FOLDER}/{number:08d}.json"


def manifest_rounds(names: list[str]) -> list[int]:
    """Return the rounds, ascending, among the names in the manifests' folder; other names are passed over."""
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def attempt_round(attempt: str) -> int | None:
    """Return the round that an attempt was for, None if that is no attempt's name."""
    match = _ATTEMPT.fullmatch(attempt)
    return int(match[1]) if match else None


def check_array_name(name: str) -> None:
    """Refuse array names that are no plain file name everywhere."""
    if not (isinstance(name, str) and _ARRAY.fullmatch(name)):
        raise ValueError(
            f"expected an array name of at most 64 letters, digits and underscores, not beginning with a "
            f"digit; got {name!r}"
        )


def array_path(attempt: str, name: str) -> str:
    """Return the prefix of an array of an attempt."""
    return f"objects/{attempt}/{name}.zarr"


def _text(document: Mapping[str, Any]) -> bytes:
    canonical_json(document)  # refuses what JSON would change
    return (json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n").encode("utf-8")


def _build(document: dict[str, Any], where: str) -> Manifest:
    """Check every field's form; the digest only says that someone wrote it so."""
    try:
        arrays = {
            name: ArrayRecord(_is(record["dtype"], str), tuple(_natural(n) for n in record["shape"]))
            for name, record in document.pop("arrays").items()
        }
        objects = tuple(
            ObjectRecord(_is(item["path"], str), _natural(item["size"]), _hex(item["sha256"]))
            for item in document.pop("objects")
        )
        manifest = Manifest(**document, arrays=arrays, objects=objects)
        _check(manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptObject(f"{where} is no manifest: {error}") from error
    return manifest


def _check(manifest: Manifest) -> None:
    _natural(manifest.round)
    _natural(manifest.keep)
    _hex(manifest.config_digest)
    for text in (manifest.write_id, manifest.committed_at):
        _is(text, str)
    for mapping in (manifest.driver, manifest.identity, manifest.scalars):
        _is(mapping, dict)
    if (manifest.parent is None) != (manifest.round == 0):
        raise ValueError("every round but the first has a parent")
    if manifest.parent is not None:
        _hex(manifest.parent)
    if attempt_round(manifest.attempt) != manifest.round:
        raise ValueError(f"attempt {manifest.attempt!r} is not of round {manifest.round}")
    for name in manifest.arrays:
        check_array_name(name)
    prefixes = tuple(array_path(manifest.attempt, name) + "/" for name in manifest.arrays)
    for record in manifest.objects:
        check_relative(record.path)
        if not record.path.startswith(prefixes):
            raise ValueError(f"object {record.path!r} belongs to none of the round's arrays")


def _is(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {value!r}")
    return value


def _natural(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a whole number, got {value!r}")
    return value


def _hex(value: Any) -> str:
    if not (isinstance(value, str) and _HEX.fullmatch(value)):
        raise ValueError(f"expected a SHA-256 in hex, got {value!r}")
    return value
