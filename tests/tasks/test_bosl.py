"""BOSL against brute force: n × n objective, finite differences, L-BFGS-B, exhaustive codes, lstsq."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.methods.bosl import BOSL, MOST_ROWS
from bitfleet.tasks.methods.bosl_solver import best_codes, descend, lagrangian, target_of
from bitfleet.tasks.protocols import DataInfo
from scipy.optimize import approx_fprime, minimize

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfleet.tasks.protocols import RoundState

PENALTY = 1.3


def problem(n: int, b: int, r: int, n_active: int, dtype: str = "float64") -> tuple[np.ndarray, ...]:
    """Unit rows, relaxed codes, multipliers and the target of the best codes."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(n, r))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    lifted, multipliers = rng.random((n, b)), 0.3 * rng.normal(size=(n, b))
    rows, lifted, multipliers = (a.astype(dtype) for a in (rows, lifted, multipliers))
    codes = best_codes(lifted, multipliers, PENALTY, n_active)
    return rows, lifted, multipliers, target_of(codes, multipliers, PENALTY)


def by_pairs(rows: np.ndarray, lifted: np.ndarray, target: np.ndarray) -> float:
    """The augmented Lagrangian with its n × n matrices."""
    similar = rows @ rows.T - lifted @ lifted.T
    return 0.25 * (similar**2).sum() + PENALTY / 2 * ((target - lifted) ** 2).sum()


def test_the_lagrangian_is_that_of_all_pairs() -> None:
    rows, lifted, _, target = problem(50, 24, 7, 4)
    assert lagrangian(rows, lifted, target, PENALTY) == pytest.approx(
        by_pairs(rows, lifted, target), rel=1e-12
    )


def test_no_codes_are_better_than_the_best_codes() -> None:
    _, lifted, multipliers, _ = problem(20, 7, 3, 2)
    codes = best_codes(lifted, multipliers, PENALTY, 2)

    def cost(row: int, ones: tuple[int, ...]) -> float:
        code = np.isin(np.arange(7), ones)
        return float(((code - lifted[row] + multipliers[row] / PENALTY) ** 2).sum())

    for row, ones in enumerate(codes):
        least = min(cost(row, chosen) for chosen in combinations(range(7), 2))
        assert cost(row, tuple(ones)) == pytest.approx(least, rel=1e-12)


def test_with_the_printed_sign_codes_never_move() -> None:
    """Algorithm 3 prints ``wta(λ Y + L)``: L then only ever strengthens the first codes."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 8))
    rows /= np.linalg.norm(rows, axis=1)[:, None]

    def moved(sign: float) -> float:
        lifted, multipliers = rows @ rng.standard_normal((8, 32)), np.zeros((60, 32))
        first = best_codes(lifted, multipliers, 1.0, 4)
        for _ in range(5):
            codes = best_codes(lifted, -sign * multipliers, 1.0, 4)
            target = target_of(codes, multipliers, 1.0)
            lifted = descend(rows, lifted, target, 1.0, 10).lifted
            multipliers = multipliers + (target_of(codes, 0 * multipliers, 1.0) - lifted)
        return float((codes != first).mean())

    assert moved(+1.0) == 0
    assert moved(-1.0) > 0.2


def test_the_first_step_follows_the_gradient_of_finite_differences() -> None:
    rows, lifted, _, target = problem(6, 5, 3, 2)
    lifted = 0.4 + 0.2 * lifted  # a short step stays within the bounds, so it is along the gradient
    step = descend(rows, lifted, target, 1e4, 1).lifted - lifted

    def value(flat: np.ndarray) -> float:
        return lagrangian(rows, flat.reshape(lifted.shape), target, 1e4)

    gradient = approx_fprime(lifted.ravel(), value, 1e-6)
    inside = (lifted + step > 0).ravel() & (lifted + step < 1).ravel()
    assert inside.sum() >= 10
    ratio = step.ravel()[inside] / gradient[inside]
    assert (ratio < 0).all()
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_descent_never_rises_keeps_the_bounds_and_knows_its_values(dtype: str) -> None:
    rows, lifted, _, target = problem(80, 40, 9, 5, dtype)
    found = descend(rows, 3 * lifted - 1, target, PENALTY, 40)
    assert found.lifted.dtype == dtype
    assert found.lifted.min() >= 0
    assert found.lifted.max() <= 1
    assert (np.diff(found.values) < 0).all()
    assert len(found.values) > 20
    start = by_pairs(rows.astype(float), np.clip(3 * lifted - 1, 0, 1).astype(float), target.astype(float))
    end = by_pairs(rows.astype(float), found.lifted.astype(float), target.astype(float))
    rel = 1e-5 if dtype == "float32" else 1e-10
    assert found.values[0] == pytest.approx(start, rel=rel)
    assert found.values[-1] == pytest.approx(end, rel=rel)


def test_descent_is_as_good_as_l_bfgs_b() -> None:
    rows, lifted, _, target = problem(60, 30, 8, 4)

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        Y = flat.reshape(lifted.shape)
        gradient = (Y @ Y.T - rows @ rows.T) @ Y + PENALTY * (Y - target)
        return by_pairs(rows, Y, target), gradient.ravel()

    bounds = [(0, 1)] * lifted.size
    options = {"maxiter": 100, "maxcor": 10}
    best = minimize(value_and_gradient, lifted.ravel(), jac=True, bounds=bounds, options=options)
    found = descend(rows, lifted, target, PENALTY, 100)
    assert found.values[-1] <= best.fun * 1.002


def test_at_a_minimum_descent_stops() -> None:
    rows = np.zeros((4, 2))
    target = np.zeros((4, 6))
    found = descend(rows, np.zeros((4, 6)), target, 1.0, 10)
    assert not found.lifted.any()
    assert found.values == [0.0]


def digits(shared_rows: int = 200) -> np.ndarray:
    rng = np.random.default_rng(2)
    centres = rng.normal(size=(8, 12))
    return centres[rng.integers(0, 8, shared_rows)] + 0.4 * rng.normal(size=(shared_rows, 12))


def test_each_half_step_lowers_the_lagrangian(train: Callable[..., list[RoundState]]) -> None:
    """Codes against those of the round before under the same Y and L; then Y under the same codes and L."""
    X, method = digits(), BOSL(n_bits=48, n_active=4, n_iter=6, n_steps=5)
    states = train(method, X)
    rows = X - X.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    n, codes = len(X), None
    for before, after in pairwise(states[:-1]):
        if "lifted" not in before.arrays:
            continue
        lifted, multipliers = before.arrays["lifted"], before.arrays["multipliers"]
        better = best_codes(lifted, multipliers, 1.0, 4)
        value = lagrangian(rows, lifted, target_of(better, multipliers, 1.0), 1.0) / n
        if codes is not None:
            worse = lagrangian(rows, lifted, target_of(codes, multipliers, 1.0), 1.0) / n
            assert value <= worse * (1 + 1e-12)
        assert after.scalars["objective_codes"] == pytest.approx(value, rel=1e-9)
        assert after.scalars["objective"] < after.scalars["objective_codes"]
        residual = target_of(better, 0 * multipliers, 1.0) - after.arrays["lifted"]
        np.testing.assert_allclose(after.arrays["multipliers"], multipliers + residual, atol=1e-12)
        assert after.scalars["residual"] == pytest.approx((residual**2).sum() / n, rel=1e-9)
        codes = better
    assert codes is not None


def test_weights_are_the_least_squares_of_equation_14(train: Callable[..., list[RoundState]]) -> None:
    X = digits()
    X[:, 5] = 7.0  # a constant feature: the normal equations are singular
    state = train(BOSL(n_bits=48, n_active=4, n_iter=3, n_steps=5), X)[-2]
    rows = X - X.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    expected = np.linalg.lstsq(rows, state.arrays["lifted"], rcond=None)[0].T
    np.testing.assert_allclose(state.arrays["weights"], expected, atol=1e-9)


def test_the_lifted_rows_travel_between_rounds_and_not_into_the_model(
    train: Callable[..., list[RoundState]],
) -> None:
    states = train(BOSL(n_bits=48, n_active=4, n_iter=3, n_steps=2), digits().astype(np.float32))
    assert states[2].arrays["lifted"].shape == (200, 48)
    assert states[2].arrays["lifted"].dtype == np.float32
    assert sorted(states[-1].arrays) == ["mean", "weights"]


def test_blocks_do_not_matter(train: Callable[..., list[RoundState]]) -> None:
    X, method = digits(), BOSL(n_bits=48, n_active=4, n_iter=3, n_steps=5)
    one, many = (train(method, X, block_rows=rows)[-1].arrays["weights"] for rows in (200, 37))
    np.testing.assert_allclose(one, many, atol=1e-8)  # the mean is summed in another order


def test_neighbours_get_overlapping_codes(train: Callable[..., list[RoundState]]) -> None:
    X = digits(400)
    method = BOSL(n_bits=96, n_active=8, n_iter=3)
    codes = np.unpackbits(method.encoder(train(method, X)[-1]).encode(X), axis=1).astype(int)
    overlap = (codes @ codes.T)[np.triu_indices(400, 1)]
    rows = X - X.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    cosine = (rows @ rows.T)[np.triu_indices(400, 1)]
    assert np.corrcoef(cosine, overlap)[0, 1] > 0.7


def test_too_many_rows_are_refused_with_advice() -> None:
    BOSL().start(DataInfo(MOST_ROWS, 50), 0)
    with pytest.raises(ValueError, match=r"at most 20,000 rows, got 20,001; train on a sample"):
        BOSL().start(DataInfo(MOST_ROWS + 1, 50), 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"penalty": 0}, "penalty"),
        ({"penalty": True}, "penalty"),
        ({"penalty": "1"}, "penalty"),
        ({"penalty": float("inf")}, "penalty"),
        ({"n_iter": 0}, "n_iter"),
        ({"n_steps": 0}, "n_steps"),
        ({"n_active": 1024}, "n_active"),
    ],
)
def test_bad_parameters(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BOSL(**parameters)
