"""The merge tree: every leaf once, in order, at bounded depth, whatever the sizes."""

from __future__ import annotations

import math

import pytest
from bitfleet.cluster.tree import Assembly, Merge, Span, depth, fold, merge_plan, parent, parts, subtrees
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = st.integers(0, 700)
FAN_INS = st.integers(2, 17)


def by_levels(n_leaves: int, fan_in: int) -> str:
    """The tree as the documentation words it: level by level, neighbours joined, written as text."""
    level = [str(i) for i in range(n_leaves)]
    while len(level) > 1:
        groups = [level[i : i + fan_in] for i in range(0, len(level), fan_in)]
        level = [group[0] if len(group) == 1 else f"({' '.join(group)})" for group in groups]
    return level[0] if level else ""


def as_text(n_leaves: int, fan_in: int) -> str:
    nodes = {Span(i, i + 1): str(i) for i in range(n_leaves)}
    for target, below in merge_plan(n_leaves, fan_in):
        nodes[target] = f"({' '.join(nodes.pop(part) for part in below)})"
    assert len(nodes) <= 1
    return next(iter(nodes.values()), "")


def test_a_small_plan_is_the_one_in_the_docstring():
    def span(*leaves):
        return Span(leaves[0], leaves[-1] + 1)

    assert merge_plan(7, 3) == [
        Merge(span(0, 1, 2), (span(0), span(1), span(2))),
        Merge(span(3, 4, 5), (span(3), span(4), span(5))),
        Merge(span(0, 1, 2, 3, 4, 5, 6), (span(0, 1, 2), span(3, 4, 5), span(6))),
    ]


@settings(deadline=None)
@given(SIZES, FAN_INS)
def test_the_plan_is_the_tree_built_level_by_level(n_leaves, fan_in):
    assert as_text(n_leaves, fan_in) == by_levels(n_leaves, fan_in)


@settings(deadline=None)
@given(st.integers(1, 700), FAN_INS)
def test_every_leaf_is_merged_once_in_order_after_its_parts(n_leaves, fan_in):
    made = {Span(i, i + 1) for i in range(n_leaves)}
    for target, below in merge_plan(n_leaves, fan_in):
        assert 2 <= len(below) <= fan_in
        assert made.issuperset(below)
        assert [a.stop for a in below[:-1]] == [b.start for b in below[1:]]
        assert target == (below[0].start, below[-1].stop)
        made = (made - set(below)) | {target}
    assert made == {Span(0, n_leaves)}


@settings(deadline=None)
@given(st.integers(1, 10**12), FAN_INS, st.data())
def test_every_leaf_climbs_to_the_root_within_the_depth(n_leaves, fan_in, data):
    leaf = data.draw(st.integers(0, n_leaves - 1))
    node, steps = Span(leaf, leaf + 1), 0
    while (above := parent(node, n_leaves, fan_in)) is not None:
        assert node in parts(above, fan_in)
        node, steps = above, steps + 1
    assert node == (0, n_leaves)
    assert steps <= depth(n_leaves, fan_in)
    assert fan_in ** (depth(n_leaves, fan_in) - 1) < n_leaves or n_leaves == 1


def test_depth_is_the_logarithm():
    assert [depth(n, 8) for n in (0, 1, 2, 8, 9, 64, 65, 4096)] == [0, 0, 1, 1, 2, 2, 3, 4]
    assert depth(8**20, 8) == 20
    assert depth(1000, 3) == math.ceil(math.log(1000, 3))


@settings(deadline=None)
@given(SIZES, FAN_INS, st.integers(0, 3))
def test_subtrees_are_nodes_of_the_tree(n_leaves, fan_in, height):
    size = fan_in**height
    spans = list(subtrees(n_leaves, size))
    assert [leaf for span in spans for leaf in range(*span)] == list(range(n_leaves))
    nodes = {Span(i, i + 1) for i in range(n_leaves)} | {
        merge.target for merge in merge_plan(n_leaves, fan_in)
    }
    assert nodes.issuperset(spans)


@settings(deadline=None)
@given(st.integers(1, 400), FAN_INS)
def test_fold_follows_the_plan_and_holds_a_state_per_level(n_leaves, fan_in):
    alive, peak = 0, 0

    def leaf(index):
        nonlocal alive, peak
        alive += 1
        peak = max(peak, alive)
        return [index]

    def merge(left, right):
        nonlocal alive
        alive -= 1
        assert left[-1] + 1 == right[0]
        return left + right

    assert fold(Span(0, n_leaves), fan_in, leaf, merge) == list(range(n_leaves))
    assert alive == 1
    assert peak <= depth(n_leaves, fan_in) + 1


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(2, 9), st.integers(0, 2), st.randoms())
def test_nodes_that_come_in_any_order_are_assembled_to_the_same_tree(n_leaves, fan_in, height, random):
    merges = []

    def merge(node, values):
        assert node == (values[0][0], values[-1][-1] + 1)
        merges.append(node)
        return [leaf for value in values for leaf in value]

    assembly = Assembly(n_leaves, fan_in, merge)
    nodes = list(subtrees(n_leaves, fan_in**height))
    random.shuffle(nodes)
    for node in nodes:
        assert assembly.root is None
        assembly.add(node, list(range(*node)))
    assert assembly.root == list(range(n_leaves))
    plan = {merge.target for merge in merge_plan(n_leaves, fan_in)}
    inside = {span for span in plan if any(n.start <= span.start and span.stop <= n.stop for n in nodes)}
    assert sorted(merges) == sorted(plan - inside)


@pytest.mark.parametrize(("n_leaves", "fan_in"), [(-1, 8), (3, 1), (3, 0)])
def test_what_is_no_tree_is_refused(n_leaves, fan_in):
    with pytest.raises(ValueError, match="expected n_leaves >= 0 and fan_in >= 2"):
        merge_plan(n_leaves, fan_in)
