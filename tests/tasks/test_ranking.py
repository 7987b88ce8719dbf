"""Ranks of sets: every set has one, in the fewest bytes, and nothing else is taken for one."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from bitfleet.tasks.kernels import ranking
from hypothesis import given, settings
from hypothesis import strategies as st


@st.composite
def some_sets(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """A few sets of one size: ordinary, and the first and last there are."""
    n_bits = draw(st.integers(2, 200))
    n_active = draw(st.integers(1, n_bits - 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    drawn = [np.sort(rng.choice(n_bits, n_active, replace=False)) for _ in range(3)]
    ends = [np.arange(n_active), np.arange(n_bits - n_active, n_bits)]
    return np.array([*drawn, *ends], np.int32), n_bits


@given(some_sets())
@settings(max_examples=30, deadline=None)
def test_sets_come_back_from_the_fewest_bytes(case: tuple[np.ndarray, int]) -> None:
    places, n_bits = case
    packed = ranking.rank_sets(places, n_bits)
    np.testing.assert_array_equal(packed, ranking.rank_sets_reference(places, n_bits))
    np.testing.assert_array_equal(ranking.unrank_sets(packed, n_bits, places.shape[1]), places)
    exact = max(1, (comb(n_bits, places.shape[1]) - 1).bit_length())
    assert ranking.ranked_width(n_bits, places.shape[1]) - -(-exact // 8) in (0, 1)
    assert ranking.ranked_width(n_bits, places.shape[1]) <= -(-(exact + 1) // 8)


@pytest.mark.parametrize(("n_bytes", "n_active"), [(8, 7), (16, 18), (32, 43), (48, 75), (64, 114)])
def test_ones_of_1024_that_fit(n_bytes: int, n_active: int) -> None:
    assert ranking.ranked_width(1024, n_active) == n_bytes
    assert ranking.ranked_width(1024, n_active + 1) == n_bytes + 1
    assert (comb(1024, n_active) - 1).bit_length() <= 8 * n_bytes


def test_each_number_is_one_set_or_refused() -> None:
    sets = np.array(list(combinations(range(9), 4)), np.int32)
    ranks = ranking.rank_sets(sets, 9)[:, 0]
    assert sorted(ranks.tolist()) == list(range(126))
    for value in range(256):
        row = np.array([[ranks[0]], [value]], np.uint8)
        if value < 126:
            assert ranking.rank_sets(ranking.unrank_sets(row, 9, 4), 9)[1, 0] == value
        else:
            with pytest.raises(ValueError, match="row 1 is no set of 4 out of 9: its bytes are damaged"):
                ranking.unrank_sets(row, 9, 4)


def test_damaged_rows_are_refused_or_are_other_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    places = np.sort(rng.permuted(np.tile(np.arange(1024), (40, 1)), axis=1)[:, :18], axis=1)
    packed = ranking.rank_sets(places.astype(np.int32), 1024)
    packed[:20] = 255
    packed[20:] = rng.integers(0, 256, (20, 16))
    found: list[list[bool]] = []
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(ranking, "loops", lambda: None)
        verdicts = []
        for row in packed:
            try:
                again = ranking.rank_sets(ranking.unrank_sets(row[None], 1024, 18), 1024)
            except ValueError:
                verdicts.append(False)
            else:
                assert (again == row).all()  # another set, whose rank this is
                verdicts.append(True)
        found.append(verdicts)
    assert found[0] == found[1]
    assert not any(found[0][:20])


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sets of 18 out of 1024 as uint8 of shape \(m, 16\), got uint8"):
        ranking.unrank_sets(np.zeros((2, 15), np.uint8), 1024, 18)
    for n_bits, n_active in ((8, 8), (8, 0), (1 << 20, 1 << 10)):
        with pytest.raises(ValueError, match="1 <= n_active < n_bits"):
            ranking.ranked_width(n_bits, n_active)
