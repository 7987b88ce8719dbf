"""The serial executor: a leaf per block, the fixed tree, one BLAS thread; what the others are judged by."""

from __future__ import annotations

import threading

import cluster_toys as toys
import numpy as np
import pytest
import threadpoolctl
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.cluster.threads import one_blas_thread
from bitfleet.pipeline.train import train
from bitfleet.storage.memory import MemoryCheckpoints
from bitfleet.storage.readers import ArrayReader
from bitfleet.tasks.methods.itq import ITQ, Projected
from bitfleet.tasks.protocols import BlockPair, Executor, LeafPlan, RoundState, RowIndices, RowRange

EXECUTOR = SerialExecutor()


def brute_force(n_leaves: int, rows: int, fan_in: int) -> np.ndarray:
    """The sum of `toys.Sum` by loops over the levels of the tree."""
    level = []
    for leaf in range(n_leaves):
        total = np.zeros(3, np.float32)
        for row in toys.rows_of(leaf * rows, (leaf + 1) * rows):
            total = total + row
        level.append(total)
    while len(level) > 1:
        above = []
        for start in range(0, len(level), fan_in):
            total = level[start]
            for part in level[start + 1 : start + fan_in]:
                total = total * np.float32(1.0000001) + part
            above.append(total)
        level = above
    return level[0]


@pytest.mark.parametrize(("n_leaves", "fan_in"), [(1, 8), (5, 8), (9, 8), (70, 8), (70, 2), (27, 3)])
def test_reduce_adds_in_the_order_of_the_tree(n_leaves, fan_in):
    got = EXECUTOR.reduce(
        toys.Formula(n_leaves * 4), toys.leaves(n_leaves), toys.Sum(), toys.EMPTY, fan_in=fan_in
    )
    assert got["sum"].tobytes() == brute_force(n_leaves, 4, fan_in).tobytes()
    assert got["count"] == n_leaves * 4


def test_the_tree_decides_the_bits():
    sums = {
        EXECUTOR.reduce(toys.Formula(400), toys.leaves(100), toys.Sum(), toys.EMPTY, fan_in=f)[
            "sum"
        ].tobytes()
        for f in (2, 3, 8, 100)
    }
    assert len(sums) > 1


def test_the_merges_spelled_out():
    got = EXECUTOR.reduce(toys.Formula(7), toys.leaves(7, rows=1), toys.Spell(), toys.EMPTY, fan_in=3)
    assert str(got["text"]) == "((((0 1) 2) ((3 4) 5)) 6)"


def test_no_addresses_give_the_neutral_element():
    got = EXECUTOR.reduce(toys.Formula(0), [], toys.Sum(), toys.EMPTY)
    assert got["sum"].tolist() == [0, 0, 0]
    assert got["count"] == 0


def test_a_sequential_accumulator_sees_all_blocks_in_order():
    value = 0.5
    for row in range(40):
        value = 3.7 * (1 - value) * value + 1e-9 * (row % 5)
    got = EXECUTOR.reduce(toys.Formula(40), toys.leaves(10), toys.Chain(), toys.EMPTY)
    assert got["value"][0] == pytest.approx(value, rel=1e-6)


def test_map_keeps_the_order_and_knows_the_round(tmp_path):
    reference = toys.Stored.write(tmp_path, scale=np.ones(1))
    addresses = [RowRange(8, 12), RowRange(0, 4), RowIndices((3, 1))]
    got = EXECUTOR.map(toys.Describe(), toys.Formula(12), addresses, reference)
    assert [(result["start"], result["round"]) for result in got] == [(8, 4), (0, 4), (3, 4)]


def test_pairs_and_indices_are_addresses_like_others():
    class Pairs:
        def init(self):
            return {"n": np.zeros(1, np.int64)}

        def update(self, state, pair):
            left, right = pair
            state["n"] += len(left.rows) * len(right.rows)
            return state

        def merge(self, left, right):
            return {"n": left["n"] + right["n"]}

        def finalize(self, state):
            return state

    class Program:
        def accumulator(self, state):
            return Pairs()

    ranges = [RowRange(0, 3), RowRange(3, 5)]
    pairs = [BlockPair(a, b) for a in ranges for b in ranges]
    assert EXECUTOR.reduce(toys.Formula(5), pairs, Program(), toys.EMPTY)["n"] == 25


def test_the_program_gets_the_committed_state(tmp_path):
    reference = toys.Stored.write(tmp_path, scale=np.array([2.0]))
    doubled = EXECUTOR.reduce(toys.Formula(4), toys.leaves(1), toys.Sum(), reference)
    plain = EXECUTOR.reduce(toys.Formula(4), toys.leaves(1), toys.Sum(), toys.EMPTY)
    assert doubled["sum"].tolist() == (2 * plain["sum"]).tolist()


def test_a_state_cannot_be_changed_by_a_program():
    scale = np.ones(1)
    with pytest.raises(ValueError, match="read-only"):
        EXECUTOR.reduce(
            toys.Formula(4), toys.leaves(1), toys.MutatesState(), toys.Held(RoundState(1, {"scale": scale}))
        )
    assert scale.tolist() == [1]
    assert scale.flags.writeable


def test_exceptions_of_user_code_come_as_they_are():
    with pytest.raises(toys.UserError, match="no such rows: 0"):
        EXECUTOR.reduce(toys.Formula(8), toys.leaves(2), toys.Fails(), toys.EMPTY)


def test_a_fan_in_of_one_is_refused():
    with pytest.raises(ValueError, match="fan_in >= 2"):
        EXECUTOR.reduce(toys.Formula(8), toys.leaves(2), toys.Sum(), toys.EMPTY, fan_in=1)


def test_blocks_are_added_with_one_blas_thread_and_the_limit_is_lifted_after():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = toys.blas_threads()
        got = EXECUTOR.reduce(toys.Formula(4), toys.leaves(1), toys.BlasThreads(), toys.EMPTY)
        assert set(got["threads"].tolist()) == {1}
        assert toys.blas_threads() == before


def test_the_limit_holds_until_the_last_thread_has_left():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = toys.blas_threads()
        entered, leave = threading.Event(), threading.Event()

        def other():
            with one_blas_thread():
                entered.set()
                leave.wait(10)

        thread = threading.Thread(target=other)
        with one_blas_thread():
            thread.start()
            assert entered.wait(10)
        assert toys.blas_threads() == {1}
        leave.set()
        thread.join()
        assert toys.blas_threads() == before


def test_it_is_an_executor():
    executor: Executor = EXECUTOR
    assert callable(executor.reduce)
    assert callable(executor.map)


def test_a_thread_that_controls_blas_elsewhere_does_not_defeat_the_limit():
    inside = []

    def other():
        with one_blas_thread():
            inside.extend(toys.blas_threads())

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = toys.blas_threads()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert inside == [1]
        assert toys.blas_threads() == before


class TestWhatNeedNotBeComputedAgain:
    def fit(self, executor, method, vectors):
        reader, plan = ArrayReader(vectors), LeafPlan(len(vectors), 600)
        return train(method, reader, executor, MemoryCheckpoints(), plan, 0)

    def test_kept_coordinates_give_the_bits_of_computed_ones(self, blobs, monkeypatch):
        vectors = np.vstack([blobs[0]] * 4)[:2311].astype(np.float32)
        kept = self.fit(SerialExecutor(), ITQ(n_bits=8, n_iter=4), vectors)
        monkeypatch.delattr(Projected, "prepare")
        computed = self.fit(SerialExecutor(), ITQ(n_bits=8, n_iter=4), vectors)
        assert kept.arrays["weights"].tobytes() == computed.arrays["weights"].tobytes()
        assert kept.scalars == computed.scalars

    def test_each_block_is_projected_once_and_anew_for_other_components(self, blobs, monkeypatch):
        projected, plain = [], Projected.prepare
        monkeypatch.setattr(
            Projected, "prepare", lambda self, block: projected.append(len(block.rows)) or plain(self, block)
        )
        vectors = np.ascontiguousarray(blobs[0][:600], np.float32)
        executor = SerialExecutor()
        self.fit(executor, ITQ(n_bits=8, n_iter=5), vectors)
        assert projected == [600]
        self.fit(executor, ITQ(n_bits=6, n_iter=5), vectors)
        assert projected == [600, 600]

    def test_what_would_take_more_memory_than_the_rows_is_not_kept(self, blobs):
        executor = SerialExecutor()
        vectors = np.ascontiguousarray(blobs[0][:600], np.float32)
        self.fit(executor, ITQ(n_bits=16, n_iter=2), vectors)  # 16 float64 of 24 float32
        assert executor._kept._prepared == {}
