"""The tree in which leaves are merged: pure arithmetic on integers.

Level by level, every ``fan_in`` neighbours become one node; what is left over at the end of a level forms a
smaller node, and a node with a single part is that part.  So a node is named by the span of leaves below it,
and everything follows from the number of leaves and the fan-in alone::

    n_leaves=7, fan_in=3        [0,7)
                          ┌───────┼───────┐
                        [0,3)   [3,6)   [6,7)
                        0 1 2   3 4 5     6

The parts of a node are merged from left to right.  Which worker computes a node, and when, never changes the
tree; therefore any executor on any number of workers adds in the same order and returns the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

S = TypeVar("S")


class Span(NamedTuple):
    """The leaves ``start <= leaf < stop``; names the tree's node above them."""

    start: int
    stop: int

    @property
    def n_leaves(self) -> int:
        """Number of leaves below the node."""
        return self.stop - self.start


class Merge(NamedTuple):
    """One step of a plan: join adjacent ``parts``, from left to right, into ``target``."""

    target: Span
    parts: tuple[Span, ...]


def parts(span: Span, fan_in: int) -> tuple[Span, ...]:
    """Return the 2 to ``fan_in`` nodes that are merged into ``span``; none for a leaf."""
    if span.n_leaves <= 1:
        return ()
    size = 1
    while size * fan_in < span.n_leaves:
        size *= fan_in
    return tuple(Span(i, min(i + size, span.stop)) for i in range(span.start, span.stop, size))


def parent(span: Span, n_leaves: int, fan_in: int) -> Span | None:
    """Return the node that ``span`` is a part of, or None for the root."""
    size = 1
    while size < n_leaves:
        size *= fan_in
        start = span.start - span.start % size
        node = Span(start, min(start + size, n_leaves))
        if node.n_leaves > span.n_leaves:
            return node
    return None


def subtrees(n_leaves: int, size: int) -> Iterator[Span]:
    """Cut the leaves into the nodes of ``size`` leaves, a power of the fan-in (the last may be smaller)."""
    return (Span(start, min(start + size, n_leaves)) for start in range(0, n_leaves, size))


def depth(n_leaves: int, fan_in: int) -> int:
    """Return the number of merges between a leaf and the root at most: ceil(log_fan_in(n_leaves))."""
    levels, size = 0, 1
    while size < n_leaves:
        levels, size = levels + 1, size * fan_in
    return levels


def merge_plan(n_leaves: int, fan_in: int) -> list[Merge]:
    """Return all merges, each after those that it needs; the last one makes the root.

    Raises
    ------
    ValueError
        If ``n_leaves < 0`` or ``fan_in < 2``.
    """
    check(n_leaves, fan_in)
    plan: list[Merge] = []

    def visit(span: Span) -> None:
        below = parts(span, fan_in)
        for part in below:
            visit(part)
        if below:
            plan.append(Merge(span, below))

    visit(Span(0, n_leaves))
    return plan


def fold(span: Span, fan_in: int, leaf: Callable[[int], S], merge: Callable[[S, S], S]) -> S:
    """Compute the node ``span`` in this process, holding at most one state per level at a time.

    Parameters
    ----------
    span : Span
        At least one leaf.
    fan_in : int
        Parts of a node.
    leaf : callable
        Leaf number -> state.
    merge : callable
        Two states, left one first -> state.
    """
    below = parts(span, fan_in)
    if not below:
        return leaf(span.start)
    state = fold(below[0], fan_in, leaf, merge)
    for part in below[1:]:
        state = merge(state, fold(part, fan_in, leaf, merge))
    return state


class Assembly(Generic[S]):
    """Builds the tree from nodes that come in any order, merging as soon as all parts of a node are there.

    Parameters
    ----------
    n_leaves, fan_in : int
    merge : callable
        Node, its parts from left to right -> value of the node.

    Attributes
    ----------
    root : S or None
        Value of the whole tree, once it is there.
    """

    def __init__(self, n_leaves: int, fan_in: int, merge: Callable[[Span, list[S]], S]) -> None:
        self._n_leaves, self._fan_in, self._merge = n_leaves, fan_in, merge
        self._open: dict[Span, dict[Span, S]] = {}
        self.root: S | None = None

    def add(self, span: Span, value: S) -> None:
        """Add the value of one node; forget it when it has been merged."""
        while (above := parent(span, self._n_leaves, self._fan_in)) is not None:
            node = self._open.setdefault(above, {})
            node[span] = value
            below = parts(above, self._fan_in)
            if len(node) < len(below):
                return
            del self._open[above]
            span, value = above, self._merge(above, [node[part] for part in below])
        self.root = value


def check(n_leaves: int, fan_in: int) -> None:
    """Raise ValueError for what is no tree."""
    if n_leaves < 0 or fan_in < 2:
        raise ValueError(f"expected n_leaves >= 0 and fan_in >= 2, got {n_leaves=}, {fan_in=}")
