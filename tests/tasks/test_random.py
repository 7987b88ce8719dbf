"""Addressed streams against Philox4x64-10 written out from its paper (Salmon et al., 2011)."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from bitfleet.tasks.random import stream

MASK = 2**64 - 1


def philox(counter: list[int], key: list[int]) -> list[int]:
    for _ in range(10):
        p0, p1 = 0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2]
        counter = [(p1 >> 64) ^ counter[1] ^ key[0], p1 & MASK, (p0 >> 64) ^ counter[3] ^ key[1], p0 & MASK]
        key = [(key[0] + 0x9E3779B97F4A7C15) & MASK, (key[1] + 0xBB67AE8584CAA73B) & MASK]
    return counter


def test_the_transcription_gives_the_published_vector() -> None:
    expected = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert philox([0, 0, 0, 0], [0, 0]) == expected


@pytest.mark.parametrize(("seed", "round", "block"), [(0, 0, 0), (3, 7, 11), (2**70, 2**64 - 1, 5)])
def test_numbers_are_those_of_the_address(seed: int, round: int, block: int) -> None:
    digest = hashlib.sha256(f"bitfleet stream 1\0{seed}\0test".encode()).digest()
    key = [int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")]
    expected = philox([1, 0, block, round], key) + philox([2, 0, block, round], key)
    raw = stream(seed, "test", round, block).bit_generator.random_raw(8)
    assert raw.tolist() == expected


def test_addresses_differ() -> None:
    streams = [stream(0, "a"), stream(1, "a"), stream(0, "b"), stream(0, "a", 1), stream(0, "a", 0, 1)]
    assert len({generator.integers(2**60) for generator in streams}) == 5


@pytest.mark.parametrize("seed", [-1, 1.5, "x", None])
def test_seeds_that_are_none_are_refused(seed: object) -> None:
    with pytest.raises(ValueError, match="seed"):
        stream(seed, "a")  # type: ignore[arg-type]


def test_addresses_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="round and block"):
        stream(0, "a", round=2**64)


def test_numpy_integers_are_seeds() -> None:
    assert stream(np.int64(4), "a").integers(1000) == stream(4, "a").integers(1000)
