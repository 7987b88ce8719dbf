"""SSBC: against eigenvectors of the whole affinity matrix, and the cases that its page promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.ssbc import SSBC
from bitfleet.tasks.methods.ssbc_sums import AUTO
from bitfleet.tasks.protocols import DataInfo, LeafPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfleet.tasks.protocols import RoundState


def whole(X: np.ndarray, state: RoundState) -> np.ndarray:
    """All centred affinities by the formula."""
    a = state.arrays
    squares = np.square(X[:, None].astype(float) - a["anchors"].astype(float)).sum(axis=2)
    return np.exp(-squares / state.scalars["sigma"] ** 2) - a["affinity_mean"]


@pytest.fixture
def digits(root: Any) -> np.ndarray:
    with np.load(root / "pipeline" / "demo" / "digits.npz") as file:
        return (file["X"][:900, ::3] / 255.0).astype(np.float32)


def informative(method: SSBC, state: RoundState, X: np.ndarray) -> int:
    bits = unpack_bits(method.encoder(state).encode(X), method.n_bits)
    constant = (bits == bits[0]).all(axis=0)
    return len(np.unique(bits[:, ~constant], axis=1).T)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exact_sums_give_the_eigenvectors(train: Callable, digits: np.ndarray, dtype: str) -> None:
    X = digits.astype(dtype)
    method = SSBC(16, n_anchors=120, sketch_size=20)
    state = train(method, X)[-1]
    assert state.scalars["certificate"] == 0
    W = whole(X, state)
    vectors = np.linalg.svd(W, full_matrices=False).Vh[:16].T
    cosines = np.abs(np.sum(vectors * state.arrays["weights"], axis=0))
    np.testing.assert_allclose(cosines, 1, atol=1e-4 if dtype == "float32" else 1e-10)
    bits = unpack_bits(method.encoder(state).encode(X), 16)
    np.testing.assert_array_equal(bits, W @ state.arrays["weights"] >= 0)
    assert state.scalars["square"] == pytest.approx(np.sum(W**2), rel=1e-5)


@pytest.mark.parametrize("sketch_dtype", ["float32", "float64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sketch_keeps_its_certificate_and_every_bit_tells_something(
    train: Callable, digits: np.ndarray, dtype: str, sketch_dtype: str
) -> None:
    X = digits.astype(dtype)
    method = SSBC(12, n_anchors=200, sketch_size=18, sketch_dtype=sketch_dtype)
    state = train(method, X)[-1]
    assert 0 < state.scalars["certificate"] < 0.1
    W = whole(X, state)
    exact = np.linalg.eigvalsh(W.T @ W)[::-1]
    limit = (state.scalars["certificate"] + state.scalars["slack"]) * state.scalars["square"]
    gone = exact[:18] - state.arrays["spectrum"]
    assert (gone >= -limit * 1e-3).all()
    assert (gone <= limit * (1 + 1e-5)).all()
    assert state.arrays["weights"].shape == (200, 12)
    np.testing.assert_allclose(state.arrays["weights"].T @ state.arrays["weights"], np.eye(12), atol=1e-9)
    assert informative(method, state, X) == 12


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "float32", "float64"])
def test_there_are_as_many_bits_as_asked_for_whatever_the_type(digits: np.ndarray, dtype: str) -> None:
    X = np.rint(digits * 255).astype(dtype)
    for more in ({}, {"sketch_size": 12, "sketch_dtype": "float32"}, {"mode": "online"}):
        bits = bf.SSBC(12, n_anchors=200, random_state=0, **more).fit(X).transform(X)
        assert bits.shape == (len(X), 12)
        assert (bits.min(axis=0) < bits.max(axis=0)).all()
        assert len(np.unique(np.concatenate([bits, 1 - bits], axis=0), axis=1).T) == 12


@pytest.mark.parametrize("sketch_rows", ["all", "train"])
def test_the_papers_form_has_a_constant_first_bit(
    train: Callable, digits: np.ndarray, sketch_rows: str
) -> None:
    method = SSBC(8, n_anchors=100, center=False, sketch_rows=sketch_rows)
    states = train(method, digits)
    assert len(states) == (3 if sketch_rows == "all" else 2)
    bits = unpack_bits(method.encoder(states[-1]).encode(digits), 8)
    assert (bits[:, 0] == bits[0, 0]).all()
    assert informative(method, states[-1], digits) == 7
    without = SSBC(8, n_anchors=100, center=False, drop_first=1, sketch_rows=sketch_rows)
    state = train(without, digits)[-1]
    assert informative(without, state, digits) == 8
    np.testing.assert_allclose(
        np.abs(state.arrays["weights"][:, :7]), np.abs(states[-1].arrays["weights"][:, 1:]), atol=1e-9
    )


def test_training_on_the_anchors_alone_is_the_papers_text(train: Callable, digits: np.ndarray) -> None:
    state = train(SSBC(8, n_anchors=100, center=False, sketch_rows="train"), digits)[-1]
    W = whole(state.arrays["anchors"], state)
    vectors = np.linalg.svd(W).Vh[:8]
    cosines = np.abs(np.sum(vectors * state.arrays["weights"].T, axis=1))
    np.testing.assert_allclose(cosines, 1, atol=1e-5)


def test_sigma_and_mean_come_from_the_sample(train: Callable, digits: np.ndarray) -> None:
    X = digits[:300]  # all of them are sampled
    state = train(SSBC(8, n_anchors=50), X)[1]
    anchors = state.arrays["anchors"].astype(float)
    squares = np.square(X[:, None].astype(float) - anchors).sum(axis=2)
    own = squares == 0
    assert own.sum() == 50
    distance = np.sqrt(np.where(own, np.inf, squares).min(axis=1)).mean()
    assert state.scalars["neighbor_distance"] == pytest.approx(distance)
    assert state.scalars["sigma"] == pytest.approx(AUTO * distance)
    w = np.where(own, 0, np.exp(-squares / state.scalars["sigma"] ** 2))
    np.testing.assert_allclose(state.arrays["affinity_mean"], w.sum(axis=0) / 299, atol=1e-12)


def test_only_leaves_with_sampled_rows_are_read_for_them() -> None:
    method = SSBC(4, n_anchors=10)
    state = method.start(DataInfo(10**9, 4), 0)
    plan = LeafPlan(10**9, 10**5)
    assert len(method.blocks(state, plan)) <= 1000


def test_unusual_data_and_parameters(train: Callable, digits: np.ndarray) -> None:
    X = digits[:200]
    with pytest.raises(ValueError, match="so small that no row has an affinity to any anchor but itself"):
        train(SSBC(8, n_anchors=50, sigma=1e-3), X)
    with pytest.raises(ValueError, match="so large that all affinities are 1"):
        train(SSBC(8, n_anchors=50, sigma=1e6), X)
    with pytest.raises(ValueError, match="whose squares float64 holds"):
        train(SSBC(8, n_anchors=50), X.astype(np.float64) * 1e-160)
    for mode in ("streaming", "online"):
        bad = X.copy()
        bad[150, 3] = np.nan
        with pytest.raises(ValueError, match="row 150 holds NaN or infinity"):
            train(SSBC(8, n_anchors=50, mode=mode), bad)
    one = SSBC(1, n_anchors=1)
    assert informative(one, train(one, X)[-1], X) == 1
    twice = np.repeat(X[:5], 40, axis=0)  # duplicate anchors: 5 different ones
    method = SSBC(8, n_anchors=60)
    state = train(method, twice)[-1]
    assert state.scalars["n_directions"] <= 5
    assert len(np.unique(method.encoder(state).encode(twice), axis=0)) == 5
    few = SSBC(20, n_anchors=30, sketch_size=25)  # fewer rows than the sketch has, blocks of two
    state = train(few, X[:10], block_rows=2)[-1]
    assert few.encoder(state).n_bits == 20
    state = train(SSBC(20, n_anchors=200, sketch_size=20), X, block_rows=3)[-1]
    assert state.scalars["n_directions"] >= 20


def test_bad_parameters_are_refused() -> None:
    for params, message in (
        ({"sigma": 0}, "sigma to be"),
        ({"sigma": "wide"}, "sigma to be"),
        ({"sigma": True}, "sigma to be"),
        ({"n_anchors": 63}, r"n_anchors >= n_bits \+ drop_first = 64"),
        ({"sketch_size": 63}, "sketch_size to be an integer >= 64"),
        ({"sketch_rows": "some"}, "sketch_rows to be one of all, train"),
        ({"sketch_dtype": "float16"}, "sketch_dtype to be one of"),
        ({"center": "yes"}, "center to be True or False"),
        ({"drop_first": -1}, "drop_first"),
    ):
        with pytest.raises(ValueError, match=message):
            SSBC(**params)  # type: ignore[arg-type]
