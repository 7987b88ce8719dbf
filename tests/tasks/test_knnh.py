"""KNNH: exact neighbours by brute force, their averages, ITQ on these, and rows that have few others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.knnh import KNNH
from bitfleet.tasks.methods.knnh_sums import without_self
from bitfleet.tasks.protocols import DataInfo
from bitfleet.tasks.random import stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def averages(V: np.ndarray, base: np.ndarray, own: np.ndarray, k: int) -> np.ndarray:
    """The mean of each row's k nearest rows of ``base`` other than itself, by full distance matrices."""
    squared = ((V[:, None, :] - base[None]) ** 2).sum(axis=2)
    squared[np.arange(len(V)), own] = np.inf
    nearest = np.argsort(squared, axis=1, kind="stable")[:, : min(k, len(base) - 1)]
    return base[nearest].mean(axis=1)


def itq(V: np.ndarray, R: np.ndarray, n_iter: int) -> np.ndarray:
    for _ in range(n_iter):
        U, _, Wt = np.linalg.svd(V.T @ np.where(V @ R >= 0, 1.0, -1.0), full_matrices=False)
        R = U @ Wt
    return R


def rows(n: int, d: int) -> np.ndarray:
    """Rows without clusters: averages of few kinds would leave the rotation undetermined."""
    return np.random.default_rng(3).normal(size=(n, d)) * np.linspace(3, 1, d) + 2


def step(states: list, key: str) -> Any:
    """The first state with this array."""
    return next(s for s in states if key in s.arrays)


@pytest.mark.parametrize("block_rows", [1000, 77])
@pytest.mark.parametrize("n_bits", [8, 40])
def test_itq_on_averages_of_neighbours(train: Callable, n_bits: int, block_rows: int) -> None:
    X = rows(600, 24)
    method = KNNH(n_bits=n_bits, n_iter=12, n_neighbors=9)
    states = train(method, X, block_rows=block_rows)
    assert len(states) == 1 + 1 + 2 + 12
    state = states[-1]
    V = (X - X.mean(axis=0)) @ state.arrays["components"]
    expected = averages(V, V, np.arange(len(V)), 9)
    np.testing.assert_allclose(step(states, "averages").arrays["averages"], expected, atol=1e-11)
    R = itq(expected, states[1].arrays["weights"], 12)
    np.testing.assert_allclose(state.arrays["weights"], R, atol=1e-8)
    np.testing.assert_array_equal(unpack_bits(method.encoder(state).encode(X), n_bits), V @ R >= 0)


@pytest.mark.parametrize("block_rows", [1000, 77])
def test_some_rows_learn_from_each_other_or_from_all(train: Callable, block_rows: int) -> None:
    X = rows(600, 24)
    chosen = np.sort(stream(5, "knnh.train").choice(len(X), 60, replace=False))
    found = {}
    for source, last_round in (("train", 6), ("all", 7)):
        method = KNNH(n_bits=10, n_iter=3, n_neighbors=6, n_train=60, neighbors_from=source)
        states = train(method, X, seed=5, block_rows=block_rows)
        assert states[-1].round == last_round
        V = (X - X.mean(axis=0)) @ states[-1].arrays["components"]
        base, own = (V[chosen], np.arange(60)) if source == "train" else (V, chosen)
        expected = averages(V[chosen], base, own, 6)
        found[source] = step(states, "averages").arrays["averages"]
        np.testing.assert_allclose(found[source], expected, atol=1e-11)
        R = itq(expected, states[1].arrays["weights"], 3)
        np.testing.assert_allclose(states[-1].arrays["weights"], R, atol=1e-8)
    assert np.abs(found["train"] - found["all"]).max() > 0.1


def test_taking_all_rows_both_sources_are_one(train: Callable, blobs: tuple) -> None:
    X = blobs[0]
    last = [
        train(KNNH(n_bits=6, n_iter=2, neighbors_from=source, n_train=n), X)[-1].arrays["weights"]
        for source, n in (("train", None), ("all", None), ("all", len(X)), ("train", 10**9))
    ]
    for weights in last[1:]:
        np.testing.assert_array_equal(weights, last[0])


def test_the_finished_state_is_itqs(train: Callable, blobs: tuple) -> None:
    states = train(KNNH(n_bits=6, n_iter=3, n_train=50, neighbors_from="all"), blobs[0])
    assert [sorted(set(s.arrays) - {"mean", "components", "weights"}) for s in states] == [
        [], [], ["rows"], ["neighbors"], ["averages"], ["averages"], ["averages"], [],
    ]  # fmt: skip
    assert [("loss" in s.scalars) for s in states] == [False] * 5 + [True] * 3


def test_every_half_step_lowers_the_loss(train: Callable, blobs: tuple) -> None:
    states = train(KNNH(n_bits=16, n_iter=20), blobs[0] + np.float32(2))
    history = [s.scalars[k] for s in states if "loss" in s.scalars for k in ("loss_codes", "loss")]
    assert len(history) == 40
    assert (np.diff(history) <= 1e-10 * np.array(history[:-1])).all()


def test_duplicates_are_neighbours_and_a_row_itself_is_not(train: Callable) -> None:
    X = np.array([[0.0, 0], [0, 0], [0, 0], [9, 0], [9, 3]])
    states = train(KNNH(n_bits=2, n_iter=1, n_neighbors=2, center=False), X, block_rows=2)
    V = X @ states[1].arrays["components"]
    expected = np.stack([V[0], V[0], V[0], (V[4] + V[0]) / 2, (V[3] + V[0]) / 2])
    np.testing.assert_allclose(step(states, "averages").arrays["averages"], expected, atol=1e-14)


@pytest.mark.parametrize(("n", "expected"), [(1, [5.0]), (2, [3.0, 5.0]), (3, [2.0, 3.0, 4.0])])
def test_fewer_rows_than_neighbours(train: Callable, n: int, expected: list[float]) -> None:
    X = np.array([[5.0], [3.0], [1.0]])[:n]
    states = train(KNNH(n_bits=1, n_iter=1, center=False), X)
    sign = states[1].arrays["components"][0, 0]
    np.testing.assert_allclose(step(states, "averages").arrays["averages"][:, 0] * sign, expected)


def test_own_number_is_taken_from_the_list() -> None:
    nearest = np.array([[4, 7, 2], [1, 2, 3], [0, 5, 8]])
    assert without_self(nearest, np.array([7, 1, 9])).tolist() == [[4, 2], [2, 3], [0, 5]]


def test_averages_that_are_too_large_for_a_state_are_refused() -> None:
    info = DataInfo(10**7, 128)
    with pytest.raises(ValueError, match=r"10,000,000 rows of 64 components .* n_train=524288 or less"):
        KNNH().start(info, 0)
    assert KNNH(n_train=524_288).start(info, 0).round == 0
    with pytest.raises(ValueError, match="n_train=1048576 or less"):
        KNNH(n_components=32, n_train=1_048_577).start(info, 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"neighbors_from": "test"}, "neighbors_from to be one of train, all, got 'test'"),
        ({"n_train": 0}, "n_train"),
        ({"n_iter": 0}, "n_iter"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"expected {message}"):
        KNNH(**parameters)


def test_averages_of_digits_are_mostly_of_one_kind(train: Callable, shared_data: Path) -> None:
    """The method's point, by labels that it never sees: averages lie nearer to their class's mean."""
    with np.load(shared_data / "mnist.npz") as file:
        X, y = (file["X"][:2000] / 255).astype(np.float32), file["y"][:2000]
    states = train(KNNH(n_bits=32, n_iter=1), X, block_rows=256)
    V = step(states, "rows").arrays["rows"]
    means = np.stack([V[y == c].mean(axis=0) for c in range(10)])[y]
    spread = [
        np.linalg.norm(rows - means, axis=1).mean()
        for rows in (V, step(states, "averages").arrays["averages"])
    ]
    assert spread[1] < 0.7 * spread[0]
