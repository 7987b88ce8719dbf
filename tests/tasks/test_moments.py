"""Moments and principal components against NumPy and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from bitfleet.tasks.moments import Moments, pca
from bitfleet.tasks.protocols import Block


def summary(X: np.ndarray, sizes: tuple[int, ...] = (), covariance: bool = True) -> dict[str, np.ndarray]:
    accumulator = Moments(X.shape[1], covariance)
    state = accumulator.init()
    for part in np.split(X, np.cumsum(sizes)):
        leaf = accumulator.update(accumulator.init(), Block(np.arange(len(part)), part))
        state = accumulator.merge(state, leaf)
    return accumulator.finalize(state)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_equal_to_numpy(dtype: str) -> None:
    X = (np.random.default_rng(0).normal(size=(3000, 7)) * 3 + 1000).astype(dtype)
    got = summary(X, (1, 1500, 0, 20))
    assert got["count"] == 3000
    np.testing.assert_allclose(got["mean"], X.astype(float).mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(got["covariance"], np.cov(X.T.astype(float), bias=True), rtol=1e-9, atol=1e-11)
    assert "covariance" not in summary(X, covariance=False)


def test_far_from_the_origin_nothing_cancels() -> None:
    X = 1e8 + np.array([[0.0], [1.0], [2.0], [3.0]])
    assert summary(X, (1,))["covariance"].tolist() == [[1.25]]


def test_constant_features_have_exactly_zero_variance() -> None:
    X = np.full((5000, 3), np.float32(0.1))
    X[:, 1] = np.arange(5000)
    got = summary(X, (77, 1300))
    assert got["mean"][0] == np.float32(0.1)
    assert not got["covariance"][[0, 2]].any()


def test_no_rows_and_nonfinite_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        summary(np.empty((0, 3)))
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="row 1 holds NaN or infinity"):
            summary(np.array([[0.0, 1.0], [0.0, bad]]))
    with pytest.raises(ValueError, match="covariance overflows"):
        summary(np.array([[0.0, 1.0], [0.0, 1e300]]))
    huge = np.random.default_rng(0).normal(size=(30, 3)) * 1e300  # squares overflow to both infinities
    for sizes in ((), (10, 10)):
        with pytest.raises(ValueError, match="covariance overflows"):
            summary(huge, sizes)
    with pytest.raises(ValueError, match="overflow float64"):
        summary(np.array([[1.7e308], [-1.7e308]]))


def test_components_diagonalise_the_covariance_with_definite_signs() -> None:
    X = np.random.default_rng(1).normal(size=(400, 6)) @ np.diag([5, 1, 3, 0.1, 2, 0.5])
    moments = summary(X)
    components, variance = pca(moments, 6)
    np.testing.assert_allclose(components.T @ components, np.eye(6), atol=1e-13)
    np.testing.assert_allclose(
        components.T @ moments["covariance"] @ components, np.diag(variance), atol=1e-12
    )
    assert (np.diff(variance) < 0).all()
    _, singular, right = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(variance, singular**2 / 400, rtol=1e-12)
    np.testing.assert_allclose(np.abs(components), np.abs(right.T), atol=1e-12)
    assert (components[np.abs(components).argmax(axis=0), range(6)] > 0).all()


def test_a_share_of_variance_takes_the_least_number_that_explains_it() -> None:
    moments = {"mean": np.zeros(4), "covariance": np.diag([1.0, 4.0, 2.0, 3.0])}
    for share, count in [(0.3, 1), (0.4, 1), (0.41, 2), (0.7, 2), (0.9, 3), (0.91, 4), (1.0, 4)]:
        assert pca(moments, share)[0].shape == (4, count)
    assert pca(moments, 0.91, at_most=2)[0].shape == (4, 2)
    assert pca({"mean": np.zeros(2), "covariance": np.zeros((2, 2))}, 0.9)[0].shape == (2, 1)
    with pytest.raises(ValueError, match="1 to 4 components"):
        pca(moments, 5)


def test_without_centring_the_second_moment_counts() -> None:
    X = np.random.default_rng(2).normal(size=(50, 3)) + np.array([10, 0, 0])
    components, variance = pca(summary(X), 3, center=False)
    np.testing.assert_allclose(components @ np.diag(variance) @ components.T, X.T @ X / 50, rtol=1e-10)


@pytest.mark.parametrize("scale", [1e-150, 1e100])
def test_components_do_not_depend_on_the_unit(scale: float) -> None:
    moments = {"mean": np.zeros(2), "covariance": np.array([[2.0, 1.0], [1.0, 3.0]])}
    expected, variance = pca(moments, 2)
    scaled = {"mean": np.zeros(2), "covariance": moments["covariance"] * scale}
    np.testing.assert_allclose(pca(scaled, 2)[0], expected, rtol=1e-12)
    np.testing.assert_allclose(pca(scaled, 2)[1], variance * scale, rtol=1e-12)
