"""Finished codes: what they say of themselves, their rows, and the check of their content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .digest import DataDigest
from .errors import CorruptObject, DataRefused
from .places import place
from .readers import MAX_GROUP_BYTES, StoredBlock, row_numbers, row_range, stored_array
from .run import is_stream
from .safe import read_group
from .sealed import check_attributes, sealed_array

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from .places import Place

FORMAT_VERSION = 1
CODES_DTYPES = frozenset({"uint8"})
ACTIVE_DTYPES = frozenset({"int32"})


@dataclass(frozen=True)
class CodesReader:
    """Reads blocks of codes: `StoredBlock.vectors` are packed codes, uint8; small and picklable."""

    path: str
    n_rows: int
    n_features: int
    dtype: str
    chunk_rows: int
    digest: str

    def read(self, address: Any) -> Any:
        """Return the block at an address (``start, stop`` or ``rows``), or two for ``left, right``."""
        if hasattr(address, "left"):
            return self.read(address.left), self.read(address.right)
        codes = stored_array(self.path, self.digest, "codes", CODES_DTYPES)
        if hasattr(address, "rows"):
            rows = row_numbers(address.rows, self.n_rows)
            packed = codes.take(rows)
        else:
            start, stop = row_range(address, self.n_rows)
            rows, packed = np.arange(start, stop, dtype=np.int64), codes.rows(start, stop)
        packed.flags.writeable = False
        return StoredBlock(rows, packed)


@dataclass(frozen=True)
class Codes:
    """Finished codes; small and picklable, the rows stay on disk."""

    path: Place
    n_rows: int
    n_bits: int
    n_active: int | None
    chunk_rows: int
    model_digest: str
    source_digest: str
    digest: str
    has_active: bool

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return packed codes of the rows ``start <= row < stop``, uint8, shape (m, ceil(n_bits / 8))."""
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start} to {stop} are not within {self.n_rows} codes")
        return stored_array(self.path, self.digest, "codes", CODES_DTYPES).rows(start, stop)

    def active(self, start: int, stop: int) -> np.ndarray:
        """Return the index lists of sparse codes, int32, shape (m, n_active); `DataRefused` without."""
        if not self.has_active:
            raise DataRefused(f"{self.path} has no index lists; encode again with active=True")
        return stored_array(self.path, self.digest, "active", ACTIVE_DTYPES).rows(start, stop)

    def reader(self) -> CodesReader:
        """Return what reads these codes block by block on a worker."""
        n_bytes = -(-self.n_bits // 8)
        return CodesReader(str(self.path), self.n_rows, n_bytes, "uint8", self.chunk_rows, self.digest)

    def verify(self) -> None:
        """Read every code and compare with the digest; `CorruptObject` if the content is another."""
        digest = DataDigest("codes", np.uint8, (-(-self.n_bits // 8),))
        for start in range(0, self.n_rows, self.chunk_rows):
            digest.update(self.rows(start, min(start + self.chunk_rows, self.n_rows)))
        if digest.hexdigest() != self.digest:
            raise CorruptObject(
                f"{self.path}: expected digest {self.digest}, the content has {digest.hexdigest()}"
            )


def open_codes(path: str | os.PathLike[str]) -> Codes:
    """Open finished codes after checking metadata and presence of all chunks.

    Raises
    ------
    DataRefused
        If there is nothing, or something that is no codes.
    CorruptObject
        If they are unfinished or damaged.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> X, path = np.random.default_rng(0).normal(size=(50, 8)), tempfile.mkdtemp() + "/codes.zarr"
    >>> _ = bf.encode(bf.LSH(n_bits=16, random_state=0).fit(X), X, path)
    >>> codes = bf.open_codes(path)
    >>> codes.n_bits, codes.rows(0, 5).shape
    (16, (5, 2))
    """
    path = place(path)
    if not path.is_dir():
        raise DataRefused(
            f"{path}: there are no codes; make them with `bitfleet encode RUN DATA {path.name}`"
        )
    if is_stream(path):
        raise DataRefused(
            f"{path}: expected codes, this is a stream; its codes are open_stream(path).codes()"
        )
    if not (path / "zarr.json").exists() and (path / "codes").exists():
        raise CorruptObject(f"{path}: unfinished, encoding did not end; remove it and encode again")
    if not (path / "zarr.json").exists():
        raise DataRefused(
            f"{path}: this folder holds no codes; make them with `bitfleet encode RUN DATA CODES`"
        )
    about = read_group(path, max_bytes=MAX_GROUP_BYTES)
    if about.get("bitfleet_format") == "dataset":
        raise DataRefused(
            f"{path}: expected codes, this is a data set; `bitfleet encode` makes codes of it, and a search "
            "takes it as queries with the model that made the codes (--model, model=)"
        )
    if about.get("bitfleet_format") != "codes" or about.get("format_version") != FORMAT_VERSION:
        found = f"{about.get('bitfleet_format')} {about.get('format_version')}"
        raise DataRefused(
            f"{path}: expected codes {FORMAT_VERSION}, got {found:.60}; make codes with "
            "`bitfleet encode RUN DATA CODES`, or read them with the bitfleet that wrote them"
        )
    check_attributes(path, about)
    _check_about(about, path)
    layout = sealed_array(path, about, "codes", CODES_DTYPES).layout
    if len(layout.shape) != 2 or layout.shape[1] != -(-about["n_bits"] // 8):
        raise CorruptObject(f"{path}: codes of shape {layout.shape} do not fit n_bits={about['n_bits']}")
    if about["has_active"]:
        lists = sealed_array(path, about, "active", ACTIVE_DTYPES).layout
        if lists.shape != (layout.shape[0], about["n_active"]):
            raise CorruptObject(f"{path}: index lists of shape {lists.shape} do not fit the codes")
    return Codes(
        path=path,
        n_rows=layout.shape[0],
        n_bits=about["n_bits"],
        n_active=about["n_active"],
        chunk_rows=layout.chunks[0],
        model_digest=about["model_digest"],
        source_digest=about["source_digest"],
        digest=about["digest"],
        has_active=about["has_active"],
    )


def _check_about(about: Mapping[str, Any], path: Place) -> None:
    types: dict[str, Any] = {
        "digest": str,
        "model_digest": str,
        "source_digest": str,
        "n_bits": int,
        "n_active": int | None,
        "has_active": bool,
    }
    for name, expected in types.items():
        if name not in about or not isinstance(about[name], expected):
            raise CorruptObject(f"{path}: attribute {name} is missing or wrong: {about.get(name)!r:.40}")
