"""What a Zarr array says of itself, believed only where it is on the white-list.

`check_array_metadata` looks at the parsed ``zarr.json`` before Zarr does: format 3 alone, numeric dtypes,
known codecs with known options, a regular grid of chunks of bounded size.  Whatever it does not know, it
refuses; so a file can neither name a codec that runs code nor make us allocate what it likes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors import UnsafeObject

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
ALLOWED = frozenset(("bool", *_INTEGERS, "float16", "float32", "float64"))
MAX_CHUNK_BYTES = 2**31 - 1  # also the most that numcodecs compresses at once
MAX_DIMENSIONS = 8

_GRID_KEYS = ("shape", "data_type", "chunk_grid", "chunk_key_encoding")
_REQUIRED = frozenset(("zarr_format", "node_type", *_GRID_KEYS, "fill_value", "codecs"))
_KEYS = _REQUIRED | {"attributes", "dimension_names", "storage_transformers"}
_OPTIONS: dict[str, frozenset[str]] = {
    "bytes": frozenset({"endian"}),
    "zstd": frozenset({"level", "checksum"}),
    "crc32c": frozenset(),
    "gzip": frozenset({"level"}),
    "blosc": frozenset({"cname", "clevel", "shuffle", "typesize", "blocksize"}),
    "transpose": frozenset({"order"}),
    "sharding_indexed": frozenset({"chunk_shape", "codecs", "index_codecs", "index_location"}),
}
_OWN_CHAINS = (["bytes"], ["bytes", "zstd"], ["bytes", "crc32c"], ["bytes", "zstd", "crc32c"])
_FOREIGN_COMPRESSORS = frozenset({"zstd", "gzip", "blosc", "crc32c"})


@dataclass(frozen=True)
class ShardLayout:
    """Inside a shard: the inner chunks and where their index is."""

    chunk_shape: tuple[int, ...]
    index_at_end: bool
    index_checksum: bool


@dataclass(frozen=True)
class ArrayLayout:
    """The checked metadata of an array: ``chunks`` is the shape of what one file holds."""

    shape: tuple[int, ...]
    dtype: np.dtype
    chunks: tuple[int, ...]
    codecs: tuple[str, ...]
    key_prefix: str = "c"
    separator: str = "/"
    shard: ShardLayout | None = None
    dimension_names: tuple[str | None, ...] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunks, strict=True))

    @property
    def n_bytes(self) -> int:
        """Size of the whole array in memory."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Size of one chunk in memory."""
        return math.prod(self.chunks) * self.dtype.itemsize

    def key(self, index: tuple[int, ...]) -> str:
        """Return the name of a chunk's file, relative to the array."""
        parts = [str(i) for i in index]
        if self.key_prefix:
            parts.insert(0, self.key_prefix)
        return self.separator.join(parts or ["0"])


def check_array_metadata(
    meta: dict[str, Any],
    where: str,
    *,
    dtypes: frozenset[str] = ALLOWED,
    max_bytes: int | None = None,
    foreign: bool = False,
) -> ArrayLayout:
    """Check a parsed ``zarr.json`` and return what it says.

    Parameters
    ----------
    meta : dict
    where : str
        Path for messages.
    dtypes : set of str
        Zarr data types that are accepted.
    max_bytes : int, optional
        The most that the whole array may take in memory.
    foreign : bool
        Accept also what others write and we never do: gzip, Blosc, transposed chunks, shards, big-endian
        bytes, keys in the style of format 2.

    Raises
    ------
    UnsafeObject
        Naming the first thing that is not on the white-list.
    """
    if meta.get("zarr_format") != 3 or meta.get("node_type") != "array":
        raise UnsafeObject(
            f"{where}: expected a Zarr format 3 array, got zarr_format={meta.get('zarr_format')!r}, "
            f"node_type={meta.get('node_type')!r}"
        )
    _keys("metadata", meta, _KEYS, where, required=_REQUIRED)
    if meta.get("storage_transformers", []) != []:
        raise UnsafeObject(f"{where}: storage transformers are not accepted")
    name = meta["data_type"]
    if not isinstance(name, str) or name not in dtypes or name not in ALLOWED:
        raise UnsafeObject(f"{where}: data type {_brief(name)} is not one of {', '.join(sorted(dtypes))}")
    dtype = np.dtype(name)
    shape = _sizes("shape", meta["shape"], where, least=0)
    grid = _extension("chunk_grid", meta["chunk_grid"], ("regular",), frozenset({"chunk_shape"}), where)[1]
    chunks = _sizes("chunk_shape", grid.get("chunk_shape"), where, least=1)
    if len(chunks) != len(shape):
        raise UnsafeObject(f"{where}: chunk shape {chunks} does not fit shape {shape}")
    prefix, separator = _key_encoding(meta["chunk_key_encoding"], where, foreign=foreign)
    codecs, shard = _codecs(meta["codecs"], chunks, where, foreign=foreign)
    layout = ArrayLayout(
        shape,
        dtype,
        chunks,
        codecs,
        prefix,
        separator,
        shard,
        _dimension_names(meta.get("dimension_names"), len(shape), where),
        _mapping("attributes", meta.get("attributes", {}), where),
    )
    _check_fill_value(meta["fill_value"], where)
    _check_sizes(layout, max_bytes, where)
    return layout


def _check_sizes(layout: ArrayLayout, max_bytes: int | None, where: str) -> None:
    if layout.chunk_bytes > MAX_CHUNK_BYTES:
        raise UnsafeObject(
            f"{where}: a chunk of shape {layout.chunks} takes {layout.chunk_bytes:,} bytes, "
            f"more than the {MAX_CHUNK_BYTES:,} that are read at once"
        )
    if max_bytes is not None and layout.n_bytes > max_bytes:
        raise UnsafeObject(
            f"{where}: shape {layout.shape} of {layout.dtype} takes {layout.n_bytes:,} bytes, "
            f"more than the limit of {max_bytes:,}"
        )


def _codecs(
    entries: Any, chunks: tuple[int, ...], where: str, *, foreign: bool
) -> tuple[tuple[str, ...], ShardLayout | None]:
    chain = _chain(entries, where, foreign=foreign)
    names = [name for name, _ in chain]
    if not foreign:
        if names not in _OWN_CHAINS:
            raise UnsafeObject(f"{where}: codecs {names} are not bytes, zstd, crc32c in this order")
        return tuple(names), None
    if names == ["sharding_indexed"]:
        return tuple(names), _shard(chain[0][1], chunks, where)
    start = 1 if names[0] == "transpose" else 0
    if names[start : start + 1] != ["bytes"] or not _FOREIGN_COMPRESSORS.issuperset(names[start + 1 :]):
        raise UnsafeObject(f"{where}: codecs {names} are not transpose?, bytes and then compressors")
    return tuple(names), None


def _chain(entries: Any, where: str, *, foreign: bool) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(entries, list) or not 1 <= len(entries) <= 8:
        raise UnsafeObject(f"{where}: expected a list of one to eight codecs, got {_brief(entries)}")
    chain = []
    for entry in entries:
        name, options = _extension("codec", entry, tuple(_OPTIONS), None, where)
        _keys(f"codec {name}", options, _OPTIONS[name], where)
        if name == "bytes" and options.get("endian", "little") != "little" and not foreign:
            raise UnsafeObject(f"{where}: expected little-endian bytes, got {options['endian']!r}")
        chain.append((name, options))
    return chain


def _shard(options: dict[str, Any], chunks: tuple[int, ...], where: str) -> ShardLayout:
    inner = _sizes("chunk_shape", options.get("chunk_shape"), where, least=1)
    if len(inner) != len(chunks) or any(c % i for c, i in zip(chunks, inner, strict=True)):
        raise UnsafeObject(f"{where}: shards {chunks} are not whole multiples of their chunks {inner}")
    names, nested = _codecs(options.get("codecs"), inner, where, foreign=True)
    index = [name for name, _ in _chain(options.get("index_codecs"), where, foreign=False)]
    location = options.get("index_location", "end")
    if (
        nested is not None
        or index not in (["bytes"], ["bytes", "crc32c"])
        or location not in ("start", "end")
    ):
        raise UnsafeObject(
            f"{where}: expected shards with plain chunks and an index of bytes and crc32c, "
            f"got codecs {list(names)}, index codecs {index} at {_brief(location)}"
        )
    return ShardLayout(inner, location == "end", "crc32c" in index)


def _key_encoding(entry: Any, where: str, *, foreign: bool) -> tuple[str, str]:
    names = ("default", "v2") if foreign else ("default",)
    name, options = _extension("chunk_key_encoding", entry, names, frozenset({"separator"}), where)
    separator = options.get("separator", "/" if name == "default" else ".")
    if separator not in ("/", "."):
        raise UnsafeObject(f"{where}: chunk keys separated by {_brief(separator)} are not accepted")
    return ("c" if name == "default" else ""), separator


def _extension(
    what: str, entry: Any, names: tuple[str, ...], options: frozenset[str] | None, where: str
) -> tuple[str, dict[str, Any]]:
    """Return name and configuration of one of the named extension points of ``zarr.json``."""
    entry = _mapping(what, entry, where)
    _keys(what, entry, frozenset({"name", "configuration"}), where, required=frozenset({"name"}))
    if entry["name"] not in names:
        raise UnsafeObject(f"{where}: {what} {_brief(entry['name'])} is not one of {', '.join(names)}")
    configuration = _mapping(f"configuration of {what}", entry.get("configuration", {}), where)
    if options is not None:
        _keys(what, configuration, options, where)
    return entry["name"], configuration


def _keys(
    what: str,
    found: dict[str, Any],
    allowed: frozenset[str],
    where: str,
    required: frozenset[str] = frozenset(),
) -> None:
    if strange := sorted(set(found) - allowed):
        raise UnsafeObject(f"{where}: {what} has keys that are not accepted: {_brief(strange)}")
    if absent := sorted(required - set(found)):
        raise UnsafeObject(f"{where}: {what} lacks {', '.join(absent)}")


def _sizes(what: str, value: Any, where: str, *, least: int) -> tuple[int, ...]:
    plain = isinstance(value, list) and len(value) <= MAX_DIMENSIONS and all(type(k) is int for k in value)
    if not plain or any(not least <= k < 2**63 for k in value):
        raise UnsafeObject(f"{where}: {what} {_brief(value)} is not a list of integers >= {least}")
    return tuple(value)


def _dimension_names(value: Any, ndim: int, where: str) -> tuple[str | None, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != ndim or any(not isinstance(k, str | None) for k in value):
        raise UnsafeObject(f"{where}: dimension names {_brief(value)} do not fit {ndim} dimensions")
    return tuple(value)


def _check_fill_value(value: Any, where: str) -> None:
    if not isinstance(value, bool | int | float) and value not in ("NaN", "Infinity", "-Infinity"):
        raise UnsafeObject(f"{where}: fill value {_brief(value)} is not accepted")


def _mapping(what: str, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnsafeObject(f"{where}: expected an object for {what}, got {_brief(value)}")
    return value


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
