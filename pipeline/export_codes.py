"""Codes as files that other programs read: NumPy, Parquet, and rows for PostgreSQL with pgvector.

All of them are written piece by piece, so that stored codes may be larger than memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.codes import Codes
from ..tasks.kernels.pack import unpack_bits
from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ROWS_AT_ONCE = 1 << 16
_BITS_AT_ONCE = 1 << 26


@dataclass(frozen=True)
class Packed:
    """Codes to be written.

    Attributes
    ----------
    codes : Codes, or ndarray of uint8, shape (n, n_bytes)
    n_bits : int
    n_active : int or None
    ids : ndarray of int64 or str, shape (n,), or None
    """

    codes: Codes | np.ndarray
    n_bits: int
    n_active: int | None
    ids: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """How many codes there are."""
        return self.codes.n_rows if isinstance(self.codes, Codes) else len(self.codes)

    @property
    def n_bytes(self) -> int:
        """Bytes of a code."""
        return -(-self.n_bits // 8)

    def pieces(self, at_most: int | None = None) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of the first row, and packed codes, in order."""
        rows = _ROWS_AT_ONCE if at_most is None else min(at_most, _ROWS_AT_ONCE)
        if isinstance(self.codes, Codes):
            rows = max(rows // self.codes.chunk_rows, 1) * self.codes.chunk_rows
        for start in range(0, self.n_rows, rows):
            stop = min(start + rows, self.n_rows)
            yield (
                start,
                self.codes.rows(start, stop) if isinstance(self.codes, Codes) else self.codes[start:stop],
            )

    def ids_of(self, start: int, stop: int) -> np.ndarray:
        """Return the ids of some rows: their numbers, unless others were given."""
        return np.arange(start, stop, dtype=np.int64) if self.ids is None else self.ids[start:stop]


def write_npy(packed: Packed, path: Path) -> None:
    """Write an array of uint8, shape (n, n_bytes), that ``numpy.load`` reads."""
    shape = (packed.n_rows, packed.n_bytes)
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for _, rows in packed.pieces():
            file.write(np.ascontiguousarray(rows).data)


def write_parquet(packed: Packed, path: Path) -> None:
    """Write columns ``id`` and ``code`` (fixed_size_binary); what the codes are is in the schema's metadata.

    Raises
    ------
    ConfigError
        If pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ConfigError(
            "pyarrow is not installed; install it with: pip install 'bitfleet[parquet]'"
        ) from None
    kind = pa.int64() if packed.ids is None or packed.ids.dtype.kind in "iu" else pa.string()
    about = {"bitfleet_format": "codes", "n_bits": packed.n_bits, "bitorder": "little"}
    about |= {} if packed.n_active is None else {"n_active": packed.n_active}
    if isinstance(packed.codes, Codes):
        about |= {"digest": packed.codes.digest, "model_digest": packed.codes.model_digest}
    schema = pa.schema(
        [("id", kind), ("code", pa.binary(packed.n_bytes))],
        metadata={key: str(value) for key, value in about.items()},
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start, rows in packed.pieces():
            buffer = pa.py_buffer(np.ascontiguousarray(rows).tobytes())
            codes: Any = pa.Array.from_buffers(schema.field("code").type, len(rows), [None, buffer])
            ids = pa.array(packed.ids_of(start, start + len(rows)).tolist(), kind)
            writer.write_table(pa.Table.from_arrays([ids, codes], schema=schema))


def write_pgvector(packed: Packed, path: Path) -> None:
    """Write lines ``id,bits`` for ``COPY … (FORMAT csv)`` into a column of type ``bit(n_bits)``."""
    with path.open("wb") as file:
        for start, rows in packed.pieces(max(_BITS_AT_ONCE // packed.n_bits, 1)):
            digits = unpack_bits(rows, packed.n_bits) + np.uint8(ord("0"))
            bits = np.ascontiguousarray(digits).view(f"S{packed.n_bits}")[:, 0].tolist()
            ids = packed.ids_of(start, start + len(rows)).tolist()
            lines = (b"%s,%s\n" % (_field(name), code) for name, code in zip(ids, bits, strict=True))
            file.write(b"".join(lines))


def _field(value: Any) -> bytes:
    """Return an id as a field of CSV."""
    text = str(value)
    quoted = isinstance(value, str)
    return (f'"{text.replace(chr(34), chr(34) * 2)}"' if quoted else text).encode("utf-8")
