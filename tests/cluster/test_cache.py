"""What workers keep: blocks that come again, states by their key."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Thread

import cluster_toys as toys
import numpy as np
import pytest
from bitfleet.cluster.cache import BlockCache, StateCache
from bitfleet.cluster.worker import RESERVED_BYTES, cache_bytes
from bitfleet.tasks.protocols import BlockPair, RowIndices, RowRange

BLOCK_BYTES = 4 * (8 + 3 * 4)  # 4 rows: their numbers and 3 float32 each


def scan(cache, reader, n_leaves, name):
    before = cache.hits
    for address in toys.leaves(n_leaves):
        block = cache.read(reader, address, name)
        assert block.rows[0] == address.start
        assert block.vectors.tobytes() == reader.read(address).vectors.tobytes()
    return cache.hits - before


def test_a_second_pass_finds_everything_that_fits():
    cache = BlockCache(10 * BLOCK_BYTES)
    assert scan(cache, toys.Formula(40), 10, "round 1") == 0
    assert scan(cache, toys.Formula(40), 10, "round 2") == 10


def test_a_pass_that_is_twice_too_large_still_finds_half():
    cache = BlockCache(10 * BLOCK_BYTES)
    scan(cache, toys.Formula(80), 20, "round 1")
    assert [scan(cache, toys.Formula(80), 20, f"round {r}") for r in (2, 3, 4)] == [10, 10, 10]
    assert cache.n_bytes <= cache.limit


def test_another_dataset_takes_over_after_two_passes():
    cache = BlockCache(10 * BLOCK_BYTES)
    scan(cache, toys.Formula(40), 10, "round 1")
    other = toys.Formula(40, digest="other")
    assert [scan(cache, other, 10, f"round {r}") for r in (2, 3, 4, 5)] == [0, 0, 10, 10]


def test_readers_that_do_not_name_their_content_are_not_cached():
    cache = BlockCache(10**6)
    assert scan(cache, toys.Formula(40, digest=""), 10, "1") == 0
    assert scan(cache, toys.Formula(40, digest=""), 10, "2") == 0
    cache.read(toys.InMemory(np.ones((8, 3), np.float32)), RowRange(0, 4), "2")
    assert cache.n_bytes == 0


def test_pairs_share_the_blocks_of_their_ranges_and_indices_are_read_anew():
    cache = BlockCache(10**6)
    reader, left, right = toys.Formula(40), RowRange(0, 4), RowRange(4, 8)
    first = cache.read(reader, BlockPair(left, right), "1")
    assert [block.rows[0] for block in first] == [0, 4]
    assert cache.read(reader, BlockPair(right, left), "1")[0] is first[1]
    cache.read(reader, RowIndices((5, 3)), "1")
    assert cache.n_bytes == 2 * BLOCK_BYTES


def test_a_cache_without_room_reads_every_time():
    cache = BlockCache(0)
    scan(cache, toys.Formula(40), 10, "1")
    assert scan(cache, toys.Formula(40), 10, "2") == 0


def test_a_state_is_loaded_once_by_any_number_of_threads(tmp_path):
    cache, reference = StateCache(), toys.Stored.write(tmp_path, w=np.ones(3))
    threads = [Thread(target=cache.load, args=(reference,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(tmp_path.glob("load-*"))) == 1
    state = cache.load(reference)
    assert (state.round, state.scalars, state.arrays["w"].tolist()) == (4, {"seed": 1}, [1, 1, 1])


def test_only_the_last_states_are_kept():
    @dataclass
    class Counting:
        key: str
        loads: int = 0

        def load(self):
            self.loads += 1
            return toys.EMPTY.state

    cache, references = StateCache(size=2), [Counting(key) for key in "abc"]
    for index in (0, 1, 0, 2, 0, 1):
        cache.load(references[index])
    assert [reference.loads for reference in references] == [1, 2, 1]


def test_a_state_that_cannot_be_read_is_tried_again(tmp_path):
    cache, reference = StateCache(), toys.Stored(str(tmp_path), "missing")
    with pytest.raises(FileNotFoundError):
        cache.load(reference)
    np.savez(tmp_path / "state.npz", w=np.ones(1))
    assert cache.load(reference).round == 4


def test_the_cache_leaves_room_for_the_libraries():
    assert cache_bytes(RESERVED_BYTES // 2) == 0
    assert cache_bytes(2**30) == 2**28
    assert cache_bytes(2**33) < 2**32
