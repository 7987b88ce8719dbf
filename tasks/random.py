"""Addressed random numbers: what is drawn depends on where it is used, never on what was drawn before.

``stream(seed, purpose, round, block)`` opens a counter-based Philox generator at that address.  There is no
generator state to save or to hand from worker to worker, and results do not depend on order or on
how the input is chunked.

The 128-bit key is the head of SHA-256 over seed and purpose; round and block are the two high words of
the 256-bit counter, which leaves each address 2**128 values of its own.
"""

from __future__ import annotations

import hashlib
from operator import index

import numpy as np

_WORD = 2**64


def stream(seed: int, purpose: str, round: int = 0, block: int = 0) -> np.random.Generator:
    """Open the random stream at an address.

    Parameters
    ----------
    seed : int
        The run's seed, any integer >= 0.
    purpose : str
        What the numbers are for, for example ``"posh.projection"``; streams of different purposes are
        independent.
    round, block : int
        Where in the run they are used, each in [0, 2**64).

    Returns
    -------
    numpy.random.Generator
        A fresh generator; the same address gives the same numbers on every platform.

    Raises
    ------
    ValueError
        If a number is negative or too large.
    """
    seed, round, block = check_seed(seed), index(round), index(block)
    if not (0 <= round < _WORD and 0 <= block < _WORD):
        raise ValueError(f"expected round and block in [0, 2**64), got round={round}, block={block}")
    digest = hashlib.sha256(f"bitfleet stream 1\0{seed}\0{purpose}".encode()).digest()
    key = np.frombuffer(digest[:16], dtype="<u8").astype(np.uint64)
    counter = np.array([0, 0, block, round], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def check_seed(seed: int) -> int:
    """Return ``seed`` as a plain int, or raise a ValueError that says what is allowed."""
    try:
        value = index(seed)
    except TypeError:
        raise ValueError(f"expected the seed to be an integer >= 0, got {seed!r}") from None
    if value < 0:
        raise ValueError(f"expected the seed to be an integer >= 0, got {value}")
    return value
