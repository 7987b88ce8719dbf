"""Packed codes: eight bits a byte, least significant bit first, padding bits zero (NumPy "little", Faiss)."""

from __future__ import annotations

import numpy as np

from ._numba import loops


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
