"""NIBH against linear programs, finite differences and its paper's claim that it distorts less than ITQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.kernels import forces, linf, secants
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods import nibh_admm, nibh_smooth
from bitfleet.tasks.methods.itq import ITQ
from bitfleet.tasks.methods.nibh import MAX_STATE, NIBH
from bitfleet.tasks.methods.nibh_measure import ByHamming, calibration, monotone, through_origin
from bitfleet.tasks.protocols import DataInfo
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, linprog, minimize
from scipy.spatial.distance import pdist

if TYPE_CHECKING:
    from collections.abc import Callable


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1.0, 1.0, -1.0, 2.5, -3.0, 1e-9, 1e9]), min_size=1), st.floats(1e-3, 1e3)
)
def test_the_prox_leaves_what_the_l1_ball_projects(values: list[float], radius: float) -> None:
    vector = np.array(values)
    found = linf.prox_linf(vector, radius)
    t = linf.threshold_reference(np.abs(vector), radius)
    np.testing.assert_allclose(found, np.clip(vector, -t, t), rtol=1e-12, atol=1e-15 * np.abs(vector).max())
    removed = np.abs(vector - found).sum()  # optimality: all the mass, taken from the largest entries alone
    if np.abs(vector).sum() <= radius:
        assert not found.any()
    else:
        assert removed == pytest.approx(radius, rel=1e-6, abs=1e-6 * np.abs(vector).max())


def test_the_prox_minimises() -> None:
    rng = np.random.default_rng(0)
    vector = rng.normal(size=6)

    def value(u: np.ndarray) -> float:
        return float(1.7 * np.abs(u).max() + 0.5 * ((u - vector) ** 2).sum())

    best = value(linf.prox_linf(vector, 1.7))
    for _ in range(20):
        other = minimize(value, rng.normal(size=6), method="Nelder-Mead", options={"maxiter": 4000})
        assert best <= other.fun + 1e-9


def test_secant_kernels_equal_their_references_and_finite_differences() -> None:
    rng = np.random.default_rng(1)
    codes, forces = rng.random((9, 4)), rng.normal(size=25)
    first, second = rng.integers(0, 9, (2, 25))
    v = secants.squares(codes, first, second)
    np.testing.assert_allclose(v, ((codes[first] - codes[second]) ** 2).sum(axis=1), rtol=1e-13)
    np.testing.assert_array_equal(v, secants.squares_reference(codes, first, second))
    pulled = secants.pull(codes, first, second, forces)
    np.testing.assert_allclose(pulled, secants.pull_reference(codes, first, second, forces), rtol=1e-12)

    def value(flat: np.ndarray) -> float:
        return float(forces @ secants.squares(flat.reshape(9, 4), first, second))

    np.testing.assert_allclose(pulled.ravel(), approx_fprime(codes.ravel(), value, 1e-7), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_of_a_batch_equal_their_references(dtype: str) -> None:
    rng = np.random.default_rng(7)
    hamming = (9 * rng.random((40, 40))).astype(dtype)
    hamming[0, :5] = [0, 0.5, 1.5, 9, 8.5]
    distances, table = (hamming / 9 + rng.random((40, 40))).astype(dtype), np.sort(rng.random(10))
    for found, expected in zip(
        forces.tabulate(hamming, distances, 9), forces.tabulate_reference(hamming, distances, 9), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.sum() == pytest.approx(distances[np.triu_indices(40, 1)].sum(dtype=float))
    for power in (2, 4, 8):
        arguments = hamming, distances, table, np.maximum(np.diff(table), 0.01), power
        found, mass = forces.calibrated_forces(*arguments)
        expected, expected_mass = forces.calibrated_forces_reference(*arguments)
        assert found.dtype == dtype
        tolerance = 1e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
        assert mass == pytest.approx(expected_mass, rel=tolerance)


def some_pairs(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    n_bits, n = int(rng.integers(1, 12)), int(rng.integers(1, 40))
    hamming = rng.integers(0, n_bits + 1, n) // int(rng.integers(1, 3))
    return hamming, rng.random(n) * rng.choice([0.1, 1, 5]) * (hamming + rng.random()), n_bits


def test_distortions_equal_linear_programs() -> None:
    rng = np.random.default_rng(2)
    for _ in range(60):
        h, c, n_bits = some_pairs(rng)
        found = ByHamming.of_pairs(h, c, n_bits)
        distortion, scale = through_origin(found.least, found.largest)
        one = np.ones(len(h))
        above, below = np.column_stack([h, -one]), np.column_stack([-h, -one])
        program = linprog([0, 1], np.vstack([above, below]), np.concatenate([c, -c]), bounds=[(0, None)] * 2)
        assert distortion == pytest.approx(program.fun, rel=1e-9, abs=1e-12)
        assert np.abs(scale * h - c).max() == pytest.approx(distortion, rel=1e-9)
        values = np.eye(n_bits + 1)[h]  # the monotone fit: a value for each h, each at least the one before
        rising = np.hstack([np.diff(-np.eye(n_bits + 1), axis=0), np.zeros((n_bits, 1))])
        sides = np.vstack([np.column_stack([values, -one]), np.column_stack([-values, -one]), rising])
        limits = np.concatenate([c, -c, np.zeros(n_bits)])
        objective = np.append(np.zeros(n_bits + 1), 1)
        program = linprog(objective, sides, limits, bounds=[(None, None)] * (n_bits + 2))
        assert monotone(found.least, found.largest) == pytest.approx(program.fun, rel=1e-9, abs=1e-12)


def test_the_calibration_is_the_best_nondecreasing_fit() -> None:
    rng = np.random.default_rng(3)
    h, c, n_bits = rng.integers(2, 9, 50), rng.random(50), 12
    found = ByHamming.of_pairs(h, c, n_bits)
    table = calibration(found.pairs, found.total)
    assert (np.diff(table) >= 0).all()
    assert (table[:2] == table[2]).all()
    assert (table[9:] == table[8]).all()
    best = ((table[h] - c) ** 2).sum()
    for _ in range(300):
        other = np.maximum.accumulate(table + 0.05 * rng.normal(size=n_bits + 1))
        assert best <= ((other[h] - c) ** 2).sum()
    assert not calibration(np.zeros(4), np.zeros(4)).any()


@pytest.mark.parametrize(
    "loss",
    [
        nibh_smooth.Loss(3.0, 2),
        nibh_smooth.Loss(3.0, 4),
        nibh_smooth.Loss(3.0, None),
        nibh_smooth.Loss(3.0, 2, calibrated=True),
        nibh_smooth.Loss(3.0, 4, calibrated=True, share=0.5),
    ],
    ids=repr,
)
def test_a_step_goes_down_the_gradient_of_finite_differences(loss: nibh_smooth.Loss) -> None:
    """The first step of Adam is the gradient's sign; its momentum is a tenth of the gradient."""
    rng = np.random.default_rng(4)
    rows, weights = rng.normal(size=(12, 5)), rng.normal(size=(5, 6)) / 2
    distances = np.sqrt(((rows[:, None] - rows) ** 2).sum(axis=2)) / 2
    start = nibh_smooth.Iterate.of({"weights": weights}, 0.4)
    moved = nibh_smooth.step(start, loss, rows, distances, 0, 0.0)
    i, j = np.triu_indices(12, 1)

    def value(flat: np.ndarray) -> float:
        """What the forces are the derivative of, λ, g's table and slope and all masses held."""
        t = np.tanh(1.5 * rows @ flat.reshape(5, 6))
        if loss.calibrated:
            return float((frozen * 0.5 * (6 - t @ t.T)[i, j]).sum())
        return float((frozen * 0.25 * ((t[i] - t[j]) ** 2).sum(axis=1)).sum())

    t = np.tanh(1.5 * rows @ weights)
    if loss.calibrated:
        h = 0.5 * (6 - t @ t.T)[i, j]
        places = (h + 0.5).astype(int)
        table = calibration(np.bincount(places, minlength=7), np.bincount(places, distances[i, j], 7))
        below = np.minimum(h.astype(int), 5)
        rise = np.diff(table)
        error = table[below] + rise[below] * (h - below) - distances[i, j]
        mean = [rise[max(0, k - 2) : k + 3].mean() for k in range(6)]
        force = error ** (loss.power - 1) * np.maximum(mean, 1e-4)[below]  # type: ignore[operator]
        frozen = force / np.abs(force).sum()
        straight = 0.4 * h - distances[i, j]
        frozen += loss.share * straight / np.abs(straight).sum()
    else:
        h = 0.25 * ((t[i] - t[j]) ** 2).sum(axis=1)
        error = 0.4 * h - distances[i, j]
        force = (
            np.exp(20 * np.abs(error)) * np.sign(error) if loss.power is None else error ** (loss.power - 1)
        )
        frozen = 0.4 * force / np.abs(force).sum()
    gradient = approx_fprime(weights.ravel(), value, 1e-7)
    np.testing.assert_allclose(moved.momentum.ravel(), 0.1 * gradient, atol=1e-6)
    assert (np.sign(weights - moved.weights).ravel() == np.sign(gradient)).all()


def test_turns_of_admm_lower_the_augmented_lagrangian_and_the_literal_sign_does_not() -> None:
    rows = np.random.default_rng(5).normal(size=(30, 10)) / 3
    i, j = np.triu_indices(30, 1)
    problem = nibh_admm.Secants(rows, i, j, pdist(rows))
    weights = np.random.default_rng(6).normal(size=(10, 8))
    now = nibh_admm.begin(problem, weights, 8.0)
    start = np.abs(now.scale * problem.soft(now.weights, 8.0)[1] - problem.distances).max()
    for _ in range(40):
        now = nibh_admm.turn(problem, now, 8.0)
    projections = rows @ now.weights
    np.testing.assert_allclose((projections**2).mean(axis=0), 1, rtol=1e-9)
    v = problem.soft(now.weights, 8.0)[1]
    assert np.abs(now.scale * v - problem.distances).max() < 0.75 * start
    assert np.abs(now.residual - now.scale * v + problem.distances).max() < 0.3 * start


def unit(rows: np.ndarray) -> np.ndarray:
    rows = rows - rows.mean(axis=0)
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def exact_distortion(method: object, state: object, X: np.ndarray) -> float:
    """δ by brute force over the codes that users get."""
    codes = unpack_bits(method.encoder(state).encode(X), method.n_bits).astype(int)  # type: ignore[attr-defined]
    hamming = (codes[:, None] != codes).sum(axis=2)[np.triu_indices(len(X), 1)]
    found = ByHamming.of_pairs(hamming, pdist(X), method.n_bits)  # type: ignore[attr-defined]
    return through_origin(found.least, found.largest)[0]


@pytest.mark.parametrize("solver", ["smooth", "admm"])
def test_distortion_is_far_below_itq(train: Callable, solver: str) -> None:
    """On the paper's random vectors; the notes of the module say by how much on more data."""
    X = unit(np.random.default_rng(21).normal(size=(100, 100)))
    method, itq = NIBH(n_bits=30, solver=solver), ITQ(n_bits=30)
    state = train(method, X)[-1]
    assert state.scalars["distortion"] == pytest.approx(exact_distortion(method, state, X), rel=1e-9)
    rotations = [exact_distortion(itq, train(itq, X, seed=seed)[-1], X) for seed in range(10)]
    assert state.scalars["distortion"] < 0.8 * min(rotations)


def test_the_best_candidate_is_kept(train: Callable) -> None:
    X = unit(np.random.default_rng(22).normal(size=(60, 20)))
    states = train(NIBH(n_bits=12, n_iter=6, n_steps=20), X)
    found = [state.scalars["distortion"] for state in states if "distortion" in state.scalars]
    assert (np.diff(found) <= 0).all()
    assert sorted(states[-1].arrays) == ["calibration", "components", "mean", "weights"]


def test_scale_does_not_matter_and_is_reported(train: Callable) -> None:
    X = unit(np.random.default_rng(23).normal(size=(50, 20)))
    method = NIBH(n_bits=12, n_iter=2, n_steps=20)
    one, large = (train(method, scale * X)[-1] for scale in (1.0, 2.0**20))
    np.testing.assert_allclose(one.arrays["weights"] @ np.eye(12), large.arrays["weights"], rtol=1e-9)
    for name in (
        "distortion",
        "distortion_scale",
        "distortion_monotone",
        "distortion_constant",
    ):
        assert large.scalars[name] == pytest.approx(2.0**20 * one.scalars[name], rel=1e-9)
    np.testing.assert_allclose(large.arrays["calibration"], 2.0**20 * one.arrays["calibration"], rtol=1e-9)
    constant = np.ptp(pdist(X)) / 2
    assert one.scalars["distortion_constant"] == pytest.approx(constant, rel=1e-9)
    assert one.scalars["least_bits"] == pytest.approx(pdist(X).mean() ** 2 / pdist(X).var(), rel=1e-9)
    assert one.scalars["distortion_monotone"] <= min(one.scalars["distortion"], constant) + 1e-12


def test_batches_learn_the_calibration_of_all_pairs(train: Callable) -> None:
    rng = np.random.default_rng(24)
    X = unit(rng.normal(size=(10, 16))[rng.integers(0, 10, 600)] + 0.5 * rng.normal(size=(600, 16)))
    method = NIBH(n_bits=32, preset="calibrated", batch_size=150, n_iter=3, n_steps=40)
    state = train(method, X)[-1]
    table = state.arrays["calibration"]
    codes = unpack_bits(method.encoder(state).encode(X), 32).astype(int)
    hamming = (codes[:, None] != codes).sum(axis=2)[np.triu_indices(600, 1)]
    distances = pdist(X)
    assert np.corrcoef(table[hamming], distances)[0, 1] > 0.8
    fitted = ByHamming.of_pairs(hamming, distances, 32)
    np.testing.assert_allclose(table, calibration(fitted.pairs, fitted.total), atol=1e-6)
    assert (np.diff(table) >= 0).all()


def test_degenerate_points(train: Callable) -> None:
    rng = np.random.default_rng(25)
    few = {
        "one": rng.normal(size=(1, 6)),
        "two": rng.normal(size=(2, 6)),
        "equal": np.full((9, 6), 3.0),
        "twice": np.repeat(rng.normal(size=(4, 6)), 2, axis=0),
        "opposite": np.concatenate([np.eye(6), -np.eye(6)]),
        "tiny": 1e-8 * rng.normal(size=(9, 6)),
        "huge": 1e8 * rng.normal(size=(9, 6)),
    }
    for X in few.values():
        for kw in (
            {},
            {"solver": "admm"},
            {"preset": "calibrated"},
            {"preset": "isometric", "batch_size": 4},
        ):
            method = NIBH(n_bits=9, n_iter=2, n_steps=5, **kw)
            state = train(method, X)[-1]
            assert all(np.isfinite(array).all() for array in state.arrays.values())
            codes = method.encoder(state).encode(X)
            assert len(np.unique(codes, axis=0)) <= len(np.unique(X, axis=0))
    alike = train(NIBH(n_bits=9, n_iter=1, n_steps=5), few["equal"])[-1]
    assert alike.scalars["distortion"] == 0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"preset": "best"}, "preset to be one of"),
        ({"solver": "adam"}, "solver to be one of"),
        ({"target": "cosine"}, "target to be one of"),
        ({"slope": 0}, "slope to be a number > 0"),
        ({"slope": True}, "slope"),
        ({"p": 3}, "p to be even"),
        ({"w": 0.5}, "preset 'paper' has none"),
        ({"w": -1, "preset": "calibrated"}, "w to be a number >= 0"),
        ({"solver": "admm", "preset": "calibrated"}, "take solver='smooth'"),
        ({"batch_size": 1}, "batch_size"),
        ({"n_steps": 0}, "n_steps"),
    ],
)
def test_bad_parameters(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NIBH(**parameters)


def test_too_many_points_are_refused_with_advice() -> None:
    NIBH(n_train=MAX_STATE // 128).start(DataInfo(10**9, 500), 0)
    with pytest.raises(ValueError, match="take n_train=262144 or less"):
        NIBH(n_train=MAX_STATE // 128 + 1).start(DataInfo(10**9, 500), 0)
