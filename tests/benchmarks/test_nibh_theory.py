"""The NIBH paper's statements hold where they can be checked case by case."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.tasks.metrics import gap_at
from scipy.spatial.distance import cdist
from scipy.special import expit
from scipy.stats import kendalltau

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def benchmarks(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(root / "benchmarks")
    yield
    for name in ("nibh_theory", "nibh_judge"):
        sys.modules.pop(name, None)


@pytest.fixture
def theory(benchmarks: None) -> Any:
    import nibh_theory

    return nibh_theory


def clusters(n_clusters: int, size: int, spread: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = np.repeat(rng.normal(size=(n_clusters, 20)), size, axis=0)
    rows = centres + spread * rng.normal(size=centres.shape)
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def test_a_gap_of_more_than_twice_the_distortion_keeps_all_neighbours(theory: Any) -> None:
    rows, k, found = clusters(5, 6, 0.02), 5, []
    for n_bits in (2, 32, 512):
        bits = bf.LSH(n_bits=n_bits, center=False, random_state=1).fit(rows).transform(rows).astype(int)
        others = ~np.eye(len(rows), dtype=bool)
        distances = cdist(rows, rows)[others].reshape(len(rows), -1)
        hamming = (bits[:, None] != bits).sum(axis=2)[others].reshape(len(rows), -1)
        scale = (hamming * distances).sum() / (hamming**2).sum()
        sure = theory.is_guaranteed(distances, hamming, scale, k)
        near = np.argsort(distances, axis=1, kind="stable")[:, :k]
        worst_of_them = np.take_along_axis(hamming, near, axis=1).max(axis=1)
        rest = hamming.copy()
        np.put_along_axis(rest, near, np.iinfo(int).max, axis=1)
        kept = worst_of_them < rest.min(axis=1)
        assert kept[sure].all()
        delta = np.abs(scale * hamming - distances).max(axis=1)
        gaps = gap_at(np.sort(distances, axis=1) ** 2, k)
        np.testing.assert_array_equal(sure, gaps > 2 * delta)
        found.append(sure.mean())
    assert found[0] < 0.5 < found[-1]


@pytest.mark.parametrize("slope", [0.5, 2.0, 8.0, 50.0])
@pytest.mark.parametrize(("deviation", "mean"), [(1.0, 0.0), (0.3, 0.2), (2.0, -1.0)])
def test_sigmoids_come_near_signs_as_one_over_their_slope(
    theory: Any, slope: float, deviation: float, mean: float
) -> None:
    found = theory.sigmoid_gap(slope, deviation, mean)
    x = np.random.default_rng(2).normal(mean, deviation, 400_000)
    drawn = np.abs((x >= 0) - expit(slope * x))
    assert found == pytest.approx(drawn.mean(), abs=5 * drawn.std() / np.sqrt(len(x)))
    assert found <= theory.sigmoid_gap_bound(slope, deviation) * (1 + 1e-9)
    if slope * deviation >= 15 and mean == 0:  # the bound is what it comes to
        assert found > 0.95 * theory.sigmoid_gap_bound(slope, deviation)


def test_soft_distances_are_within_four_bounds_a_bit_on_average(theory: Any) -> None:
    rng, n_bits, slope = np.random.default_rng(3), 12, 5.0
    x, y = rng.normal(size=(2, 50_000, n_bits))
    soft = ((expit(slope * x) - expit(slope * y)) ** 2).sum(axis=1)
    hard = ((x >= 0) != (y >= 0)).sum(axis=1)
    assert np.abs(soft - hard).mean() <= 4 * n_bits * theory.sigmoid_gap_bound(slope)


def test_the_judge_agrees_with_brute_force(benchmarks: None) -> None:
    import nibh_judge

    rng = np.random.default_rng(4)
    rows, bits = rng.normal(size=(90, 5)).astype(np.float32), rng.integers(0, 2, (90, 7), np.uint8)
    judge = nibh_judge.Judge.among(rows, 9, 12)
    found = judge.per_query(bits, (4, 12), (12,))
    curved = judge.per_query(bits, (4,), (), spherical=True)
    for place, own in enumerate(judge.own):
        others = np.delete(np.arange(90), own)
        true = np.linalg.norm(rows[others].astype(float) - rows[own], axis=1)
        nearest = others[np.argsort(true)]
        np.testing.assert_array_equal(judge.nearest[place], nearest[:12])
        h = (bits[others] != bits[own]).sum(axis=1)
        tau = kendalltau(np.sort(true)[:12], (bits[nearest[:12]] != bits[own]).sum(axis=1)).statistic
        assert found["tau@12"][place] == pytest.approx(tau, abs=1e-12)
        common = (bits[others] & bits[own]).sum(axis=1)
        curve = np.array([a / c if c else (np.inf if a else 0) for a, c in zip(h, common, strict=True)])
        for name, distances, k in (("map@4", h, 4), ("map@12", h, 12), ("own", curve, 4)):
            last = np.sort(distances)[k - 1]
            wanted = np.isin(others, nearest[:k])
            tied = distances == last
            share = (k - (distances < last).sum()) / tied.sum()
            expected = ((wanted & (distances < last)).sum() + share * (wanted & tied).sum()) / k
            value = curved["map@4"][place] if name == "own" else found[name][place]
            assert value == pytest.approx(expected, abs=1e-12)
    elsewhere = nibh_judge.Judge.against(rows, rows[judge.own] + 0, 12)
    assert (elsewhere.nearest[:, 0] == judge.own).all()  # there, a row is its own neighbour
