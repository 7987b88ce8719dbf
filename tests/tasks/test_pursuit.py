"""Greedy pursuit against its definition, row by row; the balanced dictionary against a plain loop."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline import demo
from bitfleet.tasks.kernels import pursuit as kernels
from bitfleet.tasks.kernels.pack import packed_width, unpack_bits
from bitfleet.tasks.kernels.wta import top_active_reference
from bitfleet.tasks.methods.pursuit_hash import PursuitHash
from bitfleet.tasks.protocols import LeafPlan, RowIndices
from bitfleet.tasks.pursuit import MOST_BETA, MOST_PENALTY, PursuitEncoder, _inhibition, usual_beta
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def encoder() -> PursuitEncoder:
    rng = np.random.default_rng(0)
    components = np.linalg.qr(rng.normal(size=(30, 12)))[0]
    return PursuitEncoder(rng.normal(size=30), components, unit(rng.normal(size=(150, 12))), 9, 1.0)


def digits(n: int) -> np.ndarray:
    with np.load(Path(demo.__file__).with_name("digits.npz")) as file:
        return file["X"][:n].astype(np.float32)


def one_by_one(z: np.ndarray, atoms: np.ndarray, n_active: int, beta: float) -> list[int]:
    """The definition, in 1 / 8192, without ever computing all of G: scores of what is left of z."""
    scores = np.rint(8192 * atoms @ z).astype(int)
    chosen: list[int] = []
    for _ in range(n_active):
        best = min((-scores[j], j) for j in range(len(atoms)) if j not in chosen)[1]
        chosen.append(best)
        scores -= np.rint(8192 * beta / n_active * atoms @ atoms[best]).astype(int)
    return sorted(chosen)


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.8])
def test_codes_are_those_of_the_definition(encoder: PursuitEncoder, beta: float) -> None:
    X = np.random.default_rng(1).normal(size=(40, 30))
    coder = PursuitEncoder(encoder.mean, encoder.components, encoder.atoms, 9, beta)
    Z = unit((X - coder.mean) @ coder.components)
    expected = [one_by_one(z, coder.atoms, 9, beta) for z in Z]
    assert coder.active(X).tolist() == expected


@pytest.mark.parametrize("n_active", [5090, 6553])
def test_thousands_of_rounded_shares_stay_within_16_bits(n_active: int) -> None:
    largest = int(_inhibition(np.ones((1, 1)), MOST_BETA, n_active).max())
    assert 24_000 / n_active - 1 < largest <= (32_767 - 8192 - 8192 * MOST_PENALTY) / n_active


def test_without_inhibition_it_is_winner_take_all(encoder: PursuitEncoder) -> None:
    X = np.random.default_rng(2).normal(size=(200, 30))
    coder = PursuitEncoder(encoder.mean, encoder.components, encoder.atoms, 9, 0.0)
    scores = np.rint(8192 * unit((X - coder.mean) @ coder.components) @ coder.atoms.T)
    np.testing.assert_array_equal(coder.active(X), top_active_reference(scores, 9))


def test_every_pick_brings_the_sum_of_atoms_nearer(encoder: PursuitEncoder) -> None:
    """The residual falls as long as the best score is above half of the share, and ends below wta's."""
    X = np.random.default_rng(3).normal(size=(60, 30))
    Z = unit((X - encoder.mean) @ encoder.components)
    share = encoder.beta / encoder.n_active

    def residuals(beta: float) -> np.ndarray:
        coder = PursuitEncoder(encoder.mean, encoder.components, encoder.atoms, 9, beta)
        return np.array(
            [
                np.linalg.norm(z - share * coder.atoms[a].sum(0))
                for z, a in zip(Z, coder.active(X), strict=True)
            ]
        )

    greedy, winners = residuals(1.0), residuals(0.0)
    assert (greedy < 1).all()
    assert greedy.mean() < winners.mean() - 0.02
    assert (greedy <= winners + 1e-12).mean() > 0.95


def test_rounds_take_several_bits_before_they_inhibit(encoder: PursuitEncoder) -> None:
    X = np.random.default_rng(4).normal(size=(30, 30))
    arguments = encoder.mean, encoder.components, encoder.atoms, 9
    few = PursuitEncoder(*arguments, 1.0, 1)
    np.testing.assert_array_equal(few.encode(X), PursuitEncoder(*arguments, 0.0).encode(X))
    all_ = PursuitEncoder(*arguments, 1.0, 9)
    np.testing.assert_array_equal(all_.encode(X), encoder.encode(X))
    agreement = (
        unpack_bits(PursuitEncoder(*arguments, 1.0, 3).encode(X), 150) * encoder_bits(encoder, X)
    ).sum()
    assert (unpack_bits(few.encode(X), 150) * encoder_bits(encoder, X)).sum() < agreement < 9 * 30


def encoder_bits(encoder: PursuitEncoder, X: np.ndarray) -> np.ndarray:
    return unpack_bits(encoder.encode(X), encoder.n_bits)


def test_scores_at_a_half_are_decided_in_fixed_order() -> None:
    """8192 y is 4096.5 in exact arithmetic: to the even side, whatever is in the batch."""
    half = 0.5 + 2.0**-14
    atoms = np.array([[half, np.sqrt(1 - half**2)], [0.5, -np.sqrt(0.75)], [0.5, np.sqrt(0.75)]])
    coder = PursuitEncoder(np.zeros(2), None, atoms, 1, 1.0)
    row = np.array([[4.0, 0.0]])
    scores = np.empty((1, kernels.padded_width(3)), np.int16)
    coder._score(row, scores)
    assert scores[0, :3].tolist() == [4096, 4096, 4096]
    assert coder.active(row).tolist() == [[0]]
    assert len(kernels.quantise(row @ atoms.T, np.array([0.25]), np.array([1e-9]), scores)) == 1


@pytest.mark.parametrize("exponent", [-1000, -600, 600, 1000])
def test_the_size_of_a_row_does_not_matter(encoder: PursuitEncoder, exponent: int) -> None:
    X = np.random.default_rng(5).normal(size=(20, 30))
    coder = PursuitEncoder(np.zeros(30), encoder.components, encoder.atoms, 9, 1.0)
    np.testing.assert_array_equal(coder.encode(np.ldexp(X, exponent)), coder.encode(X))


def test_rows_without_direction_and_rows_that_are_no_numbers(encoder: PursuitEncoder) -> None:
    null = np.linalg.svd(encoder.components.T)[2][-1]  # nothing of it lies in the components
    X = np.stack([encoder.mean, encoder.mean + 1e-300 * null, encoder.mean + 1.0])
    assert encoder.active(X)[0].tolist() == list(range(9))
    assert encoder.active(np.empty((0, 30))).shape == (0, 9)
    X[2, 3] = np.nan
    with pytest.raises(ValueError, match="row 2 holds NaN"):
        encoder.encode(X)
    with pytest.raises(ValueError, match=r"shape \(m, 30\)"):
        encoder.encode(X[:, :4])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"atoms": np.full((150, 12), 0.5)}, "length one"),
        ({"atoms": np.zeros((150, 11))}, "do not fit"),
        ({"beta": 3.0}, r"\[0, 2.8\]"),
        ({"n_active": 150}, "n_active < n_bits"),
        ({"mean": np.full(30, np.inf)}, "finite"),
    ],
)
def test_parts_that_do_not_fit_are_refused(encoder: PursuitEncoder, change: dict, message: str) -> None:
    names = ("mean", "components", "atoms", "n_active", "beta")
    parts = {name: getattr(encoder, name) for name in names} | change
    with pytest.raises(ValueError, match=message):
        PursuitEncoder(**parts)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 20), st.sampled_from([2, 7, 128, 129, 300]), st.integers(1, 8), st.integers(0, 2**32 - 1)
)
def test_kernels_equal_their_references(m: int, n_bits: int, n_rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    width = kernels.padded_width(n_bits)
    values = rng.normal(size=(m, n_bits)) * rng.choice([0.01, 0.5, 1.5], (m, 1))
    values[rng.random(values.shape) < 0.01] = np.nan
    factors, errors = rng.uniform(0.5, 1, m), rng.choice([1e-9, 1e-3, 0.6], m)
    fast, slow = np.full((2, m, width), 77, np.int16)
    unsure = kernels.quantise(values, factors, errors, fast)
    slow[:, n_bits:] = kernels.TAKEN
    assert unsure.tolist() == kernels.quantise_reference(values, factors, errors, slow).tolist()
    np.testing.assert_array_equal(fast, slow)

    scores = np.full((m, width), kernels.TAKEN, np.int16)
    scores[:, :n_bits] = rng.integers(-3, 4, (m, n_bits)) * 2000  # many ties
    inhibition = np.zeros((n_bits, width), np.int16)
    inhibition[:, :n_bits] = rng.integers(-300, 900, (n_bits, n_bits))
    picks = rng.integers(1, 3, min(n_rounds, max(1, (n_bits - 1) // 2)))
    packed = np.full((2, m, packed_width(n_bits)), 255, np.uint8)
    kernels.pursue(scores, inhibition, picks, packed[0])
    kernels.pursue_reference(scores, inhibition, picks, packed[1])
    np.testing.assert_array_equal(packed[0], packed[1])
    assert (np.bitwise_count(packed[0]).sum(axis=1) == picks.sum()).all()


def test_balanced_spherical_k_means_step_by_step(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(np.float64)
    method = PursuitHash(n_bits=40, n_active=5, n_epochs=2, n_components=None)
    states = train(method, X, block_rows=100)
    rows = unit(X - states[1].arrays["mean"])
    plan = LeafPlan(600, 100)
    (first,) = method.train_blocks(states[1], plan)
    assert isinstance(first, RowIndices)
    np.testing.assert_allclose(states[2].arrays["weights"], rows[list(first.rows)], atol=1e-12)
    M, E, b = np.zeros((40, 24)), states[2].arrays["weights"], np.zeros(40)
    for before, after in itertools.pairwise(states[2:]):
        leaves = method.train_blocks(before, plan)
        mine = np.concatenate([rows[leaf.start : leaf.stop] for leaf in leaves])
        scores, uses, M = mine @ E.T, np.zeros(40), M / 2
        for x, y in zip(mine, scores, strict=True):
            s = np.argmax(y - b)
            M[s] += x
            uses[s] += 1
        b = b + 0.1 * scores.std() * np.log((uses / len(mine) + 0.1 / 40) / (1.1 / 40))
        E = np.where(np.abs(M).any(axis=1, keepdims=True), M / np.linalg.norm(M, axis=1, keepdims=True), E)
        np.testing.assert_allclose(after.arrays["weights"], E, atol=1e-12)
        np.testing.assert_allclose(after.arrays["bias"], b, atol=1e-12)
    assert after.scalars["epoch"] == 2


def test_all_bits_are_used_and_neighbours_are_found_better_than_by_posh() -> None:
    X = digits(6300)
    base, queries = X[:6000], X[6000:6300]
    found, effective = {}, {}
    for cls in (bf.POSH, bf.PursuitHash):
        hasher = cls(n_bits=512, n_active=16, n_components=48, random_state=0).fit(base[:2000])
        result = bf.evaluate(hasher, base, queries, ["recall@100"])
        found[cls] = float(result["value"][0])
        uses = hasher.transform(base).sum(axis=0, dtype=float)
        effective[cls] = uses.sum() ** 2 / (uses**2).sum()
    assert 1 - found[bf.PursuitHash] < 0.5 * (1 - found[bf.POSH])
    assert effective[bf.PursuitHash] > 450 > 2 * effective[bf.POSH]


@pytest.mark.parametrize(
    ("n_active", "beta"), [(8, 0.54), (16, 0.73), (32, 1.0), (64, 1.37), (128, 1.8), (200, 1.8)]
)
def test_more_ones_inhibit_more(train: Callable, blobs: tuple, n_active: int, beta: float) -> None:
    method = PursuitHash(n_bits=256, n_active=n_active, n_epochs=1)
    encoder = method.encoder(train(method, blobs[0], block_rows=200)[-1])
    assert encoder.beta == beta
    assert PursuitHash(n_bits=256, n_active=n_active, beta=0, dictionary="rows").beta == 0


def test_a_penalty_is_taken_from_the_first_scores(encoder: PursuitEncoder) -> None:
    rng = np.random.default_rng(6)
    X, penalty = rng.normal(size=(20, 30)), rng.uniform(-MOST_PENALTY, MOST_PENALTY, 150)
    arguments = encoder.mean, encoder.components, encoder.atoms, 9, 1.0, None
    coder = PursuitEncoder(*arguments, penalty)
    Z = np.column_stack([unit((X - coder.mean) @ coder.components), np.full(20, -1.0)])
    scores = np.rint(8192 * Z[:, :-1] @ coder.atoms.T) - np.rint(8192 * penalty)
    for z, row, active in zip(Z[:, :-1], scores, coder.active(X), strict=True):
        chosen: list[int] = []
        for _ in range(9):
            chosen.append(min((-row[j], j) for j in range(150) if j not in chosen)[1])
            row -= np.rint(8192 / 9 * coder.atoms @ coder.atoms[chosen[-1]])
        assert sorted(chosen) == active.tolist(), z
    assert (coder.encode(X) != encoder.encode(X)).any()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(coder)).encode(X), coder.encode(X))
    for wrong in (penalty[1:], penalty * 9):
        with pytest.raises(ValueError, match=r"at most 0.19"):
            PursuitEncoder(*arguments, wrong)


def test_refining_and_balancing_step_by_step(train: Callable, blobs: tuple) -> None:
    """By plain loops over rows from the codes of the model before each pass."""
    X = blobs[0].astype(np.float64)
    method = PursuitHash(n_bits=64, n_active=4, n_epochs=1, n_refine=2, n_balance=3, n_components=None)
    states = train(method, X, block_rows=100)[-6:]
    rows, c = unit(X - states[0].arrays["mean"]), usual_beta(4) / 4
    for k, (before, after) in enumerate(itertools.pairwise(states)):
        arrays = before.arrays
        coder = PursuitEncoder(
            arrays["mean"], None, arrays["weights"], 4, usual_beta(4), None, arrays["penalty"]
        )
        E, M, uses, unexplained = arrays["weights"], np.zeros((64, 24)), np.zeros(64), 0.0
        for z, active in zip(rows, coder.active(X), strict=True):
            left = z - c * E[active].sum(axis=0)
            M[active] += left
            uses[active] += 1
            unexplained += left @ left
        assert after.scalars["effective_bits"] == pytest.approx(uses.sum() ** 2 / (uses**2).sum())
        if k < 2:
            moved = M + c * uses[:, None] * E
            E = np.where(moved.any(axis=1, keepdims=True), moved, E)
            np.testing.assert_allclose(after.arrays["weights"], unit(E), atol=1e-12)
            assert after.scalars["unexplained"] == pytest.approx(unexplained / len(X))
        else:
            np.testing.assert_array_equal(after.arrays["weights"], E)
            fair = 4 / 64
            step = 0.25 * 0.94 ** (k - 2) * np.std(E @ E.T)
            expected = arrays["penalty"] + step * np.log((uses / len(X) + 0.1 * fair) / (1.1 * fair))
            expected = np.clip(expected, -MOST_PENALTY, MOST_PENALTY)
            np.testing.assert_allclose(after.arrays["penalty"], expected, atol=1e-12)
    assert method.done(after)


def test_refining_explains_more_and_balancing_evens_out() -> None:
    X = digits(2000)
    once, twice, balanced = (
        bf.PursuitHash(256, n_active=8, n_components=32, n_refine=r, n_balance=b, random_state=0).fit(X)
        for r, b in ((1, 0), (2, 0), (1, 20))
    )
    before, after = (hasher.model_.state.scalars["unexplained"] for hasher in (once, twice))
    assert after < 0.98 * before  # each is of the codes that a pass began with
    effective = [
        bf.describe_codes(hasher.encode(X), n_active=8).effective_bits for hasher in (once, balanced)
    ]
    assert effective[0] < 245 < 250 < effective[1]


def test_training_rows_as_the_dictionary(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(np.float64)
    method = PursuitHash(n_bits=40, n_active=5, dictionary="rows", n_components=None)
    states = train(method, X, block_rows=100)
    rows, atoms = unit(X - states[-1].arrays["mean"]), states[-1].arrays["weights"]
    assert len(states) == 3  # at the start, after the mean, with the rows
    assert (np.isclose(rows @ atoms.T, 1).sum(axis=0) >= 1).all()
    assert not hasattr(bf.PursuitHash(40, n_active=5, dictionary="rows").fit(X), "effective_atoms_")
    with pytest.raises(ValueError, match="kmeans, rows"):
        PursuitHash(dictionary="random")


@pytest.mark.parametrize("cls", [bf.POSH, bf.SphericalHash], ids=["posh", "spherical_hash"])
def test_other_dictionaries_are_pursued_too(cls: type) -> None:
    X = digits(1000)
    params = {"n_bits": 128, "n_active": 6, "n_components": 24, "n_epochs": 3, "random_state": 0}
    hasher = cls(**params, assign="greedy", beta=0.8).fit(X)
    arrays = hasher.model_.state.arrays
    lengths = np.linalg.norm(arrays["weights"], axis=1, keepdims=True)
    atoms = arrays["weights"] / np.where(lengths > 0, lengths, 1)
    Z = unit((X.astype(float) - arrays["mean"]) @ arrays["components"])[:50]
    expected = [one_by_one(z, atoms, 6, 0.8) for z in Z]
    assert [np.flatnonzero(bits).tolist() for bits in hasher.transform(X[:50])] == expected
    winners = cls(**params).fit(X)
    np.testing.assert_array_equal(winners.model_.state.arrays["weights"], arrays["weights"])
    assert (winners.encode(X) != hasher.encode(X)).any()
    with pytest.raises(ValueError, match="take assign='greedy'"):
        cls(**params, beta=0.8).fit(X)
    with pytest.raises(ValueError, match="wta, greedy"):
        cls(**params, assign="best").fit(X)


def test_fewer_distinct_rows_than_bits_and_more_ones_than_rank() -> None:
    """Ten rows of rank two, many times over: equal rows equal codes, near rows near codes."""
    rng = np.random.default_rng(7)
    angles = np.sort(rng.uniform(0, 2 * np.pi, 10))
    distinct = np.column_stack([np.cos(angles), np.sin(angles)]) @ np.linalg.qr(rng.normal(size=(9, 2)))[0].T
    X = np.vstack([np.repeat(distinct, 30, axis=0), np.zeros((7, 9))])
    hasher = bf.PursuitHash(64, n_active=12, center=False, n_refine=1, n_balance=2, random_state=0).fit(X)
    codes = hasher.transform(X)
    assert all(np.isfinite(array).all() for array in hasher.model_.state.arrays.values())
    assert (codes.sum(axis=1) == 12).all()
    assert codes[-1].tolist() == [1] * 12 + [0] * 52
    np.testing.assert_array_equal(codes[:300], np.repeat(codes[:300:30], 30, axis=0))
    overlaps = codes[:300:30].astype(int) @ codes[:300:30].T
    nearest = (distinct @ distinct.T - 9 * np.eye(10)).argmax(axis=1)
    others = np.where(np.eye(10, dtype=bool), -1, overlaps)
    assert (others[np.arange(10), nearest] == others.max(axis=1)).mean() >= 0.7
