"""BioHash: the published rule written out on whole arrays, and what batches and order do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.biohash import BioHash
from bitfleet.tasks.protocols import Block, RoundState
from bitfleet.tasks.random import stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def published_rule(X: np.ndarray, W: np.ndarray, rate: float, batch: int) -> tuple[np.ndarray, list[int]]:
    """One epoch with dense matrices, p = 2 and no anti-Hebbian unit; also who won."""
    won = []
    for i in range(len(X) // batch):
        V = X[i * batch : (i + 1) * batch].T
        currents = W @ V
        winner = np.zeros_like(currents)
        winner[currents.argmax(axis=0), np.arange(batch)] = 1
        xx = (winner * currents).sum(axis=1)
        ds = winner @ V.T - xx[:, None] * W
        W = W + rate * ds / max(np.abs(ds).max(), 1e-30)
        won += currents.argmax(axis=0).tolist()
    return W, won


def order_of(seed: int, epoch: int, n: int, block_rows: int) -> np.ndarray:
    starts = range(0, n, block_rows)
    leaves = stream(seed, "biohash.leaves", round=epoch).permutation(len(starts))
    parts = []
    for start in np.array(starts)[leaves].tolist():
        size = min(block_rows, n - start)
        parts.append(start + stream(seed, "biohash.rows", round=epoch, block=start).permutation(size))
    return np.concatenate(parts)


@pytest.mark.parametrize("block_rows", [1000, 170, 33, 7])
def test_the_published_rule_epoch_by_epoch(train: Callable, blobs: tuple, block_rows: int) -> None:
    X = blobs[0].astype(np.float64) + 1
    centred = X - X.mean(axis=0)
    method = BioHash(n_bits=40, n_active=4, n_epochs=5, batch_size=50)
    states = train(method, X, seed=2, block_rows=block_rows)
    W = states[1].arrays["weights"]
    for epoch, state in enumerate(states[2:]):
        rows = centred[order_of(2, epoch, len(X), block_rows)]
        W, won = published_rule(rows, W, 0.02 * (1 - epoch / 5), 50)
        np.testing.assert_allclose(state.arrays["weights"], W, rtol=0, atol=1e-11)
        assert state.scalars["n_dead_units"] == 40 - len(set(won))
        assert state.scalars["mean_length"] == pytest.approx(np.linalg.norm(W, axis=1).mean(), rel=1e-9)
    scores = centred @ W.T
    expected = np.zeros(scores.shape, np.uint8)
    np.put_along_axis(expected, np.argsort(-scores, axis=1, kind="stable")[:, :4], 1, axis=1)
    got = unpack_bits(method.encoder(states[-1]).encode(X), 40)
    np.testing.assert_allclose((got * scores).sum(axis=1), (expected * scores).sum(axis=1), rtol=1e-9)


def test_the_objective_is_that_of_the_first_batch_under_the_first_weights(
    train: Callable, blobs: tuple
) -> None:
    X = blobs[0].astype(np.float64)
    states = train(BioHash(n_bits=40, n_active=4, n_epochs=1, batch_size=10_000, center=False), X)
    W = states[0].arrays["weights"]
    scores = X @ W.T
    winners = scores.argmax(axis=1)
    expected = (scores.max(axis=1) / np.linalg.norm(W, axis=1)[winners]).mean()
    assert states[1].scalars["objective"] == pytest.approx(expected, rel=1e-12)


def test_winners_tend_to_length_one(train: Callable) -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(6)[:3], 100, axis=0) + 0.01 * rng.normal(size=(300, 6))
    method = BioHash(n_bits=12, n_active=2, n_epochs=200, center=False, batch_size=20, learning_rate=0.05)
    W = train(method, X)[-1].arrays["weights"]
    winners = np.unique((X @ W.T).argmax(axis=1))
    np.testing.assert_allclose(np.linalg.norm(W[winners], axis=1), 1, atol=0.05)


def test_fewer_rows_than_a_batch_are_one(train: Callable) -> None:
    X = np.random.default_rng(0).normal(size=(7, 5))
    few = BioHash(n_bits=9, n_active=2, n_epochs=3, center=False)
    exact = BioHash(n_bits=9, n_active=2, n_epochs=3, center=False, batch_size=7)
    np.testing.assert_array_equal(train(few, X)[-1].arrays["weights"], train(exact, X)[-1].arrays["weights"])
    assert np.abs(train(few, X)[-1].arrays["weights"] - train(few, X)[0].arrays["weights"]).max() > 0.01


def test_rows_equal_to_the_mean_change_nothing(train: Callable) -> None:
    states = train(BioHash(n_bits=9, n_active=2, n_epochs=3), np.full((50, 4), 0.3))
    np.testing.assert_array_equal(states[1].arrays["weights"], states[-1].arrays["weights"])


def test_one_active_bit_is_the_winner(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(np.float64)
    method = BioHash(n_bits=30, n_active=1, n_epochs=2, center=False)
    state = train(method, X)[-1]
    np.testing.assert_array_equal(
        method.encoder(state).active(X)[:, 0], (X @ state.arrays["weights"].T).argmax(axis=1)
    )


def test_learning_is_sequential() -> None:
    scalars = {
        "phase": "train",
        "first_round": 0,
        "seed": 0,
        "n_rows": 9,
        "n_features": 3,
        "dtype": "float64",
    }
    arrays = {"mean": np.zeros(3), "weights": np.ones((4, 3))}
    accumulator = BioHash(n_bits=4, n_active=1).accumulator(RoundState(0, arrays, scalars))
    assert accumulator.sequential
    with pytest.raises(TypeError, match="cannot be merged"):
        accumulator.merge(accumulator.init(), accumulator.init())
    rows = np.full((9, 3), 1e308)
    with pytest.raises(ValueError, match="finite weights"):
        accumulator.finalize(accumulator.update(accumulator.init(), Block(np.arange(9), rows)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_active": 1024}, "n_active < n_bits"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"batch_size": 0}, "batch_size"),
        ({"n_epochs": 0}, "n_epochs"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"expected {message}"):
        BioHash(**parameters)


def test_on_digits_units_come_nearer_to_the_rows(train: Callable, shared_data: Path) -> None:
    with np.load(shared_data / "mnist.npz") as file:
        X = (file["X"][:2000] / 255).astype(np.float32)
    method = BioHash(n_bits=100, n_active=8, n_epochs=20, n_components=20, batch_size=20)
    values = [s.scalars["objective"] for s in train(method, X, block_rows=512)[2:]]
    assert values[-1] > 1.3 * values[0]
