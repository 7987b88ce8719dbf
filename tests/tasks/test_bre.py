"""BRE: the objective against a loop over all pairs; no step lets it rise, none leaves a better value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.kernels.walk import walk, walk_reference
from bitfleet.tasks.methods.bre import BRE
from bitfleet.tasks.methods.bre_descent import Descent, Pairs
from bitfleet.tasks.protocols import DataInfo
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def digits(root: Any) -> np.ndarray:
    with np.load(root / "pipeline" / "demo" / "digits.npz") as file:
        return (file["X"][:400, ::3] / 255.0).astype(np.float32)


def brute_force(unit: np.ndarray, bits: np.ndarray, scale: float = 0.25) -> float:
    """The mean of the published objective over all pairs, one at a time."""
    terms = []
    for i in range(len(unit)):
        for j in range(i):
            true = scale * np.sum((unit[i] - unit[j]) ** 2)
            terms.append((true - np.count_nonzero(bits[i] != bits[j]) / bits.shape[1]) ** 2)
    return float(np.mean(terms))


def unit(X: np.ndarray) -> np.ndarray:
    centred = X.astype(float) - X.astype(float).mean(axis=0)
    return np.asarray(centred / np.linalg.norm(centred, axis=1, keepdims=True))


def descent(n: int = 30, n_pairs: int = 100, seed: int = 0) -> Descent:
    rng = np.random.default_rng(seed)
    anchors = np.stack([rng.choice(n, 5, replace=False) for _ in range(6)])
    return Descent(rng.normal(size=(n, 4)), anchors, rng.normal(size=(6, 5)), 0.25, n_pairs, rng)


def test_the_objective_is_the_published_one_and_falls(train: Callable, digits: np.ndarray) -> None:
    X, method = digits[:90], BRE(8, n_mixed=10, n_iter=3, scale=0.5)
    states = train(method, X)
    objectives = [state.scalars["objective"] for state in states[3:]]
    bits = unpack_bits(method.encoder(states[-1]).encode(X), 8)
    assert objectives[-1] == pytest.approx(brute_force(unit(X), bits, 0.5), rel=1e-12)
    assert objectives[0] > objectives[1] >= objectives[2]
    assert {"rows", "anchors", "mixtures"}.isdisjoint(states[-1].arrays)


def test_every_step_lets_the_objective_fall_to_the_best_that_the_weight_can_do() -> None:
    now = descent(20)
    for p in range(4):
        for q in range(5):
            before = brute_force(now.rows, now.bits.T)
            assert now.objective == pytest.approx(before, rel=1e-12)
            kernel = now.rows @ now.rows[now.anchors[p]].T
            others = kernel @ now.mixtures[p] - kernel[:, q] * now.mixtures[p, q]
            turns = np.sort(-others / kernel[:, q])
            best = before
            for w in [turns[0] - 1, *((turns[1:] + turns[:-1]) / 2), turns[-1] + 1]:
                bits = now.bits.copy()
                bits[p] = others + w * kernel[:, q] >= 0
                best = min(best, brute_force(now.rows, bits.T))
            now.descend(p, np.array([q]))
            assert now.objective == pytest.approx(best, rel=1e-9)
            assert now.objective <= before + 1e-12


def test_learned_codes_reconstruct_better_than_random_ones(train: Callable, digits: np.ndarray) -> None:
    """As in the paper's figures of the reconstruction error against random projections, on other rows."""
    X, held = digits[:300], digits[300:380]
    method = BRE(16, n_train=300, n_pairs=60, n_mixed=15, n_iter=2)
    state = train(method, X)[-1]
    assert state.round == 4
    mean = X.astype(float).mean(axis=0)
    seen = held.astype(float) - mean
    seen /= np.linalg.norm(seen, axis=1, keepdims=True)
    learned = brute_force(seen, unpack_bits(method.encoder(state).encode(held), 16))
    rng = np.random.default_rng(0)
    drawn = [brute_force(seen, seen @ rng.normal(size=(seen.shape[1], 16)) >= 0) for _ in range(5)]
    assert learned < 0.85 * min(drawn)


def test_pairs_are_distinct_and_all_where_so_many_are_asked_for() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3))
    for n_pairs, count in ((19, 190), (5, None), (1, None)):
        pairs = Pairs.of(rows, 0.5, n_pairs, np.random.default_rng(1))
        assert (pairs.left < pairs.right).all()
        seen = set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
        assert len(seen) == len(pairs.left)
        assert len(seen) == count if count else 20 * n_pairs / 2 <= len(seen) <= 20 * n_pairs
        assert np.bincount(np.concatenate([pairs.left, pairs.right])).min() >= 1
        expected = np.square(rows[pairs.left] - rows[pairs.right]).sum(axis=1) / 2
        np.testing.assert_allclose(pairs.distances, expected)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), n_pairs=st.integers(1, 12))
def test_the_walk_is_the_cost_of_every_cut(seed: int, n_pairs: int) -> None:
    now, rng = descent(12, n_pairs, seed), np.random.default_rng(seed)
    gains = rng.normal(size=len(now.pairs.left))
    both = np.concatenate([gains, gains])[now._by_row]
    bits, order = rng.integers(0, 2, 12).astype(np.uint8), rng.permutation(12)[: rng.integers(0, 13)]
    costs = walk(order, now._starts, now._neighbors, both, bits)
    expected = walk_reference(order, now._starts, now._neighbors, both, bits)
    np.testing.assert_array_equal(costs, expected)
    turned = bits.copy()
    start = gains @ now._differ(turned)
    for step, row in enumerate(order):
        assert costs[step] == pytest.approx(gains @ now._differ(turned) - start, abs=1e-12)
        turned[row] = 1 - turned[row]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="n_train <= 10,000, got 10,001"):
        BRE(n_train=10_001)
    with pytest.raises(ValueError, match="take n_train=335 or less"):
        BRE().start(DataInfo(10**6, 10**5), 0)
