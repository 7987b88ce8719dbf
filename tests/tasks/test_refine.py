"""Refined candidate lists against distances to all reconstructions, whatever the blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.tasks.decoder import Decoder, DecoderSums, fit, space_of
from bitfleet.tasks.protocols import Block, LeafPlan, RoundState
from bitfleet.tasks.refine import DecodedDistances, refined_order, refinement_state
from bitfleet.tasks.registry import get

if TYPE_CHECKING:
    from collections.abc import Callable

METHODS: dict[str, Any] = {
    "posh": get("posh")(n_bits=64, n_active=5, n_epochs=2, n_components=4),
    "itq": get("itq")(n_bits=8, n_iter=3),
}


def prepared(
    name: str, train: Callable[..., list[RoundState]]
) -> tuple[Any, RoundState, Decoder, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    X = (rng.normal(size=(230, 10)) * np.linspace(3, 1, 10)).astype(np.float32)
    method = METHODS[name]
    state = train(method, X[20:])[-1]
    sums = DecoderSums(method).accumulator(state)
    summary = sums.finalize(sums.update(sums.init(), Block(np.arange(210), X[20:])))
    decoder = fit(summary, space_of(state, 10), dense=not method.sparse)
    candidates = np.stack([rng.permutation(210)[:30] for _ in range(20)])
    return method, state, decoder, X[:20], X[20:], candidates


def distances(program: DecodedDistances, state: RoundState, rows: np.ndarray, block_rows: int) -> np.ndarray:
    accumulator = program.accumulator(state)
    total = accumulator.init()
    for leaf in LeafPlan(len(rows), block_rows).leaves():
        block = Block(np.arange(leaf.start, leaf.stop), rows[leaf.start : leaf.stop])
        total = accumulator.merge(total, accumulator.update(accumulator.init(), block))
    return accumulator.finalize(total)["distance"]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("n_sbiht", [0, 5])
def test_distances_are_those_to_the_reconstructions(
    name: str, n_sbiht: int, train: Callable[..., list[RoundState]]
) -> None:
    method, state, decoder, queries, X, candidates = prepared(name, train)
    extended = RoundState(
        state.round, {**state.arrays, **refinement_state(decoder, queries, candidates)}, state.scalars
    )
    program = DecodedDistances(method, n_sbiht=n_sbiht)
    if n_sbiht and not method.sparse:
        with pytest.raises(ValueError, match="winner-take-all"):
            program.accumulator(extended)
        return
    codes = method.encoder(state).encode(X)
    decoded = decoder.reconstruct(codes)
    if n_sbiht:
        program_of = program.accumulator(extended)._thresholding
        assert program_of is not None
        decoded = program_of.reconstruct(codes, n_sbiht)
        assert not np.array_equal(decoded, decoder.reconstruct(codes))
    components = state.arrays["components"]
    inputs = (queries - state.arrays["mean"]) @ components
    expected = ((inputs[:, None] - decoded[candidates]) ** 2).sum(axis=2)
    whole = distances(program, extended, X, 210)
    np.testing.assert_allclose(whole, expected, rtol=1e-9)
    for block_rows in (1, 64):
        np.testing.assert_array_equal(distances(program, extended, X, block_rows), whole)
    stored = DecodedDistances(method, encoded=True, n_sbiht=n_sbiht)
    np.testing.assert_array_equal(distances(stored, extended, codes, 50), whole)


def test_rows_that_do_not_exist_are_named(train: Callable[..., list[RoundState]]) -> None:
    method, state, decoder, queries, X, candidates = prepared("posh", train)
    candidates[3, 7] = 210
    arrays = {**state.arrays, **refinement_state(decoder, queries, candidates)}
    with pytest.raises(ValueError, match="candidate 7 of query 3 is no row"):
        distances(DecodedDistances(method), RoundState(state.round, arrays, state.scalars), X, 100)
    arrays |= refinement_state(decoder, queries, candidates[:5])
    with pytest.raises(ValueError, match="each of 20 queries"):
        DecodedDistances(method).accumulator(RoundState(state.round, arrays, state.scalars))


def test_the_order_is_stable_and_of_the_first_candidates_only() -> None:
    distance = np.array([[5.0, 3.0, 3.0, 4.0, 1.0, 0.0]])
    assert refined_order(distance, 2, 2).tolist() == [[1, 2]]  # the best two lie beyond the first four
    assert refined_order(distance, 3, 2).tolist() == [[5, 4, 1]]
    assert refined_order(distance, 1, 1).tolist() == [[0]]
    assert refined_order(distance, 50, 4).tolist() == [[5, 4, 1, 2, 3, 0]]
