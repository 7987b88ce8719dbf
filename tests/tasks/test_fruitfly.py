"""FruitFly: the definition on whole arrays, the projection's law, and the rule for many features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.fruitfly import FruitFly
from bitfleet.tasks.protocols import DataInfo

if TYPE_CHECKING:
    from collections.abc import Callable


def test_winners_of_binary_sums(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(np.float64)
    method = FruitFly(n_bits=200, n_active=7)
    state = train(method, X)[-1]
    weights = state.arrays["weights"]
    assert set(np.unique(weights)) == {0, 1}
    scores = (X - X.mean(axis=0)) @ weights.T
    expected = np.zeros(scores.shape, np.uint8)
    np.put_along_axis(expected, np.argsort(-scores, axis=1, kind="stable")[:, :7], 1, axis=1)
    got = unpack_bits(method.encoder(state).encode(X), 200)
    assert (got.sum(axis=1) == 7).all()
    np.testing.assert_allclose((got * scores).sum(axis=1), (expected * scores).sum(axis=1), rtol=1e-12)


def test_the_projection_has_the_binomial_moments_of_the_paper() -> None:
    D, d, p = 4096, 60, 0.2
    W = FruitFly(n_bits=D, density=p, center=False).start(DataInfo(10, d), 0).arrays["weights"].astype(float)
    gram = W.T @ W
    diagonal, rest = np.diagonal(gram), gram[np.triu_indices(d, 1)]
    assert diagonal.mean() == pytest.approx(D * p, abs=4 * np.sqrt(D * p * (1 - p) / d))  # eq. 5a
    assert rest.mean() == pytest.approx(D * p**2, rel=0.02)  # eq. 5b
    assert rest.var() == pytest.approx(D * p**2 * (1 - p**2), rel=0.2)


def test_more_features_than_bits_are_reduced_to_n_active_components(train: Callable, blobs: tuple) -> None:
    X = blobs[0]
    state = train(FruitFly(n_bits=16, n_active=4), X)[-1]
    assert state.arrays["components"].shape == (24, 4)
    assert "components" not in train(FruitFly(n_bits=24, n_active=4), X)[-1].arrays
    assert train(FruitFly(n_bits=16, n_active=4, n_components=9), X)[-1].arrays["components"].shape == (24, 9)


@pytest.mark.parametrize("n_features", [1, 2, 30])
def test_degenerate_rows_give_the_first_bits(train: Callable, n_features: int) -> None:
    X = np.full((4, n_features), 3.0)
    method = FruitFly(n_bits=20, n_active=3)
    assert method.encoder(train(method, X)[-1]).active(X).tolist() == [[0, 1, 2]] * 4


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_active": 1024}, "n_active < n_bits"),
        ({"n_active": 0}, "n_active"),
        ({"density": 0.0}, "density"),
        ({"density": 1.1}, "density"),
        ({"density": True}, "density"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"expected {message}"):
        FruitFly(**parameters)


def test_an_orthogonal_projection_keeps_all_angles(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(np.float64)
    method = FruitFly(n_bits=200, n_active=7, matrix="orthogonal", density=0.5)
    state = train(method, X)[-1]
    weights = state.arrays["weights"]
    np.testing.assert_allclose(weights.T @ weights, np.eye(24), atol=1e-12)
    scores = (X - X.mean(axis=0)) @ weights.T
    got = unpack_bits(method.encoder(state).encode(X), 200)
    best = np.sort(scores, axis=1)[:, -7:].sum(axis=1)
    np.testing.assert_allclose((got * scores).sum(axis=1), best, rtol=1e-12)
    assert np.abs(weights - train(method, X, seed=1)[-1].arrays["weights"]).max() > 0.1


def test_orthogonal_entries_are_those_of_a_random_rotation() -> None:
    method = FruitFly(n_bits=512, n_active=8, matrix="orthogonal", center=False)
    weights = method.start(DataInfo(10, 100), 0).arrays["weights"] * np.sqrt(512)
    assert weights.mean() == pytest.approx(0, abs=0.02)
    assert (weights**4).mean() == pytest.approx(3, abs=0.15)  # nearly normal


def test_orthogonal_columns_need_no_more_components_than_bits(train: Callable, blobs: tuple) -> None:
    reduced = train(FruitFly(n_bits=16, n_active=4, matrix="orthogonal"), blobs[0])[-1]
    assert reduced.arrays["weights"].shape == (16, 4)
    with pytest.raises(ValueError, match="at most n_components=16, got 17"):
        FruitFly(n_bits=16, n_active=4, n_components=17, matrix="orthogonal").start(DataInfo(10, 24), 0)
    with pytest.raises(ValueError, match="expected matrix to be one of bernoulli, orthogonal, got 'x'"):
        FruitFly(matrix="x")
