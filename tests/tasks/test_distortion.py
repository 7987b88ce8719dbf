"""The closed forms equal linear programs; the bounds hold for every code."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bitfleet.tasks.distortion import (
    FITS,
    calibrate,
    constant_distortion,
    critical_bits,
    scale_bound,
)
from scipy.optimize import linprog
from scipy.spatial.distance import pdist


def table(h: np.ndarray, c: np.ndarray, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.full(n_bits + 1, np.inf), np.full(n_bits + 1, -np.inf)
    np.minimum.at(low, h, c)
    np.maximum.at(high, h, c)
    return low, high


def linear_program(h: np.ndarray, c: np.ndarray, n_bits: int, fit: str) -> float:
    """Minimise δ subject to |g(h) - c| ≤ δ over all pairs, by HiGHS."""
    n = len(h)
    if fit == "monotone":
        columns, bounds = np.zeros((n, n_bits + 1)), [(None, None)] * (n_bits + 1)
        columns[np.arange(n), h] = 1
    else:
        columns, bounds = np.column_stack([h, np.ones(n)])[:, : 1 + (fit == "affine")], [(0, None)]
        bounds += [(None, None)] * (fit == "affine")
    ones = np.ones((n, 1))
    rows = [np.hstack([columns, -ones]), np.hstack([-columns, -ones])]
    right = [c, -c]
    if fit == "monotone":
        step = np.eye(n_bits + 1)[:-1] - np.eye(n_bits + 1)[1:]
        rows, right = [*rows, np.hstack([step, np.zeros((n_bits, 1))])], [*right, np.zeros(n_bits)]
    cost = np.zeros(columns.shape[1] + 1)
    cost[-1] = 1
    found = linprog(
        cost, np.vstack(rows), np.concatenate(right), bounds=[*bounds, (0, None)], method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
    assert found.status == 0, found.message
    return found.fun


@pytest.mark.parametrize("fit", FITS)
def test_100_random_cases_equal_a_linear_program(fit: str) -> None:
    """Gaps among the Hamming distances, collided codes, few and many pairs; 300 cases in all."""
    rng = np.random.default_rng(FITS.index(fit))
    for case in range(100):
        n_bits, n = int(rng.integers(1, 13)), int(rng.integers(1, 60))
        h = rng.integers(rng.integers(0, n_bits + 1), n_bits + 1, n)
        c = rng.uniform(0, 2, n) if case % 2 else np.abs(0.1 * h + 0.3 * rng.normal(size=n))
        found = calibrate(*table(h, c, n_bits), fit)
        assert abs(found.delta - linear_program(h, c, n_bits, fit)) < 1e-12
        assert np.abs(found.table[h] - c).max() < found.delta + 1e-12
        assert (np.diff(found.table) >= 0).all()
        if found.scale is not None:
            np.testing.assert_allclose(found.table, found.scale * np.arange(n_bits + 1) + found.offset)


def test_each_kind_is_at_least_as_good_as_the_one_before() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        h, c = rng.integers(0, 9, 30), rng.uniform(0, 3, 30)
        low, high = table(h, c, 8)
        scale, affine, monotone = (calibrate(low, high, fit).delta for fit in FITS)
        assert monotone <= affine + 1e-15 <= min(scale, constant_distortion(low, high)) + 2e-15


@pytest.mark.parametrize(
    ("low", "high", "delta", "scale"),
    [
        ([2.0, np.inf], [2.0, -np.inf], 2.0, 0.0),  # one pair with equal codes
        ([0.0, np.inf], [0.0, -np.inf], 0.0, 0.0),  # equal rows
        ([np.inf, 3.0], [-np.inf, 3.0], 0.0, 3.0),  # one pair
        ([0.0, 2.0, 2.0], [1.0, 2.0, 2.5], 1.0, 1.25),  # equal codes decide: λ in [1, 1.5]
    ],
)
def test_edge_cases_by_hand(low: list[float], high: list[float], delta: float, scale: float) -> None:
    found = calibrate(np.array(low), np.array(high))
    assert found.delta == delta
    assert found.scale == scale


def test_no_pair_and_unknown_kind_are_refused() -> None:
    empty = np.full(3, np.inf), np.full(3, -np.inf)
    with pytest.raises(ValueError, match="at least one pair"):
        calibrate(*empty)
    with pytest.raises(ValueError, match="scale, affine, monotone"):
        calibrate(*empty, fit="linear")


def test_no_code_beats_the_bound() -> None:
    """Random, balanced, constant and sign codes of rows whose distances concentrate."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 40))
    c = pdist(X)
    mean, square = c.mean(), (c * c).mean()
    assert math.isclose(critical_bits(mean, square), (mean / c.std()) ** 2)
    for n_bits in (2, 4, 8, 16):
        bound = scale_bound(n_bits, 60, mean, square)
        assert bound > 0
        for scores in (
            rng.normal(size=(60, n_bits)),
            X[:, :n_bits],
            np.ones((60, n_bits)) - 2 * (X[:, :1] > 0),
        ):
            h = np.round(pdist(scores >= 0) * 0 + pdist((scores >= 0).astype(float), "cityblock")).astype(int)
            assert calibrate(*table(h, c, n_bits)).delta > bound
    assert scale_bound(8, 60, 1.0, 1.5) == 0  # distances that vary more than h must: no bound
