"""Reading ahead: the next block comes while this one is computed; few at a time, same bits, no harm done."""

from __future__ import annotations

import threading
import time

import cluster_toys as toys
import numpy as np
import pytest
from bitfleet.cluster.ahead import ReadAhead, reading
from bitfleet.cluster.cache import BlockCache
from bitfleet.cluster.dask_executor import DaskExecutor
from bitfleet.cluster.launch import connect
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.storage.dataset import open_dataset
from bitfleet.storage.dataset_writer import DatasetWriter
from bitfleet.storage.errors import CorruptObject
from bitfleet.tasks.protocols import BlockPair, RoundState, RowIndices, RowRange

SERIAL = SerialExecutor()
LEAVES = toys.leaves(6)


class Watched(toys.Halves):
    """Notes what is fetched, by whom, and can be made to fail."""

    def __init__(self, errors=0):
        super().__init__(24)
        self.__dict__.update(fetched=[], threads=[], errors=[OSError("torn cable")] * errors)

    __hash__ = object.__hash__

    def fetch(self, address):
        self.threads.append(threading.current_thread().name)
        if self.errors:
            raise self.errors.pop()
        block = super().fetch(address)
        self.fetched.append(address)
        return block


def wait_for(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come about within 5 s")


def test_the_next_block_is_read_while_this_one_is_at_work_and_no_more():
    reader = Watched()
    with reading(reader, LEAVES) as read:
        for number, address in enumerate(LEAVES):
            assert read(address).vectors.tobytes() == toys.Halves(24).read(address).vectors.tobytes()
            due = LEAVES[: number + 2]
            wait_for(lambda due=due: reader.fetched == due)
    assert len(reader.fetched) == len(LEAVES)
    assert not reader.threads[0].startswith("bitfleet-ahead")
    assert all(name.startswith("bitfleet-ahead") for name in reader.threads[1:])


def test_what_cannot_be_read_ahead_is_read_as_it_is_asked_for():
    pair, some = BlockPair(RowRange(0, 4), RowRange(4, 8)), RowIndices((3, 1))
    with reading(toys.Formula(24), [pair, some]) as read:
        assert [block.rows[0] for block in read(pair)] == [0, 4]
        assert read(some).rows.tolist() == [3, 1]


@pytest.mark.parametrize(("errors", "told"), [(1, False), (2, True)])
def test_an_error_that_goes_away_is_never_seen_and_one_that_stays_is_told(errors, told):
    reader, ahead = Watched(errors), ReadAhead(1)
    ahead.begin(reader, LEAVES[1])
    if told:
        with pytest.raises(OSError, match="torn cable"):
            ahead.take(reader, LEAVES[1])
    else:
        assert ahead.take(reader, LEAVES[1]).rows[0] == LEAVES[1].start
    ahead.close()


def test_never_more_than_so_many_are_held_and_the_unwanted_make_room():
    reader, ahead = Watched(), ReadAhead(2)
    for number, address in enumerate(LEAVES):
        ahead.begin(reader, address)
        wait_for(lambda n=number: len(reader.fetched) == n + 1)
        wait_for(lambda: all(future.done() for future in ahead._coming.values()))
    assert list(ahead._coming) == [(reader, address) for address in LEAVES[-2:]]
    ahead.close()
    ahead.begin(reader, LEAVES[0])
    assert (len(ahead._coming), len(reader.fetched)) == (0, len(LEAVES))


def test_blocks_are_kept_as_they_are_stored_and_come_out_as_they_are_read():
    reader, cache = Watched(), BlockCache(10**6, ahead=1)
    for number in range(2):
        for address in LEAVES:
            block = cache.read(reader, address, f"round {number}")
            assert block.vectors.dtype == np.float32
            assert block.vectors.tobytes() == toys.Halves(24).read(address).vectors.tobytes()
    assert cache.n_bytes == 24 * (8 + 3 * 2)
    cache.read_ahead(reader, LEAVES[0])  # it is there
    assert len(reader.fetched) == len(LEAVES)
    cache.give_up()
    cache.read_ahead(reader, LEAVES[0])  # there is no memory for it
    assert (cache.n_bytes, len(reader.fetched)) == (0, len(LEAVES))


def stored(path, value):
    with DatasetWriter(path, n_features=3, dtype="float16", chunk_rows=4) as writer:
        writer.append(np.full((8, 3), value, np.float16))
    return open_dataset(path).reader()


def test_nothing_of_a_dataset_that_was_replaced_is_ever_taken_for_its_successors(tmp_path):
    cache, path = BlockCache(10**6, ahead=1), tmp_path / "data.zarr"
    old = stored(path, 1.0)
    cache.read(old, RowRange(0, 4), "1")
    path.rename(tmp_path / "old.zarr")
    new = stored(path, 2.0)
    cache.read_ahead(new, RowRange(0, 4))
    assert (cache.read(new, RowRange(0, 4), "1").vectors == 2).all()
    assert (cache.read(old, RowRange(0, 4), "2").vectors == 1).all()  # what the old one had
    with pytest.raises(CorruptObject, match="another is there"):
        cache.read(old, RowRange(4, 8), "2")


@pytest.mark.parametrize("n_leaves", [20, 300])
def test_workers_read_ahead_and_add_up_the_same_bits(two, tmp_path, n_leaves):
    reader = toys.Halves(4 * n_leaves, digest=str(tmp_path), folder=str(tmp_path))
    leaves, executor = toys.leaves(n_leaves), DaskExecutor(two)
    expected = SERIAL.reduce(toys.Halves(4 * n_leaves), leaves, toys.Sum(), toys.EMPTY)
    for number in range(2):
        reference = toys.Held(RoundState(number), key=f"{tmp_path}-{number}")
        got = executor.reduce(reader, leaves, toys.Sum(), reference)
        assert got["sum"].tobytes() == expected["sum"].tobytes()
    fetches = list(tmp_path.glob("fetch-*"))
    assert n_leaves <= len(fetches) < 1.5 * n_leaves  # the second round finds them
    assert len([path for path in fetches if "bitfleet-ahead" in path.name]) > n_leaves / 4


@pytest.mark.long
def test_a_worker_killed_while_it_reads_ahead_changes_nothing(tmp_path):
    reader = toys.Halves(80, digest=str(tmp_path), folder=str(tmp_path), kills=True)
    expected = SERIAL.reduce(toys.Halves(80), toys.leaves(20), toys.Sum(), toys.EMPTY)
    with connect(n_workers=2) as client:
        got = DaskExecutor(client).reduce(reader, toys.leaves(20), toys.Sum(), toys.EMPTY)
    assert (tmp_path / "died").exists()
    assert got["sum"].tobytes() == expected["sum"].tobytes()
