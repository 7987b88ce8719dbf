"""Polar factors against the SVD, and what is promised of deficient and ill-conditioned matrices."""

from __future__ import annotations

import numpy as np
import pytest
from bitfleet.tasks.procrustes import orthogonal_factor, polar, random_orthonormal
from bitfleet.tasks.random import stream


def graded(rng: np.random.Generator, b: int, r: int, condition: float) -> tuple[np.ndarray, ...]:
    left, basis = random_orthonormal(rng, b, r), random_orthonormal(rng, r, r)
    right = random_orthonormal(rng, r, r) if condition < 1e3 else basis
    return left @ np.diag(np.geomspace(1, 1 / condition, r)) @ right.T, left @ right.T, basis


@pytest.mark.parametrize(("b", "r"), [(40, 12), (12, 40), (9, 9), (5, 1), (1, 5), (1, 1)])
def test_equal_to_the_svd(b: int, r: int) -> None:
    matrix = np.random.default_rng(0).normal(size=(b, r)) * 1e-7
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    np.testing.assert_allclose(polar(matrix), left @ right, atol=1e-10)
    np.testing.assert_allclose(orthogonal_factor(matrix), left @ right, atol=1e-12)


@pytest.mark.parametrize("condition", [10.0, 1e4, 1e6])
def test_ill_conditioned_problems_stay_orthonormal_and_accurate(condition: float) -> None:
    matrix, expected, basis = graded(np.random.default_rng(1), 60, 30, condition)
    for factor in (polar(matrix), polar(matrix, basis)):
        np.testing.assert_allclose(factor.T @ factor, np.eye(30), atol=1.0001e-9)
        np.testing.assert_allclose(factor, expected, atol=1e-8)


def test_the_rotated_gram_matrix_is_accurate_beyond_the_quick_size() -> None:
    matrix, expected, basis = graded(np.random.default_rng(2), 450, 420, 1e5)
    np.testing.assert_allclose(polar(matrix, basis), expected, atol=1e-8)


def test_rank_deficiency_is_completed_to_an_orthonormal_nearest_matrix() -> None:
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(20, 3)) @ rng.normal(size=(3, 8))
    for factor in (polar(matrix), polar(matrix, random_orthonormal(rng, 8, 8)), polar(matrix.T).T):
        np.testing.assert_allclose(factor.T @ factor, np.eye(8), atol=1e-9)
        assert np.sum(factor * matrix) == pytest.approx(np.linalg.norm(matrix, "nuc"), rel=1e-12)
    zero = polar(np.zeros((4, 2)))
    np.testing.assert_array_equal(zero.T @ zero, np.eye(2))


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        polar(np.full((3, 2), np.nan))


@pytest.mark.parametrize(("rows", "columns"), [(7, 7), (9, 4), (4, 9), (1, 1)])
def test_random_orthonormal(rows: int, columns: int) -> None:
    q = random_orthonormal(stream(0, "test"), rows, columns)
    assert q.shape == (rows, columns)
    small = q.T @ q if rows >= columns else q @ q.T
    np.testing.assert_allclose(small, np.eye(min(rows, columns)), atol=1e-13)
    np.testing.assert_array_equal(q, random_orthonormal(stream(0, "test"), rows, columns))


def test_random_orthonormal_has_no_preferred_sign() -> None:
    diagonal = [random_orthonormal(stream(0, "test", i), 3, 3)[0, 0] for i in range(400)]
    assert abs(np.mean(diagonal)) < 4 * np.sqrt(1 / 3 / 400)
