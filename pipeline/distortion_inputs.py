"""What `max_distortion` is given, brought into one shape: readers of vectors and of packed codes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.codes import Codes, open_codes
from ..storage.digest import array_digest
from ..tasks.kernels.pack import pack_bits, packed_width
from .arrays import as_dataset, is_dataset, is_lazy, make_reader, spool, unwrap
from .code_inputs import loaded
from .errors import ConfigError

if TYPE_CHECKING:
    from ..storage.codes_reader import CodesReader
    from ..storage.places import Place
    from ..tasks.protocols import BlockReader


@dataclass(frozen=True, eq=False)
class PairInputs:
    """Rows and their codes.

    Attributes
    ----------
    vectors : BlockReader
    n_bits : int
    codes : CodesReader or None
        Of codes in files.
    held_codes : ndarray of uint8, shape (n, n_bytes)
        Codes in memory; no rows where they are in files.
    data_digest, codes_digest : str
    """

    vectors: BlockReader
    n_bits: int
    codes: CodesReader | None
    held_codes: np.ndarray
    data_digest: str
    codes_digest: str

    def packed(self, rows: np.ndarray) -> np.ndarray:
        """Return the packed codes of some rows."""
        if self.codes is None:
            return self.held_codes[rows]
        from ..tasks.protocols import RowIndices

        return self.codes.read(RowIndices(tuple(rows.tolist()))).vectors


def pair_inputs(codes: Any, vectors: Any, n_bits: int | None, folder: Place, *, stored: bool) -> PairInputs:
    """Return codes and vectors as readers; arrays are written into ``folder`` if they have to be ``stored``.

    Raises
    ------
    ConfigError
        If they do not fit each other, or there are fewer than two rows.
    DataRefused
        If vectors hold NaN or infinity.
    """
    if isinstance(codes, str | os.PathLike):
        codes = open_codes(codes)
    if is_dataset(vectors):
        dataset = as_dataset(vectors)
        reader: BlockReader = dataset.reader()
        digest = dataset.digest
    elif stored:
        vectors = unwrap(vectors)
        vectors = vectors if hasattr(vectors, "dtype") else np.asarray(vectors)
        dataset = spool(vectors, folder / "data.zarr")
        reader, digest = dataset.reader(), dataset.digest
    else:
        reader, digest = make_reader(vectors, folder), "in memory"
    if isinstance(codes, Codes):
        _check_rows(codes.n_rows, reader.n_rows)
        if is_dataset(vectors) and codes.source_digest != digest:
            raise ConfigError(f"{codes.path} are codes of other data than {dataset.path}; encode this data")
        held = np.empty((0, packed_width(codes.n_bits)), np.uint8)
        return PairInputs(reader, codes.n_bits, codes.reader(), held, digest, codes.digest)
    packed, n_bits = packed_codes(codes, n_bits)
    _check_rows(len(packed), reader.n_rows)
    return PairInputs(reader, n_bits, None, packed, digest, array_digest("codes", packed))


def packed_codes(codes: Any, n_bits: int | None) -> tuple[np.ndarray, int]:
    """Return codes in memory packed, and their bits; zeros and ones are recognised as such.

    Bytes that are all 0 or 1 are the same distances apart read either way.
    """
    codes = unwrap(codes)
    codes = np.asarray(codes) if not is_lazy(codes) else np.asarray(codes[:])
    if codes.ndim != 2:
        raise ConfigError(f"expected codes of two dimensions (rows, bits or bytes), got shape {codes.shape}")
    binary = codes.dtype == bool or (codes.size > 0 and codes.min() == 0 and codes.max() <= 1)
    binary = binary or (codes.size > 0 and (codes == 1).all())
    if (binary and n_bits in (None, codes.shape[1])) or codes.dtype != np.uint8:
        if not binary or n_bits not in (None, codes.shape[1]):
            raise ConfigError(
                f"expected codes as zeros and ones of shape (n, n_bits), or packed as uint8, "
                f"got {codes.dtype} of shape {codes.shape}"
                + ("" if n_bits is None else f" for {n_bits} bits")
            )
        return pack_bits(codes != 0), codes.shape[1]
    packed, n_bits, _ = loaded(codes, n_bits, None)
    return packed, n_bits


def _check_rows(n_codes: int, n_rows: int) -> None:
    if n_codes != n_rows:
        raise ConfigError(f"expected one code for each row, got {n_codes} codes and {n_rows} rows")
    if n_rows < 2:
        raise ConfigError(f"expected at least two rows, got {n_rows}: distortion is about pairs")
