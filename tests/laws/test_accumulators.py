"""The laws of a monoid for every accumulator that merges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.tasks.moments import Moments
from bitfleet.tasks.protocols import Block, DataInfo, LeafPlan, RowIndices
from bitfleet.tasks.registry import METHODS, get
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES = 5
SMALL = {"n_bits": 6, "n_active": 2}


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sign": ("sign", {"n_bits": 5, "center": True}),
    "knnh-all": ("knnh", {"neighbors_from": "all", "n_train": 9}),
    "spherical_hash-reseed": ("spherical_hash", {"dead_units": "reseed", "n_bits": 60}),
}
CASES = {**{name: (name, {}) for name in METHODS}, **OTHERS}


def first_and_later(case: str) -> list[Any]:
    """The accumulators of a method's first four rounds, as far as they merge."""
    name, own = CASES[case]
    cls: Any = get(name)
    method = cls(**{k: v for k, v in {**SMALL, **own}.items() if k in cls.__dataclass_fields__})
    X = np.random.default_rng(3).normal(size=(40, FEATURES))
    state, found = method.start(DataInfo(40, FEATURES, "float64"), 0), []
    while not method.done(state) and len(found) < 4:
        accumulator = method.accumulator(state)
        addresses = method.blocks(state, LeafPlan(40, 8))
        some = [np.array(a.rows) for a in addresses if isinstance(a, RowIndices)]  # a sum of these alone
        rows = np.concatenate(some) if some else np.arange(40)
        block: Any = Block(rows, X[rows], rows % 3 - 1)
        assert addresses
        if getattr(accumulator, "pairwise", False):  # tested with its method: takes pairs of blocks
            block = (block, block)
        summary = accumulator.finalize(accumulator.update(accumulator.init(), block))
        found.append(accumulator)
        state = method.advance(state, summary)
    return [a for a in found if not (a.sequential or getattr(a, "pairwise", False))]


ACCUMULATORS: dict[str, Any] = {
    "moments": Moments(FEATURES),
    "mean": Moments(FEATURES, covariance=False),
    **{f"{name}-{i}": a for name in CASES for i, a in enumerate(first_and_later(name))},
}


@st.composite
def three_blocks(draw: st.DrawFn) -> list[Block]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from(["f4", "f8"]))
    parts = []
    for _ in range(3):
        size = draw(st.integers(0, 6))
        vectors = (rng.normal(size=(size, FEATURES)) * rng.choice([0, 1, 100], (size, 1))).astype(dtype)
        vectors.setflags(write=False)
        parts.append(Block(np.arange(size), vectors, np.arange(size) % 3 - 1))
    return parts


def leaf(accumulator: Any, block: Block) -> dict[str, np.ndarray]:
    return accumulator.update(accumulator.init(), block)


def assert_close(left: dict[str, np.ndarray], right: dict[str, np.ndarray], tolerance: float) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        assert value.dtype == right[key].dtype
        size = np.abs(value[np.isfinite(value)]).max(initial=0.0)
        np.testing.assert_allclose(value, right[key], rtol=0, atol=tolerance * size, err_msg=key)


def each(test: Callable) -> Callable:
    return pytest.mark.parametrize("name", ACCUMULATORS)(settings(max_examples=25, deadline=None)(test))


@each
@given(blocks=three_blocks())
def test_merging_is_associative(name: str, blocks: list[Block]) -> None:
    accumulator = ACCUMULATORS[name]
    a, b = ([leaf(accumulator, block) for block in blocks] for _ in range(2))
    left = accumulator.merge(accumulator.merge(a[0], a[1]), a[2])
    right = accumulator.merge(b[0], accumulator.merge(b[1], b[2]))
    assert_close(left, right, 1e-12)
    folded = accumulator.init()
    for block in blocks:
        folded = accumulator.update(folded, block)
    assert_close(folded, right, 1e-12)


@each
@given(blocks=three_blocks())
def test_no_rows_change_nothing(name: str, blocks: list[Block]) -> None:
    accumulator = ACCUMULATORS[name]
    expected = leaf(accumulator, blocks[0])
    assert_close(accumulator.merge(accumulator.init(), leaf(accumulator, blocks[0])), expected, 0)
    assert_close(accumulator.merge(leaf(accumulator, blocks[0]), accumulator.init()), expected, 0)


@each
@given(blocks=three_blocks())
def test_a_leaf_is_a_function_of_its_block(name: str, blocks: list[Block]) -> None:
    accumulator = ACCUMULATORS[name]
    aligned = np.empty(blocks[0].vectors.nbytes + 8, np.uint8)[4:-4]
    moved = aligned.view(blocks[0].vectors.dtype).reshape(blocks[0].vectors.shape)
    moved[:] = blocks[0].vectors
    once, again = (
        leaf(accumulator, blocks[0]),
        leaf(accumulator, Block(blocks[0].rows, moved, blocks[0].labels)),
    )
    for key, value in once.items():
        assert value.tobytes() == again[key].tobytes()
