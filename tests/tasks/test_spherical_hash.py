"""SphericalHash: Algorithm 2 line by line, both half steps' objective, and centres without rows."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.spherical_hash import SphericalHash
from bitfleet.tasks.random import stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def algorithm_2(X: np.ndarray, W: np.ndarray, epochs: int) -> list[np.ndarray]:
    """The paper's listing, row by row; its code's rule for empty clusters."""
    history = []
    for _ in range(epochs):
        M = np.zeros_like(W)
        for x in X:
            x_ = x / np.linalg.norm(x)
            s = np.zeros(len(W))
            s[np.argmax(W @ x_)] = 1
            M += np.outer(s, x_)
        lengths = np.linalg.norm(M, axis=1, keepdims=True)
        lengths[lengths == 0] = 1
        W = M / lengths
        history.append(W)
    return history


def objective(X: np.ndarray, W: np.ndarray) -> float:
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    return float((unit @ W.T).max(axis=1).mean())


@pytest.mark.parametrize("block_rows", [1000, 83])
@pytest.mark.parametrize("n_bits", [30, 300])
def test_algorithm_2_epoch_by_epoch(train: Callable, blobs: tuple, n_bits: int, block_rows: int) -> None:
    X = blobs[0].astype(np.float64) + 1
    centred = X - X.mean(axis=0)
    method = SphericalHash(n_bits=n_bits, n_active=5, n_epochs=12)
    states = train(method, X, block_rows=block_rows)
    first = states[1].arrays["weights"]
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-14)
    for state, W in zip(states[2:], algorithm_2(centred, first, 12), strict=True):
        np.testing.assert_allclose(state.arrays["weights"], W, rtol=0, atol=1e-12)
        assert state.scalars["n_dead_units"] == int((np.abs(W).max(axis=1) == 0).sum())
    scores = centred @ W.T
    expected = np.zeros(scores.shape, np.uint8)
    np.put_along_axis(expected, np.argsort(-scores, axis=1, kind="stable")[:, :5], 1, axis=1)
    got = unpack_bits(method.encoder(states[-1]).encode(X), n_bits)
    np.testing.assert_allclose((got * scores).sum(axis=1), (expected * scores).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("dead_units", ["zero", "keep", "reseed"])
def test_no_half_step_lowers_the_objective(train: Callable, blobs: tuple, dead_units: str) -> None:
    X = blobs[0].astype(np.float64)
    method = SphericalHash(n_bits=40, n_active=3, n_epochs=15, dead_units=dead_units)
    states = train(method, X, block_rows=90)
    history = [s.scalars[k] for s in states[2:] for k in ("objective_codes", "objective")]
    assert (np.diff(history) >= -1e-12).all()
    assert history[-1] > history[0] + 0.01
    centred = X - X.mean(axis=0)
    for before, after in pairwise(states[1:]):
        assert after.scalars["objective_codes"] == pytest.approx(objective(centred, before.arrays["weights"]))


def test_float32_blocks_find_the_same_centres(train: Callable, blobs: tuple) -> None:
    X = blobs[0]
    method = SphericalHash(n_bits=40, n_active=3, n_epochs=8)
    single, double = train(method, X)[-1], train(method, X.astype(np.float64))[-1]
    np.testing.assert_allclose(single.arrays["weights"], double.arrays["weights"], atol=1e-6)


def two_directions() -> np.ndarray:
    """Rows in two directions, so that all centres but two die in the first pass."""
    rng = np.random.default_rng(4)
    return rng.uniform(1, 2, size=(60, 1)) * np.repeat([[1.0, 0, 0, 0], [0, 1.0, 0, 0]], 30, axis=0)


@pytest.mark.parametrize("block_rows", [60, 7])
def test_what_becomes_of_dead_units(train: Callable, block_rows: int) -> None:
    X = two_directions()

    def run(dead_units: str) -> list:
        method = SphericalHash(n_bits=9, n_active=2, n_epochs=3, dead_units=dead_units, center=False)
        return train(method, X, block_rows=block_rows)

    zero, keep, reseed = run("zero"), run("keep"), run("reseed")
    start = keep[0].arrays["weights"]
    alive = np.unique(start[:, :2].argmax(axis=0))
    dead = np.setdiff1d(np.arange(9), alive)
    for states in (zero, keep, reseed):
        assert states[1].scalars["n_dead_units"] == len(dead)
    assert not zero[-1].arrays["weights"][dead].any()
    np.testing.assert_array_equal(keep[-1].arrays["weights"][dead], start[dead])
    np.testing.assert_array_equal(reseed[1].arrays["weights"][dead], start[dead])
    rows = stream(0, "spherical_hash.reseed", round=1).integers(60, size=9)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(reseed[2].arrays["weights"][dead], unit[rows[dead]], atol=1e-15)
    np.testing.assert_array_equal(reseed[2].arrays["dead"], np.isin(np.arange(9), dead))


def test_reseeding_brings_units_to_life(train: Callable) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6)) * 0.2 + [5, 0, 0, 0, 0, 0]  # one narrow cone
    for dead_units, least, most in (("zero", 15, 60), ("reseed", 0, 2)):
        method = SphericalHash(n_bits=60, n_active=2, n_epochs=20, dead_units=dead_units, center=False)
        assert least <= train(method, X)[-1].scalars["n_dead_units"] <= most


def test_rows_without_direction_belong_to_no_centre(train: Callable) -> None:
    X = np.concatenate([two_directions(), np.zeros((5, 4))])
    method = SphericalHash(n_bits=9, n_active=2, n_epochs=2, center=False)
    with_zeros, without = train(method, X, block_rows=13)[-1], train(method, X[:60], block_rows=13)[-1]
    np.testing.assert_allclose(with_zeros.arrays["weights"], without.arrays["weights"], atol=1e-15)
    assert with_zeros.scalars["n_dead_units"] == without.scalars["n_dead_units"]
    assert method.encoder(with_zeros).active(X)[-1].tolist() == [0, 1]
    nothing = train(method, np.zeros((5, 4)))[-1]
    assert nothing.scalars["n_dead_units"] == 9
    assert nothing.scalars["objective"] == 0


def test_lengths_of_rows_do_not_matter(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(np.float64)
    method = SphericalHash(n_bits=40, n_active=1, n_epochs=5, center=False)
    scale = np.random.default_rng(0).choice([2.0**-600, 0.25, 8.0, 2.0**500], size=(len(X), 1))
    plain, scaled = train(method, X)[-1], train(method, X * scale)[-1]
    np.testing.assert_allclose(plain.arrays["weights"], scaled.arrays["weights"], atol=1e-12)
    nearest = method.encoder(plain).active(X)[:, 0]  # n_active = 1: the code is the cluster
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_array_equal(nearest, (unit @ plain.arrays["weights"].T).argmax(axis=1))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_active": 1024}, "n_active < n_bits"),
        ({"n_epochs": 0}, "n_epochs"),
        ({"dead_units": "kill"}, "dead_units to be one of zero, keep, reseed, got 'kill'"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"expected {message}"):
        SphericalHash(**parameters)


def test_more_features_than_bits_are_reduced_first(train: Callable, blobs: tuple) -> None:
    state = train(SphericalHash(n_bits=16, n_active=4, n_epochs=1), blobs[0])[-1]
    assert state.arrays["components"].shape == (24, 4)


def test_digits_reach_a_local_maximum(train: Callable, shared_data: Path) -> None:
    with np.load(shared_data / "mnist.npz") as file:
        X = (file["X"][:2000] / 255).astype(np.float32)
    states = train(SphericalHash(n_bits=64, n_active=8, n_epochs=30), X, block_rows=512)
    values = np.array([s.scalars["objective"] for s in states[2:]])
    assert (np.diff(values) >= -1e-9).all()
    assert values[-1] - values[-2] < 1e-4 < values[-1] - values[0]
