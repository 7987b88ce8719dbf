"""What every executor computes: a round's accumulator, and its sums over leaves in the fixed tree.

A leaf is ``update(init(), block)`` of exactly one block, unless the accumulator carries: then its bits do not
depend on the tree.  Both executors call these functions, one in the
caller's process, the other inside worker tasks, and so they cannot differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..tasks.protocols import RoundState
from . import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..tasks.protocols import Accumulator, BlockAddress, StateReference

    Read: TypeAlias = Callable[[BlockAddress], Any]

State: TypeAlias = "dict[str, np.ndarray]"


def load_state(reference: StateReference) -> RoundState:
    """Read a committed state back; its arrays are read-only, since tasks share them."""
    stored = reference.load()
    arrays = {name: _read_only(array) for name, array in stored.arrays.items()}
    return RoundState(stored.round, arrays, dict(stored.scalars))


def is_sequential(accumulator: Accumulator) -> bool:
    """Tell whether the accumulator folds all blocks in order instead of merging."""
    return bool(getattr(accumulator, "sequential", False))


def does_carry(accumulator: Accumulator) -> bool:
    """Tell whether leaves may be added to one state, whatever the tree."""
    return bool(getattr(accumulator, "carries", False))


def sum_node(
    accumulator: Accumulator, read: Read, addresses: Sequence[BlockAddress], span: tree.Span, fan_in: int
) -> State:
    """Return the state of the tree's node ``span``, whose leaves' addresses are given in order."""
    if does_carry(accumulator):
        return sum_in_order(accumulator, read, addresses, accumulator.init())

    def leaf(index: int) -> State:
        return accumulator.update(accumulator.init(), read(addresses[index - span.start]))

    return tree.fold(span, fan_in, leaf, accumulator.merge)


def sum_in_order(
    accumulator: Accumulator, read: Read, addresses: Sequence[BlockAddress], state: State
) -> State:
    """Return ``state`` after one update per address, in order."""
    for address in addresses:
        state = accumulator.update(state, read(address))
    return state


def _read_only(array: np.ndarray) -> np.ndarray:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
