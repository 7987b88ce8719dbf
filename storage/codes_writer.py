"""Writes packed codes from many tasks: each writes whole chunks, one marker makes them valid in the end."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .claims import abandon, claim_folder, release_folder
from .codes_reader import ACTIVE_DTYPES, CODES_DTYPES, FORMAT_VERSION, Codes, open_codes
from .digest import DataDigest, json_digest
from .errors import CorruptObject
from .places import place, sync, taken
from .s3 import calling
from .safe import check_array, create_array, opened
from .sealed import write_sealed_group

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from .places import Place


@dataclass(frozen=True)
class CodesWriter:
    """Writes chunks of new codes; small and picklable, for many tasks at once."""

    path: str
    n_rows: int
    n_bits: int
    n_active: int | None
    chunk_rows: int
    with_active: bool = False

    def write(self, start_row: int, packed: np.ndarray, active: np.ndarray | None = None) -> dict[str, Any]:
        """Write the chunk that begins at ``start_row`` and return its receipt for `finish_codes`.

        Parameters
        ----------
        start_row : int
            A multiple of ``chunk_rows``.
        packed : ndarray of uint8, shape (m, ceil(n_bits / 8))
            All rows of the chunk: ``chunk_rows`` of them, fewer only at the end.
        active : ndarray of int, shape (m, n_active)
            If and only if the writer was made ``with_active``.

        Raises
        ------
        ValueError
            If it is not exactly one chunk of valid codes.
        """
        self._check(start_row, packed, active)
        sha256 = _write_chunk(place(self.path) / "codes", start_row, np.ascontiguousarray(packed))
        receipt = {"start": int(start_row), "sha256": sha256}
        if active is not None:
            lists = np.ascontiguousarray(active, dtype="<i4")
            receipt["sha256_active"] = _write_chunk(place(self.path) / "active", start_row, lists)
        return receipt

    def _check(self, start_row: int, packed: np.ndarray, active: np.ndarray | None) -> None:
        expected = (min(self.chunk_rows, self.n_rows - start_row), -(-self.n_bits // 8))
        if start_row % self.chunk_rows or not 0 <= start_row < self.n_rows or packed.shape != expected:
            raise ValueError(
                f"expected one whole chunk of {self.chunk_rows} rows of {expected[1]} bytes (fewer rows only "
                f"at the end, row {self.n_rows}), got shape {packed.shape} at row {start_row}"
            )
        if packed.dtype != np.uint8:
            raise ValueError(f"expected packed codes of uint8, got {packed.dtype}")
        if self.n_bits % 8 and (packed[:, -1] >> (self.n_bits % 8)).any():
            raise ValueError(
                f"expected zero padding after bit {self.n_bits}; pack least significant bit first"
            )
        if (active is not None) != self.with_active:
            raise ValueError(
                f"expected {'index lists' if self.with_active else 'no index lists'} with the codes"
            )
        if active is not None and active.shape != (len(packed), self.n_active):
            raise ValueError(f"expected index lists of {self.n_active} places, got shape {active.shape}")


def create_codes(
    path: str | os.PathLike[str],
    *,
    n_rows: int,
    n_bits: int,
    n_active: int | None,
    chunk_rows: int,
    model_digest: str,
    source_digest: str,
    with_active: bool = False,
) -> CodesWriter:
    """Prepare new codes, valid only after `finish_codes`; `DestinationExists` if anything is at ``path``."""
    path = place(path)
    if n_rows < 0 or n_bits < 1 or chunk_rows < 1 or (with_active and n_active is None):
        raise ValueError(
            "expected n_rows >= 0, n_bits >= 1, chunk_rows >= 1 and n_active for index lists, got "
            f"n_rows={n_rows}, n_bits={n_bits}, chunk_rows={chunk_rows}, n_active={n_active}"
        )
    rows = min(chunk_rows, max(n_rows, 1))
    about = {
        "n_bits": n_bits,
        "n_active": n_active,
        "model_digest": model_digest,
        "source_digest": source_digest,
        "has_active": with_active,
    }
    joined = claim_folder(path, content=json_digest([n_rows, rows, about]))
    try:
        if not (joined and taken(path / "codes")):
            create_array(
                path / "codes",
                (n_rows, -(-n_bits // 8)),
                np.uint8,
                chunk_rows=rows,
                dimension_names=("sample", "byte"),
                attributes=about,
            )
        if with_active and n_active is not None and not (joined and taken(path / "active")):
            names = ("sample", "active")
            create_array(
                path / "active", (n_rows, n_active), np.int32, chunk_rows=rows, dimension_names=names
            )
    except BaseException:
        abandon(path)  # ours, and of no use
        raise
    return CodesWriter(str(path), n_rows, n_bits, n_active, rows, with_active)


def finish_codes(path: str | os.PathLike[str], chunk_digests: Iterable[Mapping[str, Any]]) -> Codes:
    """Read every chunk back, compare it with its receipt, and write the marker that makes the codes valid.

    Raises
    ------
    CorruptObject
        If a chunk has no receipt or is not what its task wrote.
    """
    path = place(path)
    receipts = {int(receipt["start"]): receipt for receipt in chunk_digests}
    codes = check_array(path / "codes", dtypes=CODES_DTYPES)
    about = codes.layout.attributes
    active = check_array(path / "active", dtypes=ACTIVE_DTYPES) if about["has_active"] else None
    n_rows, chunk_rows = codes.layout.shape[0], codes.layout.chunks[0]
    if set(receipts) != set(range(0, n_rows, chunk_rows)):
        raise CorruptObject(
            f"{path}: expected a receipt for each of {-(-n_rows // chunk_rows)} chunks, got {len(receipts)}"
        )
    digest = DataDigest("codes", np.uint8, codes.layout.shape[1:])
    for start in range(0, n_rows, chunk_rows):
        stop = min(start + chunk_rows, n_rows)
        rows = codes.rows(start, stop)
        lists = None if active is None else _sha256(active.rows(start, stop))
        if (_sha256(rows), lists) != (receipts[start]["sha256"], receipts[start].get("sha256_active")):
            raise CorruptObject(f"{path}: rows {start} to {stop} are not what their task wrote; encode again")
        digest.update(rows)
    sync(path)
    head = {"bitfleet_format": "codes", "format_version": FORMAT_VERSION, "digest": digest.hexdigest()}
    write_sealed_group(path, head | about, ["codes"] if active is None else ["codes", "active"])
    release_folder(path)
    return open_codes(path)


def _write_chunk(path: Place, start_row: int, rows: np.ndarray) -> str:
    with calling(path):
        # a run-time option, not part of the stored metadata: every opener sets it again
        array = opened(path, "r+").with_config({"write_empty_chunks": True})
        array[start_row : start_row + len(rows)] = rows
    return _sha256(rows)


def _sha256(rows: np.ndarray) -> str:
    plain: Any = np.ascontiguousarray(rows, rows.dtype.newbyteorder("<"))
    return hashlib.sha256(plain).hexdigest()
