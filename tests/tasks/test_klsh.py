"""KLSH: against the published formula as a loop, and against the law that its codes are to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.klsh import KLSH
from bitfleet.tasks.random import stream

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def digits(root: Any) -> np.ndarray:
    with np.load(root / "pipeline" / "demo" / "digits.npz") as file:
        return (file["X"][:300, ::3] / 255.0).astype(np.float32)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_codes_are_the_published_formula(train: Callable, digits: np.ndarray, kernel: str) -> None:
    """With K centred entry by entry, K^(-1/2), and every kernel value of a new row centred, too."""
    method = KLSH(12, n_anchors=25, n_subset=6, kernel=kernel)
    state = train(method, digits)[-1]
    anchors, X, p = state.arrays["anchors"].astype(float), digits[:40].astype(float), 25

    def k(x: np.ndarray, y: np.ndarray) -> float:
        if kernel == "linear":
            return float(x @ y)
        return float(np.exp(-np.sum((x - y) ** 2) / state.scalars["sigma"] ** 2))

    plain = np.array([[k(a, b) for b in anchors] for a in anchors])
    one = np.full((p, p), 1 / p)
    centred = plain - one @ plain - plain @ one + one @ plain @ one
    values, vectors = np.linalg.eigh(centred)
    keep = values > 1e-8 * values[-1]
    assert keep.sum() == state.scalars["n_directions"] == p - 1
    root = vectors[:, keep] @ np.diag(values[keep] ** -0.5) @ vectors[:, keep].T
    rng = stream(0, "klsh.subsets")
    bits = np.zeros((40, 12), bool)
    scores = np.zeros((40, 12))
    for j in range(12):
        w = root[:, rng.choice(p, 6, replace=False)].sum(axis=1)
        for i, x in enumerate(X):
            row = np.array([k(x, a) for a in anchors])
            scores[i, j] = np.sum(w * (row - row.mean() - plain.mean(axis=0) + plain.mean()))
    bits = scores >= 0
    assert np.abs(scores).min() > 1e-9
    np.testing.assert_array_equal(unpack_bits(method.encoder(state).encode(digits[:40]), 12), bits)


def test_sigma_is_the_root_mean_squared_distance(train: Callable, digits: np.ndarray) -> None:
    state = train(KLSH(4, n_anchors=30), digits)[-1]
    anchors = state.arrays["anchors"].astype(float)
    squares = np.square(anchors[:, None] - anchors).sum(axis=2)
    expected = np.sqrt(squares.sum() / (30 * 29))
    assert state.scalars["sigma"] == pytest.approx(expected)
    assert train(KLSH(4, n_anchors=30, sigma=2), digits)[-1].scalars["sigma"] == 2.0


def test_the_collision_law_of_random_hyperplanes(train: Callable) -> None:
    """Linear kernel, many rows: equal bits with probability 1 - θ/π, θ seen from the mean; real LSH's law."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 6)) * np.array([4.0, 2, 1, 1, 0.5, 0.5]) + 3  # far from white, not centred
    method = KLSH(4000, n_anchors=1000, kernel="linear")
    state = train(method, X)[-1]
    assert state.scalars["n_directions"] == 6
    seen = X[:30] - X.mean(axis=0)
    seen /= np.linalg.norm(seen, axis=1, keepdims=True)
    bits = unpack_bits(method.encoder(state).encode(X[:30]), 4000).astype(float)
    equal = (bits @ bits.T + (1 - bits) @ (1 - bits).T) / 4000
    law = 1 - np.arccos(np.clip(seen @ seen.T, -1, 1)) / np.pi
    errors = (equal - law)[np.triu_indices(30, 1)]
    assert np.abs(errors).max() < 0.04  # 4.5 standard deviations of 4000 coins, and what t = 30 is short of ∞
    assert abs(errors.mean()) < 0.01


def test_unusual_data_and_parameters(train: Callable, digits: np.ndarray) -> None:
    twice = np.repeat(digits[:4], 20, axis=0)
    method = KLSH(30, n_anchors=60)
    state = train(method, twice)[-1]
    assert state.scalars["n_directions"] == 3
    assert len(np.unique(method.encoder(state).encode(twice), axis=0)) == 4
    with pytest.raises(ValueError, match="squared ones overflow float64"):
        train(KLSH(4), np.ldexp(digits.astype(float), 700))
    for params, message in (
        ({"kernel": "chi2"}, "kernel to be one of rbf, linear"),
        ({"sigma": 0}, "sigma to be"),
        ({"n_subset": 0}, "n_subset"),
    ):
        with pytest.raises(ValueError, match=message):
            KLSH(**params)  # type: ignore[arg-type]
