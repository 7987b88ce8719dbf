"""AGH: against eigenvectors of the whole graph's Laplacian, and distances against a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.agh import AGH, eigenfunctions
from bitfleet.tasks.points import Points
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfleet.tasks.protocols import RoundState


@pytest.fixture
def digits(root: Any) -> np.ndarray:
    with np.load(root / "pipeline" / "demo" / "digits.npz") as file:
        return (file["X"][:500, ::3] / 255.0).astype(np.float32)


def attachments(X: np.ndarray, state: RoundState, s: int) -> np.ndarray:
    """All of Z, a row at a time by the formula."""
    anchors, t = state.arrays["anchors"], state.scalars["width"] ** 2
    z = np.zeros((len(X), len(anchors)))
    for i, row in enumerate(X.astype(float)):
        squares = np.square(row - anchors).sum(axis=1)
        nearest = np.argsort(squares, kind="stable")[:s]
        shares = np.exp(-squares[nearest] / t)
        z[i, nearest] = shares / shares.sum()
    return z


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_codes_are_signs_of_the_laplacians_eigenvectors(
    train: Callable, digits: np.ndarray, dtype: str
) -> None:
    X, method = digits.astype(dtype), AGH(8, n_anchors=60, n_nearest=4, n_iter=3)
    state = train(method, X)[-1]
    z = attachments(X, state, 4)
    laplacian = np.eye(len(X)) - z / z.sum(axis=0) @ z.T
    values, vectors = np.linalg.eigh(laplacian)
    np.testing.assert_allclose(laplacian @ np.ones(len(X)), 0, atol=1e-12)
    assert values[1] > 1e-6  # connected: only the constant vector has eigenvalue 0
    np.testing.assert_allclose(1 - state.arrays["spectrum"][:8], values[1:9], atol=1e-10)
    y = z @ state.arrays["weights"]
    np.testing.assert_allclose(y.T @ y, len(X) * np.eye(8), atol=1e-6)  # the paper's constraint
    np.testing.assert_allclose(y.sum(axis=0), 0, atol=1e-6)
    cosines = np.abs(np.sum(y * vectors[:, 1:9], axis=0)) / np.sqrt(len(X))
    np.testing.assert_allclose(cosines, 1, atol=1e-8)
    bits = unpack_bits(method.encoder(state).encode(X), 8)
    np.testing.assert_array_equal(bits, y >= 0)


def test_thresholds_of_two_layers_are_the_constrained_minimum(train: Callable, digits: np.ndarray) -> None:
    """Of the paper's quadratic form, with the whole Laplacian, under its balance condition."""
    method = AGH(8, n_anchors=60, n_nearest=4, n_iter=2, n_layers=2)
    state = train(method, digits)[-1]
    z = attachments(digits, state, 4)
    laplacian = np.eye(len(digits)) - z / z.sum(axis=0) @ z.T
    y, positive = z @ state.arrays["weights"], z @ state.arrays["weights"] >= 0
    assert y.shape == (500, 4)
    for k, (above, below) in enumerate(state.arrays["thresholds"].T):
        v = np.where(positive[:, k], y[:, k] - above, below - y[:, k])
        assert v.sum() == pytest.approx(0, abs=1e-8)
        n_positive = positive[:, k].sum()
        along = np.where(positive[:, k], -1 / n_positive, 1 / (500 - n_positive))  # keeps the sum
        assert along @ laplacian @ v == pytest.approx(0, abs=1e-10)
        assert along @ laplacian @ along > 0
    above, below = state.arrays["thresholds"]
    second = np.where(positive, y >= above, y <= below)
    bits = unpack_bits(method.encoder(state).encode(digits), 8)
    np.testing.assert_array_equal(bits, np.concatenate([positive, second], axis=1))
    assert (np.abs(second.mean(axis=0) - 0.5) < 0.35).all()


def test_width_and_centres(train: Callable, digits: np.ndarray) -> None:
    states = train(AGH(8, n_anchors=40, n_nearest=3, n_iter=2), digits)
    X, before, after = digits.astype(float), states[1].arrays["anchors"], states[2].arrays["anchors"]
    nearest = np.square(X[:, None] - before).sum(axis=2).argmin(axis=1)
    means = np.stack([X[nearest == j].mean(axis=0) for j in range(40)])
    np.testing.assert_allclose(after, means, atol=1e-12)
    objectives = [state.scalars["objective"] for state in states[2:4]]
    assert objectives[1] < objectives[0]
    squares = np.sort(np.square(X[:, None] - states[3].arrays["anchors"]).sum(axis=2), axis=1)
    assert states[-1].scalars["width"] == pytest.approx(np.sqrt(squares[:, 2]).mean())


def test_components_of_a_graph_are_told_apart(train: Callable) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(80, 5)), rng.normal(size=(40, 5)) + 1000]).astype(np.float32)
    method = AGH(4, n_anchors=20, n_nearest=2, n_iter=5)
    state = train(method, X)[-1]
    assert state.arrays["spectrum"][0] == pytest.approx(1)  # again an eigenvalue 1
    codes = method.encoder(state).encode(X)
    assert not set(codes[:80].ravel()) & set(codes[80:].ravel())


def test_no_direction_gives_no_weights_and_few_give_mixtures() -> None:
    weights, spectrum = eigenfunctions(np.full((3, 3), 4.0), 5, 0)
    assert len(spectrum) == 0
    assert not weights.any()
    weights, spectrum = eigenfunctions(np.diag([4.0, 6.0, 0.0]), 5, 0)
    assert len(spectrum) == 1
    assert weights[:2].all()
    assert not weights[2].any()
    np.testing.assert_allclose(weights[0] * 4 + weights[1] * 6, 0, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32), k=st.integers(1, 4), scale=st.sampled_from([0.0, 1e-3, 1.0]),
    far=st.sampled_from([0.0, 1e6]), dtype=st.sampled_from(["float32", "float64"]),
)  # fmt: skip
def test_nearest_points_equal_a_loop(seed: int, k: int, scale: float, far: float, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    points = (rng.integers(0, 2, (6, 3)) + scale * rng.normal(size=(6, 3)) + far).astype(dtype)
    rows = (rng.integers(0, 2, (9, 3)) + scale * rng.normal(size=(9, 3)) + far).astype(dtype)
    places, distances = Points(points).nearest(rows, k)
    squares = np.zeros((9, 6))
    for j in range(3):
        squares += np.square(rows[:, None, j].astype(float) - points[:, j])
    expected = np.argsort(squares, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(distances, np.take_along_axis(squares, expected, axis=1))
    fast, errors = Points(points).distances(rows)
    assert (np.abs(fast - squares) <= errors).all()


def test_bad_parameters_are_refused() -> None:
    for params, message in (
        ({"n_bits": 300}, "n_anchors > n_bits = 300"),
        ({"n_nearest": 301}, "n_nearest <= n_anchors = 300"),
        ({"n_iter": -1}, "n_iter"),
        ({"n_nearest": 0}, "n_nearest"),
        ({"n_layers": 3}, "n_layers to be 1, or 2"),
        ({"n_layers": 2, "n_bits": 7}, "n_layers to be 1, or 2 with an even n_bits"),
    ):
        with pytest.raises(ValueError, match=message):
            AGH(**params)
    with pytest.raises(ValueError, match="squared ones overflow float64"):
        Points(np.zeros((2, 3))).nearest(np.full((1, 3), 1e200), 1)
