"""NIBH-CG: its search against brute force over all pairs, its secants' life, its distance from NIBH."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.base import Front
from bitfleet.tasks.methods.nibh import NIBH
from bitfleet.tasks.methods.nibh_cg import NIBHCG
from bitfleet.tasks.methods.nibh_cg_search import Question, Search
from bitfleet.tasks.methods.nibh_cg_sums import _unranked
from bitfleet.tasks.methods.nibh_measure import ByHamming, through_origin
from bitfleet.tasks.protocols import Block, DataInfo
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

if TYPE_CHECKING:
    from collections.abc import Callable

N, D, B = 60, 7, 9


def unit(rows: np.ndarray) -> np.ndarray:
    rows = rows - rows.mean(axis=0)
    return rows / np.linalg.norm(rows, axis=1)[:, None]


ROWS = unit(np.random.default_rng(0).normal(size=(N, D)))
WEIGHTS = np.random.default_rng(1).normal(size=(D, B))


def question(**changes: Any) -> Question:
    asked = {
        "front": Front(np.zeros(D)), "weights": WEIGHTS, "unit": 0.7, "slope": 3.0, "scale": 0.4, "largest":
        0.9, "threshold": 0.5, "hard": False, "active": np.array([7, 3 * N + 9]), "n_rows": N, "n_kept": 40,
        "key": 5,
    }  # fmt: skip
    return Question(**{**asked, **changes})


def summed(search: Search, cuts: list[int], order: np.random.Generator) -> dict[str, np.ndarray]:
    """All pairs of blocks between the cuts, merged in a random order and grouping."""
    edges = sorted({0, N, *cuts})
    blocks = [Block(np.arange(a, b), ROWS[a:b]) for a, b in pairwise(edges)]
    pairs = [(x, y) for i, x in enumerate(blocks) for y in blocks[i:]]
    states = [search.update(search.init(), pair) for pair in pairs]
    while len(states) > 1:
        i, j = order.choice(len(states), 2, replace=False)
        merged = search.merge(states[i], states[j])
        states = [state for k, state in enumerate(states) if k not in (i, j)] + [merged]
    return search.finalize(states[0])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, N - 1), max_size=5), st.integers(0, 2**32), st.booleans())
def test_the_search_finds_what_brute_force_finds_in_any_order(cuts: list[int], seed: int, hard: bool) -> None:
    asked = question(hard=hard)
    found = summed(Search(asked, lambda state: state), cuts, np.random.default_rng(seed))
    i, j = np.triu_indices(N, 1)
    c = pdist(ROWS / 0.7)
    bits = ROWS @ WEIGHTS / 0.7 >= 0
    hamming = np.count_nonzero(bits[i] != bits[j], axis=1)
    soft = 1 / (1 + np.exp(-3.0 * ROWS @ WEIGHTS / 0.7))
    v = hamming if hard else ((soft[i] - soft[j]) ** 2).sum(axis=1)
    residual = np.abs(0.4 * v - c)
    table = ByHamming.of_pairs(hamming, c, B)
    np.testing.assert_allclose(np.sqrt(found["low"]) / 0.7, table.least, rtol=1e-12)
    np.testing.assert_allclose(
        np.sqrt(np.maximum(found["high"], 0)) / 0.7, np.maximum(table.largest, 0), rtol=1e-12
    )
    fresh = ~np.isin(i * N + j, asked.active)
    candidates = np.flatnonzero(fresh & (residual > 0.45))
    worst = candidates[np.argsort(-residual[candidates], kind="stable")[:40]]
    numbers = found["first"] * N + found["second"]
    assert (np.diff(numbers) > 0).all()
    assert set((i * N + j)[worst]) <= set(numbers) <= set((i * N + j)[candidates])
    assert len(numbers) <= 80
    where = np.searchsorted(i * N + j, numbers)
    np.testing.assert_allclose(found["residual"], residual[where], rtol=1e-9)
    np.testing.assert_allclose(found["distance"], c[where], rtol=1e-12)
    np.testing.assert_allclose(found["first_row"], ROWS[found["first"]] / 0.7, rtol=1e-15)
    np.testing.assert_allclose(found["second_row"], ROWS[found["second"]] / 0.7, rtol=1e-15)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_screening_finds_the_same_bits_as_one_by_one(hard: bool, dtype: str) -> None:
    """In any order; with components, duplicates, a row at the mean, far from the origin."""
    rng = np.random.default_rng(5)
    X = (rng.normal(size=(700, 40)) * np.arange(1, 41) ** -0.7 + 3).astype(dtype)
    X[10:20], X[30] = X[:10], X.mean(axis=0, dtype=np.float64)
    mean = X.mean(axis=0, dtype=np.float64)
    components = np.linalg.svd(X - mean, full_matrices=False)[2][:24].T
    asked = question(
        front=Front(mean, components), weights=rng.normal(size=(24, 12)), unit=1.3, hard=hard, n_rows=700,
        scale=0.2 if hard else 0.35, largest=1.2, n_kept=30, active=np.array([5 * 700 + 9, 20 * 700 + 21]),
    )  # fmt: skip
    for cuts in ([], [100, 150, 400]):
        found = []
        blocks = [Block(np.arange(a, b), X[a:b]) for a, b in pairwise([0, *cuts, 700])]
        pairs = [(x, y) for i, x in enumerate(blocks) for y in blocks[i:]]
        for few in (700**2, 0, 20_000):
            search = Search(asked, lambda state: state, few=few)
            states = [search.update(search.init(), pairs[k]) for k in rng.permutation(len(pairs))]
            merged = states[0]
            for state in states[1:]:
                merged = search.merge(state, merged)
            found.append(merged)
        assert 30 < len(found[0]["first"]) <= 60
        for other in found[1:]:
            for name, array in found[0].items():
                if name.endswith("_row"):  # products of as many rows as there are to be listed
                    np.testing.assert_allclose(other[name], array, rtol=0, atol=1e-12)
                else:
                    assert other[name].tobytes() == array.tobytes(), name


def test_the_least_hashes_are_a_uniform_sample_of_the_candidates() -> None:
    """Each candidate is in the sample as often as any other, whatever its residual."""
    counts: dict[int, int] = {}
    for key in range(300):
        found = summed(
            Search(question(key=key * 2**40, n_kept=30), lambda s: s), [], np.random.default_rng(0)
        )
        least = np.argsort(found["hash"])[:30]
        for number in found["first"][least] * N + found["second"][least]:
            counts[int(number)] = counts.get(int(number), 0) + 1
    n_candidates = len(
        summed(Search(question(n_kept=N * N), lambda s: s), [], np.random.default_rng(0))["first"]
    )
    expected = 300 * 30 / n_candidates
    observed = np.array([*counts.values(), *[0] * (n_candidates - len(counts))])
    assert n_candidates > 300
    assert ((observed - expected) ** 2).sum() / expected < n_candidates + 6 * np.sqrt(2 * n_candidates)


def test_pairs_by_their_place_in_the_list() -> None:
    for n in (1, 2, 5, 9):
        found = _unranked(np.arange(n * (n - 1) // 2), n)
        np.testing.assert_array_equal(found, np.triu_indices(n, 1))


def exact_distortion(method: Any, state: Any, X: np.ndarray) -> float:
    codes = unpack_bits(method.encoder(state).encode(X), method.n_bits).astype(int)
    hamming = (codes[:, None] != codes).sum(axis=2)[np.triu_indices(len(X), 1)]
    found = ByHamming.of_pairs(hamming, pdist(X), method.n_bits)
    return through_origin(found.least, found.largest)[0]


def test_a_quarter_of_the_secants_is_enough(train: Callable) -> None:
    """Within 5 % of full NIBH on the paper's random vectors; the paper's literal recipe is nowhere near."""
    X = unit(np.random.default_rng(31).normal(size=(100, 100)))
    method, full = NIBHCG(n_bits=15), NIBH(n_bits=15)
    states = train(method, X)
    assert 0.2 * 4950 < states[-1].scalars["most_active"] <= 0.25 * 4950
    final = states[-1].scalars["distortion"]
    assert final == pytest.approx(exact_distortion(method, states[-1], X), rel=1e-9)
    best = train(full, X)[-1].scalars["distortion"]
    assert final < 1.05 * best
    literal = NIBHCG(
        n_bits=15,
        violators="hard",
        max_age=1,
        fix_scale=True,
        start_share=0.8,
        n_iter=12,
        n_steps=50,
        threshold=0.8,
    )
    assert train(literal, X)[-1].scalars["distortion"] > 1.2 * best


def test_secants_age_and_points_follow(train: Callable) -> None:
    X = unit(np.random.default_rng(32).normal(size=(50, 12)))
    states = train(NIBHCG(n_bits=10, n_iter=12, max_age=2, max_secants=150), X, block_rows=17)
    for before, after in pairwise(states[2:-1]):
        arrays = after.arrays
        assert len(arrays["first"]) <= 150
        assert (arrays["age"] < 2).all()
        assert (arrays["first"] < arrays["second"]).all()
        numbers = arrays["first"] * 50 + arrays["second"]
        assert (np.diff(numbers) > 0).all()
        ends = np.union1d(arrays["first"], arrays["second"])
        np.testing.assert_array_equal(arrays["point_numbers"], ends)
        rows = (X - after.arrays["mean"]) @ after.arrays["components"] / float(after.scalars["unit"])
        np.testing.assert_allclose(arrays["point_rows"], rows[ends], atol=1e-12)
        difference = rows[arrays["first"]] - rows[arrays["second"]]
        np.testing.assert_allclose(arrays["distance"], np.linalg.norm(difference, axis=1), rtol=1e-9)
        assert after.scalars["distortion"] <= before.scalars.get("distortion", np.inf)
    assert sorted(states[-1].arrays) == ["calibration", "components", "mean", "weights"]


def test_admm_keeps_the_multipliers_of_secants_that_stay(train: Callable) -> None:
    X = unit(np.random.default_rng(33).normal(size=(40, 12)))
    states = train(NIBHCG(n_bits=10, n_iter=6, n_steps=2, solver="admm", fix_scale=True, max_secants=150), X)
    scales = {state.scalars["scale"] for state in states[2:]}
    assert len(scales) == 1
    for state in states[2:-1]:
        for name in ("residual", "multipliers"):
            assert state.arrays[name].shape == state.arrays["first"].shape
        assert state.arrays["multipliers"].any()


def test_the_polish_lowers_the_distortion_over_all_pairs(train: Callable) -> None:
    X = unit(np.random.default_rng(34).normal(size=(150, 30)))
    parameters = {"n_bits": 16, "n_iter": 20, "max_secants": 1500}
    plain, polished = NIBHCG(**parameters), NIBHCG(**parameters, n_polish=12, n_moves=200)
    before = train(plain, X)[-1].scalars["distortion"]
    states = train(polished, X, block_rows=40)
    found = [state.scalars["distortion"] for state in states if "distortion" in state.scalars]
    assert (np.diff(found) <= 0).all()
    assert found[-1] == pytest.approx(exact_distortion(polished, states[-1], X), rel=1e-9)
    assert found[-1] < 0.98 * before
    assert any(state.scalars.get("n_moves", 0) for state in states)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"solver": "sgd"}, "solver to be one of"),
        ({"violators": "any"}, "violators to be one of"),
        ({"threshold": 0}, "threshold"),
        ({"start_share": 2}, "start_share"),
        ({"slope": None}, "slope"),
        ({"max_age": 0}, "max_age"),
        ({"n_polish": -1}, "n_polish"),
        ({"fix_scale": 1}, "fix_scale to be True or False"),
    ],
)
def test_bad_parameters(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NIBHCG(**parameters)


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 2,147,483,648 rows"):
        NIBHCG().start(DataInfo(2**31 + 1, 4), 0)
