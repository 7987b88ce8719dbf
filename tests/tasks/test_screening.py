"""Screening loses no pair: its intervals hold the true distances, and its lines lie within its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bitfleet.tasks.extremes import extremes_of, joined, no_extremes
from bitfleet.tasks.kernels import screening
from bitfleet.tasks.kernels.screened_rows import ScreenedRows, hamming_matrix, make_basis, screened
from bitfleet.tasks.kernels.screening import limits_in_units, suspects
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

N_BITS = 20


def rows_and_codes(seed: int, n: int, d: int, decay: float) -> tuple[np.ndarray, np.ndarray, Any]:
    """Rows whose spread falls off, of lengths that differ a thousandfold, far from the origin."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -decay * 10 ** rng.uniform(-1.5, 1.5, (n, 1)) + 5
    packed = np.packbits(X[:, :1] + rng.normal(size=(n, N_BITS)) > 5, axis=1, bitorder="little")
    return X, packed, make_basis(X[: n // 2], first=0.3, last=0.1)


def found(left: ScreenedRows, right: ScreenedRows, low: Any, high: Any, levels: Any, **how: Any) -> Any:
    counts = np.full(N_BITS + 1, 10)
    parts = list(suspects(left, right, low, high, counts, levels, **how))
    pairs = np.concatenate([pairs for pairs, _ in parts] or [np.empty((0, 2), np.int32)])
    return pairs, np.concatenate([bounds for _, bounds in parts] or [np.empty((0, 2))])


@pytest.mark.parametrize(("d", "decay"), [(5, 0.0), (60, 0.0), (200, 1.0), (200, 0.4)])
@pytest.mark.parametrize("same", [True, False])
def test_no_pair_beyond_its_limits_is_lost(d: int, decay: float, same: bool) -> None:
    X, packed, basis = rows_and_codes(d, 900, d, decay)
    left = screened(X, packed, basis)
    right = left if same else screened(X[::-1].copy(), packed[::-1].copy(), basis)
    c2 = cdist(X, X if same else X[::-1], "sqeuclidean")
    h = hamming_matrix(left.words, right.words)
    low = np.array([np.quantile(c2[h == b], 0.002) if (h == b).any() else np.inf for b in range(N_BITS + 1)])
    high = np.array([np.quantile(c2[h == b], 0.998) if (h == b).any() else -1 for b in range(N_BITS + 1)])
    low, high = limits_in_units(low, high, basis.unit)
    pairs, bounds = found(left, right, low.copy(), high.copy(), basis.levels, same=same, room=1000)
    c2 = c2 / basis.unit**2
    beyond = (c2 >= high[h]) | (c2 <= low[h])
    beyond &= np.arange(900)[:, None] < np.arange(900) if same else True
    listed = np.zeros_like(beyond)
    listed[pairs[:, 0], pairs[:, 1]] = True
    assert len(pairs) == listed.sum()
    assert not (beyond & ~listed).any()
    values = c2[pairs[:, 0], pairs[:, 1]]
    assert (bounds[:, 0] <= values).all()
    assert (values <= bounds[:, 1]).all()
    parts = list(screening.suspects_reference(left, right, low, high, 8 * 2.0**-24, same=same, tighten=False))
    keys = [tuple(pair) for pairs_, _ in parts for pair in pairs_.tolist()]
    by_numpy = dict(zip(keys, np.concatenate([bounds_ for _, bounds_ in parts]), strict=True))
    compiled = [tuple(pair) for pair in pairs.tolist()]
    assert set(compiled) <= set(keys)
    np.testing.assert_allclose(bounds, [by_numpy[key] for key in compiled], rtol=1e-9, atol=1e-12)


def test_moved_limits_are_reached_by_true_pairs() -> None:
    X, packed, basis = rows_and_codes(1, 700, 100, 0.7)
    rows = screened(X, packed, basis)
    low, high = np.full(N_BITS + 1, 1e36), np.full(N_BITS + 1, -1.0)
    found(rows, rows, low, high, basis.levels, same=True, tighten=True)
    first, second = np.triu_indices(700, 1)
    c2 = cdist(X, X, "sqeuclidean")[first, second] / basis.unit**2
    expected = extremes_of(
        np.stack([first, second], axis=1), hamming_matrix(rows.words, rows.words)[first, second], c2, N_BITS
    )
    some = np.isfinite(expected["low"])
    assert (high[some] <= expected["high"][some] * (1 + 1e-12)).all()
    assert (low[some] >= expected["low"][some] * (1 - 1e-12)).all()
    wide = 2 * rows.tails[-1].max() ** 2 + 1e-5
    assert (expected["high"][some] - high[some] < wide).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
def test_lines_are_within_the_limits(seed: int, n_bits: int, even: bool) -> None:
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.uniform(0, 4, (2, n_bits + 1)), axis=0)
    high[rng.random(n_bits + 1) < 0.2] = -1
    low[rng.random(n_bits + 1) < 0.2] = rng.choice([-1.0, 1e36])
    counts = rng.integers(0, 10000, n_bits + 1) * (rng.random(n_bits + 1) < 0.8)
    lines = screening._lines(low.tobytes(), high.tobytes(), counts.tobytes(), even=even)
    rise, start, cap, rise_low, start_low, cap_low, centre, width = (np.float32(v) for v in lines)
    h = np.arange(0, n_bits + 1, 2 if even else 1).astype(np.float32)
    h = h[np.abs(h - centre) <= width]
    above = np.maximum(np.minimum(rise * h + start, cap), np.float32(0))
    below = np.maximum(rise_low * h + start_low, cap_low)
    assert (above * above <= np.maximum(high[h.astype(int)], 0)).all()
    assert (below * below >= low[h.astype(int)]).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_extremes_of_parts_in_any_order_are_those_of_all(seed: int, n_parts: int) -> None:
    """Ties everywhere: the pair with the smaller numbers stands; a part added twice changes nothing."""
    rng = np.random.default_rng(seed)
    pairs = np.sort(rng.integers(0, 30, (60, 2)), axis=1)
    bits, squares = rng.integers(0, 6, 60), rng.integers(0, 4, 60) / 4
    expected = extremes_of(pairs, bits, squares, 6)
    part = rng.integers(0, n_parts, 60)
    state = no_extremes(6)
    for p in [*rng.permutation(n_parts), 0]:
        one = extremes_of(pairs[part == p], bits[part == p], squares[part == p], 6)
        state = joined(one, state) if rng.random() < 0.5 else joined(state, one)
    for name, array in expected.items():
        np.testing.assert_array_equal(state[name], array)


def test_rows_beyond_comparison_are_refused() -> None:
    X, packed, basis = rows_and_codes(0, 50, 5, 0.0)
    X[7] = 1e30
    with pytest.raises(ValueError, match="longer than 10"):
        screened(X, packed, basis)
