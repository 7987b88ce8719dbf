"""Placement: every piece once, contiguous rows per worker, the idle help, few in flight."""

from __future__ import annotations

from collections import Counter

from bitfleet.cluster.placement import Placement
from hypothesis import given, settings
from hypothesis import strategies as st


def even(n: int) -> list[float]:
    return [i / n for i in range(n)]


def test_each_worker_walks_through_its_own_rows():
    placement = Placement(even(8), {"a": 1, "b": 1})
    seen = {"a": [], "b": []}
    while taken := placement.take():
        for piece, worker in taken:
            seen[worker].append(piece)
            placement.done(worker)
    assert seen == {"a": [0, 1, 2, 3], "b": [4, 5, 6, 7]}


def test_the_idle_take_from_the_end_of_the_longest_run():
    placement = Placement(even(8), {"a": 1, "b": 1})
    assert placement.take() == [(0, "a"), (4, "b")]
    taken = []
    for _ in range(6):
        placement.done("b")
        taken += placement.take()
    assert taken == [(5, "b"), (6, "b"), (7, "b"), (3, "b"), (2, "b"), (1, "b")]


def test_the_same_rows_go_to_the_same_worker_whichever_are_asked_for():
    placement = Placement([0.9, 0.1, 0.6, 0.4], {"a": 9, "b": 9})
    assert sorted(placement.take()) == [(0, "b"), (1, "a"), (2, "b"), (3, "a")]


def test_newcomers_help_and_the_work_of_the_dead_is_done():
    placement = Placement(even(10), {"a": 1, "b": 1})
    placement.take()
    placement.update({"b": 1, "c": 1})
    rest = placement.take()
    assert [worker for _, worker in rest] == ["c"]
    for _ in range(20):
        for _, worker in rest:
            placement.done(worker)
        rest = placement.take()
    assert placement.take() == []


def test_it_tells_which_rows_a_worker_will_want_next():
    placement = Placement(even(8), {"a": 2, "b": 4}, waiting=2)
    taken = placement.take()
    assert sorted(taken) == [(0, "a"), (1, "a"), (4, "b"), (5, "b"), (6, "b"), (7, "b")]
    # a works on one piece at a time, b on two
    following = {piece: placement.following(piece) for piece, _ in taken}
    assert following == {0: 1, 1: 2, 4: 6, 5: 7, 6: None, 7: None}
    assert placement.following(0) is None  # told once


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 1), max_size=60),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), min_size=1),
    st.randoms(),
)
def test_every_piece_is_dealt_once_and_few_at_a_time(positions, slots, random):
    placement = Placement(positions, slots)
    flying: list[tuple[int, str]] = []
    dealt = []
    while taken := placement.take():
        flying += taken
        dealt += [piece for piece, _ in taken]
        assert all(count <= slots[worker] for worker, count in Counter(w for _, w in flying).items())
        placement.done(flying.pop(random.randrange(len(flying)))[1])
    assert sorted(dealt) == list(range(len(positions)))
