"""Search by weighted bits against sorting all distances, and against its NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest
from bitfleet.tasks.kernels import weighted
from bitfleet.tasks.kernels.pack import pack_bits
from hypothesis import given, settings
from hypothesis import strategies as st

Found = tuple[np.ndarray, np.ndarray]


def by_sorting(weights: np.ndarray, bits: np.ndarray, k: int) -> Found:
    unlike = (weights[:, None, :] >= 0) != (bits[None, :, :] == 1)
    distances = np.where(unlike, np.abs(weights)[:, None, :], 0).sum(axis=2)
    rows = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, rows, axis=1), rows


def assert_equal(found: Found, expected: Found) -> None:
    assert [a.dtype for a in found] == [np.int64, np.int64]
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 900), st.integers(1, 140), st.integers(1, 70), st.integers(1, 900),
    st.integers(0, 2**32), st.sampled_from([0, 1, 3, 1000, 2**43]),
)  # fmt: skip
def test_search_equals_sorting(n: int, n_bits: int, q: int, k: int, seed: int, largest: int) -> None:
    """Few distinct weights make many ties; large ones are near the limit of exact sums."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (n, n_bits), dtype=np.uint8)
    weights = rng.integers(-largest, largest, (q, n_bits), endpoint=True)
    k = min(k, n)
    expected = by_sorting(weights, bits, k)
    assert_equal(weighted.nearest_weighted(weights, pack_bits(bits), k), expected)
    assert_equal(weighted.nearest_weighted_reference(weights, pack_bits(bits), k), expected)


@pytest.mark.parametrize("kind", ["nearest last", "identical", "two values"])
def test_more_candidates_than_are_kept(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of candidates is thinned out again and again; ties go to the first rows all the same."""
    monkeypatch.setattr(weighted, "_SPARE", 3)
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (3000, 33), dtype=np.uint8)
    weights = rng.integers(-9, 9, (40, 33), endpoint=True)
    if kind == "identical":
        bits[:] = bits[0]
    elif kind == "two values":
        bits = bits[rng.integers(0, 2, len(bits))]
    else:
        far = np.where((weights[0] >= 0) != (bits == 1), np.abs(weights[0]), 0).sum(axis=1)
        bits = bits[np.argsort(-far)]
    for k in (1, 10, 600):
        assert_equal(weighted.nearest_weighted(weights, pack_bits(bits), k), by_sorting(weights, bits, k))


def test_the_reference_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    bits, weights = rng.integers(0, 2, (90, 12), dtype=np.uint8), rng.integers(-50, 50, (4, 12))
    monkeypatch.setattr(weighted, "_BITS_AT_ONCE", 12 * 7)
    monkeypatch.setattr(weighted, "_AT_ONCE", 14)
    expected = by_sorting(weights, bits, 10)
    assert_equal(weighted.nearest_weighted_reference(weights, pack_bits(bits), 10), expected)


@pytest.mark.parametrize(("n", "q", "k"), [(0, 3, 0), (5, 0, 2), (5, 3, 0)])
def test_nothing_to_find(n: int, q: int, k: int) -> None:
    for search in (weighted.nearest_weighted, weighted.nearest_weighted_reference):
        distances, rows = search(np.ones((q, 12), np.int64), np.zeros((n, 2), np.uint8), k)
        assert distances.shape == rows.shape == (q, k)
