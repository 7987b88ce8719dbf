"""Average distortion and quantiles equal what NumPy, SciPy and scikit-learn say of all pairs."""

from __future__ import annotations

import bitfleet as bf
import numpy as np
import pytest
from scipy.optimize import nnls
from scipy.spatial.distance import pdist
from sklearn.isotonic import IsotonicRegression


@pytest.fixture(scope="module")
def pairs() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 30)) * np.arange(1, 31) ** -0.5 + 3
    B = (X - 3) @ rng.normal(size=(30, 16)) > 0
    return X, B, np.round(pdist(B.astype(float), "cityblock")), pdist(X)


def test_average_distortion_is_that_of_the_best_fit(pairs: tuple[np.ndarray, ...]) -> None:
    X, B, h, c = pairs
    found = bf.distortion_profile(B, X, block_rows=128)
    assert found.summary["joint"].sum() == len(c)
    ones = np.ones_like(h)
    for fit, columns in (("scale", [h]), ("affine", [h, ones])):
        expected = nnls(np.stack(columns, axis=1), c)[1] ** 2 / len(c)
        assert found.mean_square(fit) == pytest.approx(expected, rel=1e-9)
    expected = np.mean((IsotonicRegression().fit_transform(h, c) - c) ** 2)
    assert found.mean_square("monotone") == pytest.approx(expected, rel=1e-6)


def test_quantiles_are_right_to_a_bin(pairs: tuple[np.ndarray, ...]) -> None:
    X, B, h, c = pairs
    found = bf.distortion_profile(B, X)
    width = found.edges[1]
    best = min(np.quantile(np.abs(scale * h - c), 0.999) for scale in np.linspace(0.3, 1.5, 400))
    assert abs(found.quantile(0.999) - best) < 2 * width + 0.01 * best
    errors = np.abs(IsotonicRegression().fit_transform(h, c) - c)
    assert abs(found.quantile(0.99, "monotone") - np.quantile(errors, 0.99)) < width
    assert found.quantile(1.0) == pytest.approx(found.maximum.delta, abs=2 * width + 0.02)
    with pytest.raises(bf.ConfigError, match="share q"):
        found.quantile(99.9)


def test_blocks_change_no_count(pairs: tuple[np.ndarray, ...]) -> None:
    X, B, _, _ = pairs
    first, second = (bf.distortion_profile(B, X, block_rows=rows).summary for rows in (90, 500))
    np.testing.assert_array_equal(first["joint"], second["joint"])
    np.testing.assert_allclose(first["sum"], second["sum"], rtol=1e-12)
