"""CBE: the Fourier form of its projection, LSH's collision probability, and a loss that falls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.cbe import CBE, _best_sizes
from scipy.optimize import minimize_scalar

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_projection_is_a_circular_convolution(train: Callable) -> None:
    X = np.random.default_rng(0).normal(size=(50, 12))
    state = train(CBE(n_bits=30, learned=False, center=False), X)[-1]
    signs, circulant, weights = (state.arrays[k] for k in ("signs", "circulant", "weights"))
    assert signs.shape == circulant.shape == (3, 12)
    assert weights.shape == (12, 30)
    rows = [
        np.fft.ifft(np.fft.fft(X * s) * np.fft.fft(r)).real for s, r in zip(signs, circulant, strict=True)
    ]
    np.testing.assert_allclose(X @ weights, np.concatenate(rows, axis=1)[:, :30], atol=1e-12)


def test_random_bits_collide_like_those_of_random_hyperplanes(train: Callable) -> None:
    """The paper: E of the share of differing bits is the angle over π."""
    d, angle = 64, 1.0
    pair = np.zeros((2, d))
    pair[0, 0], pair[1, :2] = 1, [np.cos(angle), np.sin(angle)]
    method, shares = CBE(n_bits=d, learned=False, center=False), []
    for seed in range(300):
        codes = unpack_bits(method.encoder(train(method, pair, seed=seed)[-1]).encode(pair), d)
        shares.append(np.mean(codes[0] != codes[1]))
    assert np.mean(shares) == pytest.approx(angle / np.pi, abs=4 * np.std(shares) / np.sqrt(300))


def test_the_size_of_each_frequency_minimises_its_quartic() -> None:
    rng = np.random.default_rng(1)
    square, cross = 3 * rng.random(30), 3 * rng.random(30)
    for penalty in (0.1, 1.0, 10.0):
        found = _best_sizes(square, cross, penalty, np.ones(30))
        for m, h, t in zip(square, cross, found, strict=True):
            best = minimize_scalar(
                lambda t, m=m, h=h, w=penalty: m * t * t - 2 * h * t + w * (t * t - 1) ** 2, bounds=(0, 5)
            )
            assert t == pytest.approx(best.x, abs=1e-4)
    np.testing.assert_allclose(_best_sizes(square, cross, 0.0, np.ones(30)), cross / square)


@pytest.mark.parametrize(("d", "n_bits"), [(20, 20), (20, 7), (15, 40)])
def test_learning_lowers_the_loss_of_brute_force(train: Callable, d: int, n_bits: int) -> None:
    X = np.random.default_rng(2).normal(size=(300, d)) * np.linspace(1, 0.1, d) / 3
    states = train(CBE(n_bits=n_bits, n_iter=6), X, block_rows=77)
    losses = [state.scalars["loss"] for state in states if "loss" in state.scalars]
    assert (np.diff(losses) < 1e-12).all()
    assert losses[-1] < losses[0]
    before, rows = states[3].arrays, X - X.mean(axis=0)  # its loss is found in the next round
    loss = 0.0
    for k, (signs, r) in enumerate(zip(before["signs"], before["circulant"], strict=True)):
        matrix = np.array([[r[(i - j) % d] for j in range(d)] for i in range(d)])
        scores = rows * signs @ matrix.T
        codes = np.where(scores >= 0, 1, -1) / np.sqrt(d)
        codes[:, max(0, n_bits - k * d) :] = 0
        loss += ((codes - scores) ** 2).sum() / len(X) + ((matrix @ matrix.T - np.eye(d)) ** 2).sum()
    assert states[4].scalars["loss"] == pytest.approx(loss, rel=1e-9)


@pytest.mark.parametrize(
    ("parameters", "message"), [({"learned": 1}, "learned"), ({"penalty": -1}, "penalty")]
)
def test_bad_parameters(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CBE(**parameters)
