"""The round loop in its plainest form, so that methods are tested without executor or store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.tasks.protocols import Block, BlockPair, DataInfo, LeafPlan, RowIndices

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfleet.tasks.protocols import RoundState


def read(X: np.ndarray, address: Any) -> Any:
    if isinstance(address, BlockPair):
        return read(X, address.left), read(X, address.right)
    some = isinstance(address, RowIndices)
    rows = np.array(address.rows) if some else np.arange(address.start, address.stop)
    vectors = np.ascontiguousarray(X[rows])
    vectors.setflags(write=False)
    return Block(rows, vectors)


def fold(accumulator: Any, blocks: list[Block]) -> dict[str, np.ndarray]:
    if accumulator.sequential:
        state = accumulator.init()
        for block in blocks:
            state = accumulator.update(state, block)
    else:
        leaves = [accumulator.update(accumulator.init(), block) for block in blocks]
        state = leaves[0]
        for leaf in leaves[1:]:
            state = accumulator.merge(state, leaf)
    return accumulator.finalize(state)


def rounds(
    method: Any,
    X: np.ndarray,
    *,
    seed: int = 0,
    block_rows: int = 100,
    moments: dict[str, np.ndarray] | None = None,
) -> list[RoundState]:
    info = DataInfo(len(X), X.shape[1], str(X.dtype))
    plan = LeafPlan(len(X), block_rows)
    states = [method.start(info, seed, moments)]
    while not method.done(states[-1]):
        addresses = method.blocks(states[-1], plan)
        accumulator = method.accumulator(states[-1])
        summary = fold(accumulator, [read(X, address) for address in addresses])
        states.append(method.advance(states[-1], summary))
    assert [state.round for state in states] == list(range(len(states)))
    assert method.rounds(states[0], plan) == len(states) - 1
    assert method.rounds(states[-1], plan) == len(states) - 1
    return states


@pytest.fixture
def train() -> Callable[..., list[RoundState]]:
    """Run a method on rows in memory and return the state of every round."""
    return rounds
