"""Spectral hashing and shift-invariant kernel hashing: the papers' eigenfunctions, expected distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.arc_encoder import ArcEncoder
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.sklsh import SKLSH
from bitfleet.tasks.methods.spectral_hashing import SpectralHashing, lowest_modes

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_lowest_modes_of_a_box() -> None:
    """Sides 4, 2 and 1: ω/π is q/4, q/2 and q; where two are equal the first component comes first."""
    components, modes = lowest_modes(np.array([4.0, 2.0, 1.0]), 9)
    assert list(zip(components, modes, strict=True)) == [
        (0, 1), (0, 2), (1, 1), (0, 3), (0, 4), (1, 2), (2, 1), (0, 5), (0, 6),
    ]  # fmt: skip
    components, modes = lowest_modes(np.array([0.0, 3.0]), 3)
    assert components.tolist() == [1, 1, 1]
    assert modes.tolist() == [1, 2, 3]


def test_bits_are_the_signs_of_the_eigenfunctions(train: Callable) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((4000, 2)) * [4, 1]  # the paper's uniform rectangle
    method = SpectralHashing(n_bits=5)
    state = train(method, X)[-1]
    bits = unpack_bits(method.encoder(state).encode(X), 5)
    v = (X - X.mean(axis=0)) @ state.arrays["components"]
    low, high = v.min(axis=0), v.max(axis=0)
    components, modes = lowest_modes(high - low, 5)
    assert components.tolist() == [0, 0, 0, 0, 1] or components.tolist() == [0, 0, 0, 1, 0]
    omega = modes * np.pi / (high - low)[components]
    functions = np.sin(np.pi / 2 + omega * (v - low)[:, components])
    clear = np.abs(functions) > 1e-9
    np.testing.assert_array_equal(bits[clear], (functions >= 0)[clear])
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.05  # balanced, as the paper wants
    assert np.abs(np.corrcoef(functions.T) - np.eye(5)).max() < 0.1


@pytest.mark.parametrize("distance", [0.3, 1.0, 2.5])
def test_expected_distance_is_the_papers_series(train: Callable, distance: float) -> None:
    n_bits, gamma = 40_000, 0.8
    X = np.zeros((2, 5))
    X[1, 3] = distance
    method = SKLSH(n_bits=n_bits, gamma=gamma)
    codes = unpack_bits(method.encoder(train(method, X)[-1]).encode(X), n_bits)
    m = np.arange(1, 200)
    series = (1 - np.exp(-((gamma * m * distance) ** 2) / 2)) / (4 * m**2 - 1)
    expected = 8 / np.pi**2 * series.sum()
    assert np.mean(codes[0] != codes[1]) == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(n_bits))


def test_gamma_follows_the_data(train: Callable) -> None:
    X = np.random.default_rng(1).normal(size=(60, 4))
    one = train(SKLSH(n_bits=8), X)[-1].arrays
    large = train(SKLSH(n_bits=8), 1024 * X)[-1].arrays
    np.testing.assert_allclose(one["weights"], 1024 * large["weights"], rtol=1e-9)
    with pytest.raises(ValueError, match="gamma"):
        SKLSH(gamma=0)


def test_arcs() -> None:
    encoder = ArcEncoder(np.zeros(1), np.ones((1, 3)), np.array([0, 0.5, 0]), np.array([0.25, 0.25, 0]))
    x = np.array([[0.0], [0.2], [0.25], [0.3], [0.75], [7.0], [-0.25]])
    bits = unpack_bits(encoder.encode(x), 3).tolist()
    assert bits == [[1, 0, 1], [1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 1, 0], [1, 0, 1], [1, 1, 0]]
    for bad in (np.zeros((2, 2)), np.array([["a"]]), np.zeros(3)):
        with pytest.raises(ValueError, match="expected"):
            encoder.encode(bad)
    with pytest.raises(ValueError, match="row 1 holds NaN"):
        encoder.encode(np.array([[0.0], [np.nan]]))
    with pytest.raises(ValueError, match="finite numbers"):
        ArcEncoder(np.zeros(1), np.full((1, 1), np.inf), np.zeros(1), np.zeros(1))
    with pytest.raises(ValueError, match="1 means"):
        ArcEncoder(np.zeros(2), np.ones((1, 1)), np.zeros(1), np.zeros(1))
