"""ITQ: against an independent iteration on whole arrays, and the properties that the paper proves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.itq import ITQ
from bitfleet.tasks.protocols import DataInfo

if TYPE_CHECKING:
    from collections.abc import Callable


def losses(states: list) -> np.ndarray:
    """All half steps in order."""
    return np.array([s.scalars[key] for s in states if "loss" in s.scalars for key in ("loss_codes", "loss")])


def independent(V: np.ndarray, R: np.ndarray, n_iter: int) -> tuple[np.ndarray, list[float]]:
    """The textbook iteration with everything in memory."""
    history = []
    for _ in range(n_iter):
        B = np.where(V @ R >= 0, 1.0, -1.0)
        history.append(np.sum((B - V @ R) ** 2) / len(V))
        U, _, Wt = np.linalg.svd(V.T @ B, full_matrices=False)
        R = U @ Wt
        history.append(np.sum((B - V @ R) ** 2) / len(V))
    return R, history


@pytest.mark.parametrize("n_bits", [8, 24, 40])
def test_equal_to_the_textbook_iteration(train: Callable, blobs: tuple, n_bits: int) -> None:
    X = blobs[0]
    method = ITQ(n_bits=n_bits, n_iter=15)
    states = train(method, X, block_rows=77)
    assert len(states) == 17
    first, last = states[1].arrays, states[-1].arrays
    centred = X.astype(float) - X.astype(float).mean(axis=0)
    rotation, history = independent(centred @ first["components"], first["weights"], 15)
    np.testing.assert_allclose(last["weights"], rotation, atol=1e-8)
    np.testing.assert_allclose(losses(states), history, rtol=1e-10)
    bits = unpack_bits(method.encoder(states[-1]).encode(X), n_bits)
    np.testing.assert_array_equal(bits, centred @ first["components"] @ rotation >= 0)


@pytest.mark.parametrize("n_bits", [8, 24, 40])
@pytest.mark.parametrize("center", [True, False])
def test_every_half_step_lowers_the_loss(train: Callable, blobs: tuple, n_bits: int, center: bool) -> None:
    X = blobs[0] + np.float32(2)
    states = train(ITQ(n_bits=n_bits, n_iter=30, center=center), X)
    history = losses(states)
    assert (np.diff(history) <= 1e-10 * history[:-1]).all()
    assert history[-1] < history[0]
    for state in states[1:]:
        rotation = state.arrays["weights"]
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(len(rotation)), atol=1e-10)
    if n_bits >= 24:  # all components: nothing is lost, so the components are a rotation of the data
        mean = X.mean(axis=0, dtype=float) if center else 0.0
        assert history[0] == pytest.approx(losses_of_signs(X - mean, states[1]))


def losses_of_signs(centred: np.ndarray, state: object) -> float:
    V = centred @ state.arrays["components"] @ state.arrays["weights"]  # type: ignore[attr-defined]
    return float(np.sum((np.where(V >= 0, 1, -1) - V) ** 2) / len(V))


def test_the_loss_is_finite_where_data_has_no_variance(train: Callable) -> None:
    rng = np.random.default_rng(0)
    constant = np.full((50, 6), np.float32(0.3))
    one_varies = constant.copy()
    one_varies[:, 2] = rng.normal(size=50)
    twice = np.repeat(rng.normal(size=(3, 6)), 20, axis=0)
    for X in (constant, one_varies, twice, constant[:1], rng.normal(size=(3, 6)), np.zeros((9, 6))):
        for n_bits in (4, 6, 9):
            method = ITQ(n_bits=n_bits, n_iter=4)
            states = train(method, X)
            rotation = states[-1].arrays["weights"]
            np.testing.assert_allclose(rotation @ rotation.T, np.eye(len(rotation)), atol=1e-10)
            assert np.isfinite(losses(states)).all()
            codes = method.encoder(states[-1]).encode(X)
            assert len(np.unique(codes, axis=0)) <= len(np.unique(X, axis=0))


def test_a_row_without_variance_gives_all_ones(train: Callable) -> None:
    X = np.full((5, 3), 7.0)
    method = ITQ(n_bits=3, n_iter=2)
    assert method.encoder(train(method, X)[-1]).encode(X).tolist() == [[7]] * 5


def test_more_components_than_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="at most n_components=4, got 5"):
        ITQ(n_bits=4, n_components=5).start(DataInfo(10, 8), 0)
    with pytest.raises(ValueError, match="n_iter"):
        ITQ(n_iter=0)


def test_on_digits_the_loss_falls(train: Callable, shared_data: object) -> None:
    with np.load(shared_data / "mnist.npz") as file:  # type: ignore[operator]
        X = (file["X"][:5000] / 255).astype(np.float32)
    history = losses(train(ITQ(n_bits=32, n_iter=30), X, block_rows=2048))
    assert (np.diff(history) <= 0).all()
    assert history[-1] < 0.9 * history[0]
