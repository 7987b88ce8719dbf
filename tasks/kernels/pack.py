"""Packed codes: eight bits a byte, least significant bit first, padding bits zero (NumPy "little", Faiss)."""

from __future__ import annotations

import numpy as np

from ._numba import loops
from .hamming import as_words

_ROWS_AT_ONCE = 4096


def packed_width(n_bits: int) -> int:
    """Return the bytes of one packed code, ``ceil(n_bits / 8)``."""
    return -(-n_bits // 8)


def pack_bits(bits: np.ndarray) -> np.ndarray:
    """Pack {0, 1} or boolean codes, shape (n, b), into uint8, shape (n, ceil(b / 8))."""
    return np.packbits(bits, axis=-1, bitorder="little")


def unpack_bits(packed: np.ndarray, n_bits: int) -> np.ndarray:
    """Unpack to uint8 codes of {0, 1}, shape (n, n_bits).

    Raises
    ------
    ValueError
        If the width of ``packed`` is not that of ``n_bits`` bits.
    """
    if packed.shape[-1] != packed_width(n_bits):
        raise ValueError(
            f"expected {packed_width(n_bits)} bytes a code for {n_bits} bits, got {packed.shape[-1]}"
        )
    return np.unpackbits(packed, axis=-1, count=n_bits, bitorder="little")


def pack_active(active: np.ndarray, n_bits: int) -> np.ndarray:
    """Pack sparse codes given as index lists (n, n_active) into uint8, shape (n, ceil(n_bits / 8))."""
    compiled = loops()
    if compiled is None:
        return pack_active_reference(active, n_bits)
    packed = np.zeros((active.shape[0], packed_width(n_bits)), np.uint8)
    compiled.pack_active(active, packed)
    return packed


def pack_active_reference(active: np.ndarray, n_bits: int) -> np.ndarray:
    """Do the same in NumPy."""
    bits = np.zeros((active.shape[0], n_bits), np.uint8)
    np.put_along_axis(bits, active.astype(np.intp), 1, axis=1)
    return pack_bits(bits)


def list_active(packed: np.ndarray, n_active: int) -> np.ndarray:
    """Return where the ones of packed sparse codes are, int32, shape (n, n_active), ascending.

    Raises
    ------
    ValueError
        If a code does not have ``n_active`` ones; the message names the first.
    """
    if loops() is None:
        return list_active_reference(packed, n_active)
    from . import compiled_search

    active = np.empty((len(packed), n_active), np.int32)
    wrong, count = compiled_search.list_active(as_words(packed), active)
    if wrong >= 0:
        raise _other_count(n_active, wrong, count)
    return active


def list_active_reference(packed: np.ndarray, n_active: int) -> np.ndarray:
    """Do the same in NumPy."""
    counts = np.bitwise_count(packed).sum(axis=1, dtype=np.int64)
    wrong = np.flatnonzero(counts != n_active)
    if len(wrong):
        raise _other_count(n_active, int(wrong[0]), int(counts[wrong[0]]))
    active = np.empty((len(packed), n_active), np.int32)
    for start in range(0, len(packed), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        bits = np.unpackbits(packed[rows], axis=-1, bitorder="little")
        active[rows] = np.nonzero(bits)[1].reshape(active[rows].shape)
    return active


def _other_count(n_active: int, row: int, count: int) -> ValueError:
    return ValueError(
        f"expected {n_active} ones in every code, row {row} has {count}; "
        "leave n_active out to compare these as dense codes"
    )
