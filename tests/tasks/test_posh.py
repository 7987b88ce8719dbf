"""POSH: each schedule against a plain transcription, and what is promised of unusual data."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.posh import POSH
from bitfleet.tasks.protocols import Block, DataInfo, LeafPlan, RoundState
from bitfleet.tasks.random import stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def wta(y: np.ndarray, n_active: int) -> np.ndarray:
    h = np.zeros(len(y))
    h[np.argsort(-y, kind="stable")[:n_active]] = 1
    return h


def procrustes(M: np.ndarray) -> np.ndarray:
    U, _, Vt = np.linalg.svd(M, full_matrices=False)
    return U @ Vt


def algorithm_1(
    X: np.ndarray, W: np.ndarray, n_active: int, epochs: int, batch: int
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The paper's listing, line by line."""
    M = W.copy()
    for _ in range(epochs):
        for i, x in enumerate(X, start=1):
            s = wta(W @ x, n_active)
            M = M + np.outer(s, x)
            if i % batch == 0:
                W = procrustes(M)
                yield "step", W, M
        yield "epoch", W, M


def steps_of(method: POSH, X: np.ndarray, state: RoundState) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Our accumulator fed with blocks of one batch each."""
    assert method.batch_size is not None
    while not method.done(state):
        accumulator = method.accumulator(state)
        sums = accumulator.init()
        for start in range(0, len(X), method.batch_size):
            part = X[start : start + method.batch_size]
            sums = accumulator.update(sums, Block(np.arange(len(part)), part))
            if len(part) == method.batch_size:
                now = accumulator.finalize(sums)
                yield "step", now["weights"].copy(), now["memory"].copy()
        state = method.advance(state, accumulator.finalize(sums))
        yield "epoch", state.arrays["weights"], state.arrays["memory"]


def rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.geomspace(1, 1e-3, d) + rng.normal(size=d)
    X[:, d // 2] = 0.25  # a dead feature
    return X


def test_algorithm_1_step_by_step(train: Callable) -> None:
    X = rows(230, 20)
    method = POSH(n_bits=64, n_active=6, schedule="paper", n_epochs=3, batch_size=50)
    states = train(method, X, block_rows=230)
    expected = algorithm_1(X - X.mean(axis=0), states[1].arrays["weights"], 6, 3, 50)
    pairs = zip(steps_of(method, X, states[1]), expected, strict=True)
    for (kind, W, M), (kind_, W_, M_) in pairs:
        assert kind == kind_
        np.testing.assert_allclose(W, W_, rtol=0, atol=1e-6)
        np.testing.assert_allclose(M, M_, rtol=0, atol=1e-6)
    np.testing.assert_allclose(states[-1].arrays["weights"], W_, rtol=0, atol=1e-6)


@pytest.mark.parametrize("block_rows", [1, 7, 49, 50, 101, 1000])
def test_batches_of_algorithm_1_cross_blocks(train: Callable, block_rows: int) -> None:
    X = rows(230, 20)
    method = POSH(n_bits=64, n_active=6, schedule="paper", n_epochs=2, batch_size=50)
    states = train(method, X, block_rows=block_rows)
    assert len(states) == 4
    *_, (_, W, M) = algorithm_1(X - X.mean(axis=0), states[1].arrays["weights"], 6, 2, 50)
    np.testing.assert_allclose(states[-1].arrays["weights"], W, rtol=0, atol=1e-6)
    np.testing.assert_allclose(states[-1].arrays["memory"], M, rtol=0, atol=1e-6)


def test_algorithm_1_on_digits_with_dead_pixels(train: Callable, shared_data: Path) -> None:
    with np.load(shared_data / "mnist.npz") as file:
        X = file["X"][:250] / 255
    method = POSH(n_bits=1024, n_active=32, schedule="paper", n_epochs=1)
    states = train(method, X, block_rows=130)
    *_, (_, W, _) = algorithm_1(X - X.mean(axis=0), states[1].arrays["weights"], 32, 1, 100)
    np.testing.assert_allclose(states[-1].arrays["weights"], W, rtol=0, atol=1e-6)


def test_the_first_weights_are_the_orthonormal_factor_of_normal_numbers(train: Callable) -> None:
    state = train(POSH(n_bits=64, n_active=6, n_epochs=1), rows(100, 20), seed=5)[1]
    drawn = stream(5, "posh.weights").standard_normal((64, 20))
    np.testing.assert_allclose(state.arrays["weights"], procrustes(drawn), atol=1e-12)


def passes_with_reset(
    X: np.ndarray, W: np.ndarray, n_active: int, epochs: int
) -> tuple[np.ndarray, list[float]]:
    length, history = np.sqrt(np.mean(np.sum(X**2, axis=1))), []
    for _ in range(epochs):
        H = np.stack([wta(W @ x, n_active) for x in X])
        history.append(np.sum((H - X @ W.T) ** 2) / len(X))
        W = procrustes(H.T @ X + 1e-3 * length * W)
        history.append(np.sum((H - X @ W.T) ** 2) / len(X))
    return W, history


def objectives(states: list[RoundState]) -> np.ndarray:
    keys = ("objective_codes", "objective")
    return np.array([s.scalars[key] for s in states if "objective" in s.scalars for key in keys], float)


@pytest.mark.parametrize("n_components", [None, 5, 0.9])
def test_reset_against_a_transcription(train: Callable, n_components: Any) -> None:
    X = rows(300, 20)
    method = POSH(n_bits=64, n_active=6, n_epochs=6, n_components=n_components)
    states = train(method, X, block_rows=70)
    Z = X - X.mean(axis=0)
    if n_components is not None:
        Z = Z @ states[1].arrays["components"]
    W, history = passes_with_reset(Z, states[1].arrays["weights"], 6, 6)
    np.testing.assert_allclose(states[-1].arrays["weights"], W, rtol=0, atol=1e-6)
    np.testing.assert_allclose(objectives(states), history, rtol=1e-9)
    codes = np.stack([wta(W @ z, 6) for z in Z])
    np.testing.assert_array_equal(unpack_bits(method.encoder(states[-1]).encode(X), 64), codes)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_reset_lowers_the_objective_in_every_half_step(train: Callable, blobs: tuple, dtype: str) -> None:
    states = train(POSH(n_bits=128, n_active=8, n_epochs=15), blobs[0].astype(dtype))
    history = objectives(states)
    assert (np.diff(history) <= 1e-6 * history[:-1]).all()
    assert history[-1] < history[1]
    for state in states[1:]:
        W = state.arrays["weights"]
        np.testing.assert_allclose(W.T @ W, np.eye(24), atol=1e-9)
    assert 8 <= states[-1].scalars["effective_bits"] <= states[-1].scalars["live_bits"] <= 128


def test_bits_in_use_are_counted(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(np.float64)
    before, after = train(POSH(n_bits=128, n_active=8, n_epochs=3), X)[-2:]
    codes = np.stack([wta(before.arrays["weights"] @ z, 8) for z in X - X.mean(axis=0)])
    shares = codes.mean(axis=0) / 8  # of all ones
    assert after.scalars["live_bits"] == np.count_nonzero(shares) < 128
    assert after.scalars["effective_bits"] == pytest.approx(1 / np.sum(shares**2))


def test_the_unit_of_the_data_does_not_matter(train: Callable, blobs: tuple) -> None:
    method = POSH(n_bits=128, n_active=8, n_epochs=4)
    expected = train(method, blobs[0])[-1].arrays["weights"]
    for exponent in (-60, 60):
        scaled = train(method, np.ldexp(blobs[0], exponent))[-1].arrays["weights"]
        np.testing.assert_allclose(scaled, expected, rtol=0, atol=1e-9)


def test_union_visits_every_leaf_once_a_pass_and_forgets(train: Callable) -> None:
    X = rows(3050, 12)
    method = POSH(n_bits=64, n_active=6, schedule="union", n_epochs=2, forget=0.25)
    plan = LeafPlan(len(X), 200)
    states = train(method, X, block_rows=200)
    Z = X - X.mean(axis=0)
    W, M = states[1].arrays["weights"], np.zeros((64, 12))
    seen: list[list[int]] = [[], []]
    for before, after in pairwise(states[1:]):
        addresses = method.blocks(before, plan)
        assert addresses == sorted(addresses)
        taken = np.concatenate([np.arange(a.start, a.stop) for a in addresses])
        assert len(taken) >= 1000
        seen[before.scalars.get("epoch", 0)].extend(taken)  # type: ignore[index]
        part = Z[taken]
        total = sum(np.outer(wta(W @ z, 6), z) for z in part)
        M = 0.75 * M + total
        W = procrustes(M + 1e-3 * np.sqrt(np.mean(np.sum(part**2, axis=1))) * W)
        np.testing.assert_allclose(after.arrays["memory"], M, rtol=0, atol=1e-6)
        np.testing.assert_allclose(after.arrays["weights"], W, rtol=0, atol=1e-6)
    assert [sorted(rows_of_pass) for rows_of_pass in seen] == [list(range(3050))] * 2
    assert seen[0] != seen[1]
    assert states[-1].scalars["epoch"] == 2


def test_union_takes_a_fifth_of_large_data_a_step() -> None:
    method = POSH(schedule="union")
    assert method.min_leaves == 5
    moments = {"mean": np.zeros(8), "covariance": np.eye(8)}
    state = method.start(DataInfo(10**6, 8), 0, moments)
    plan = LeafPlan(10**6, 8192)
    assert sum(len(leaf) for leaf in method.blocks(state, plan)) >= 200_000  # type: ignore[arg-type]
    assert method.rounds(state, plan) in (40, 50)


def test_reset_in_batches_is_union_that_forgets_all(train: Callable) -> None:
    X = rows(600, 12)
    common: dict[str, Any] = {"n_bits": 64, "n_active": 6, "batch_size": 200, "n_epochs": 3}
    ours = train(POSH(schedule="reset", **common), X, block_rows=50)
    same = train(POSH(schedule="union", forget=1.0, **common), X, block_rows=50)
    assert len(ours) == len(same) == 2 + 9
    np.testing.assert_array_equal(ours[-1].arrays["weights"], same[-1].arrays["weights"])


def test_more_features_than_bits_are_reduced_to_n_active_components(train: Callable, blobs: tuple) -> None:
    state = train(POSH(n_bits=16, n_active=4, n_epochs=2), blobs[0])[-1]
    assert state.arrays["components"].shape == (24, 4)
    assert state.arrays["weights"].shape == (16, 4)
    assert "basis" not in state.arrays
    with pytest.raises(ValueError, match="at most n_components=16, got 17"):
        POSH(n_bits=16, n_active=4, n_components=17).start(DataInfo(100, 24), 0)


@pytest.mark.parametrize("schedule", ["reset", "union", "paper"])
def test_degenerate_data_gives_valid_codes(train: Callable, schedule: str) -> None:
    rng = np.random.default_rng(0)
    constant = np.full((40, 6), np.float32(0.3))
    one_varies = constant.copy()
    one_varies[:, 2] = rng.normal(size=40)
    few = np.repeat(rng.normal(size=(3, 6)), 5, axis=0)
    for X in (constant, one_varies, few, constant[:2], few[:1], np.zeros((9, 6), np.float32)):
        for n_bits in (5, 6, 12):
            batch = {"batch_size": 1} if schedule == "paper" else {}
            method = POSH(n_bits=n_bits, n_active=2, schedule=schedule, n_epochs=3, **batch)
            states = train(method, X, block_rows=4)
            W = states[-1].arrays["weights"]
            np.testing.assert_allclose(W.T @ W, np.eye(W.shape[1]), atol=1e-9)
            assert all(np.isfinite(s.scalars["objective"]) for s in states if "objective" in s.scalars)  # type: ignore[arg-type]
            bits = unpack_bits(method.encoder(states[-1]).encode(X), n_bits)
            assert (bits.sum(axis=1) == 2).all()
            assert len(np.unique(bits, axis=0)) <= len(np.unique(X, axis=0))


def test_numbers_that_overflow_the_scores_are_an_error_not_a_code() -> None:
    method = POSH(n_bits=8, n_active=2)
    moments = {"mean": np.zeros(3), "covariance": np.eye(3)}
    state = method.start(DataInfo(2, 3), 0, moments)
    accumulator = method.accumulator(state)
    X = np.full((2, 3), np.finfo(np.float32).max)
    with np.errstate(all="ignore"):
        sums = accumulator.update(accumulator.init(), Block(np.arange(2), -X * X))
    with pytest.raises(ValueError, match="huge numbers"):
        accumulator.finalize(sums)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"schedule": "often"}, "expected schedule to be one of auto, reset, union, paper"),
        ({"batch_size": 1000}, "batch_size >= 1024"),
        ({"batch_size": 100, "schedule": "union"}, "about 200 remembered rows"),
        ({"n_epochs": 0}, "expected n_epochs"),
        ({"forget": -0.1}, "expected forget"),
        ({"n_bits": 32}, "n_active < n_bits"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        POSH(**parameters)


def test_algorithm_1_needs_a_full_batch_and_has_no_merge(train: Callable) -> None:
    method = POSH(schedule="paper")
    assert method.min_leaves == 1
    with pytest.raises(ValueError, match="learns after every 100 rows, but there are 99"):
        method.start(DataInfo(99, 5), 0)
    state = method.start(DataInfo(100, 5), 0, {"mean": np.zeros(5), "covariance": np.eye(5)})
    accumulator = method.accumulator(state)
    assert accumulator.sequential
    with pytest.raises(TypeError, match="sequential"):
        accumulator.merge(accumulator.init(), accumulator.init())


def test_on_digits_the_objective_falls_as_measured_with_the_reference(
    train: Callable, shared_data: Path
) -> None:
    with np.load(shared_data / "mnist.npz") as file:
        X = (file["X"][:5000] / 255).astype(np.float32)
    for schedule, expected in [("reset", {1: 33.24, 3: 24.97}), ("union", {5: 24.25, 15: 21.70})]:
        batch = 1000 if schedule == "union" else None
        method = POSH(n_components=64, schedule=schedule, batch_size=batch, n_epochs=4)
        codes = objectives(train(method, X, block_rows=1000))[::2]  # of weights k, with codes of their own
        for k, value in expected.items():
            assert codes[k] == pytest.approx(value, rel=0.04)
