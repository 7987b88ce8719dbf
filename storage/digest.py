"""SHA-256 of what an array or a JSON value says, not of how a file stores it.

An array's digest is taken over its name, dtype, shape and little-endian row-major bytes.  The rows are
hashed in tiles of `TILE_ROWS` and the tiles' digests are combined in order::

    digest = SHA256( canonical JSON {name, dtype, shape}  ‖  SHA256(tile 0)  ‖  SHA256(tile 1)  ‖ … )

so that neither chunks, compression, byte order nor the pieces in which the rows arrive can change it, and
tiles may be hashed in parallel.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import DTypeLike

TILE_ROWS = 65_536


class DataDigest:
    """Digest of an array whose rows come in pieces of any size.

    Parameters
    ----------
    name : str
        The array's name; two arrays of equal content and different names have different digests.
    dtype : dtype
        Bool, integer or floating; every piece must have it (byte order aside).
    row_shape : tuple of int
        Shape of one row: ``(d,)`` for vectors, ``()`` for labels.
    """

    def __init__(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> None:
        self.name = name
        self.dtype = _plain(np.dtype(dtype))
        self.row_shape = tuple(int(k) for k in row_shape)
        self.n_rows = 0
        self._tiles = bytearray()
        self._tile = hashlib.sha256()

    def update(self, rows: np.ndarray) -> None:
        """Add the next rows, shape (m, *row_shape).

        Raises
        ------
        ValueError
            If the dtype or the shape of a row is another than announced.
        """
        rows = np.asarray(rows)
        if rows.shape[1:] != self.row_shape or _plain(rows.dtype) != self.dtype:
            raise ValueError(
                f"digest of {self.name!r}: expected rows of {self.dtype} with shape {self.row_shape}, "
                f"got {rows.dtype} with shape {rows.shape[1:]}"
            )
        for piece in _until_tile_ends(rows, self.n_rows):
            self._tile.update(_little_endian_bytes(piece))
            self.n_rows += len(piece)
            if self.n_rows % TILE_ROWS == 0:
                self._tiles += self._tile.digest()
                self._tile = hashlib.sha256()

    def hexdigest(self) -> str:
        """Return the digest of the rows so far; more rows may follow."""
        tiles = bytes(self._tiles)
        if self.n_rows % TILE_ROWS:
            tiles += self._tile.digest()
        return _combine(self.name, self.dtype, (self.n_rows, *self.row_shape), tiles)


def array_digest(name: str, array: np.ndarray) -> str:
    """Return the hex digest of a named array, equal to that of `DataDigest` over its rows."""
    array = np.asarray(array)
    if array.ndim == 0:
        tile = hashlib.sha256(_little_endian_bytes(array)).digest()
        return _combine(name, _plain(array.dtype), (), tile)
    digest = DataDigest(name, array.dtype, array.shape[1:])
    digest.update(array)
    return digest.hexdigest()


def arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return one hex digest of several named arrays, independent of their order in the mapping."""
    return json_digest({name: array_digest(name, array) for name, array in arrays.items()})


def canonical_json(value: Any) -> bytes:
    """Return the one UTF-8 text of a JSON value: sorted keys, no blanks, finite numbers only.

    Raises
    ------
    TypeError
        If a value is no JSON value or a key is no string.
    ValueError
        If a number is NaN or infinite.
    """
    _check_keys(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def json_digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON as hex."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _combine(name: str, dtype: np.dtype, shape: tuple[int, ...], tile_digests: bytes) -> str:
    header = canonical_json({"name": name, "dtype": dtype.name, "shape": list(shape)})
    return hashlib.sha256(header + tile_digests).hexdigest()


def _plain(dtype: np.dtype) -> np.dtype:
    """Return the dtype in little-endian order; refuse what has no plain bytes."""
    if dtype.kind not in "biuf":
        raise TypeError(f"expected a bool, integer or floating dtype, got {dtype}")
    return dtype.newbyteorder("<")


def _little_endian_bytes(array: np.ndarray) -> Any:
    plain = np.ascontiguousarray(array, dtype=_plain(array.dtype))
    return plain.reshape(-1).view(np.uint8)


def _until_tile_ends(rows: np.ndarray, n_before: int) -> Iterator[np.ndarray]:
    """Cut rows where tiles end, the first of them being row ``n_before`` of the array."""
    start = 0
    while start < len(rows):
        stop = min(len(rows), start + TILE_ROWS - (n_before + start) % TILE_ROWS)
        yield rows[start:stop]
        start = stop


def _check_keys(value: Any) -> None:
    """Refuse keys that json would silently turn into strings."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"expected string keys in JSON, got {key!r}")
            _check_keys(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_keys(item)
