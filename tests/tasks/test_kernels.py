"""Each kernel against its plain NumPy reference, bit for bit, and the references against brute force."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from bitfleet.tasks.kernels import accumulate, exact, fast, pack, signs, wta
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

# few distinct values, so that ties are everywhere; zeros of both signs; tiny and huge
VALUES = [0.0, -0.0, 1.0, -1.0, 1.0 + 2.0**-23, 2.0, 3.5, -2.0, 1e-38, -1e-38, 1e-45, 1e30, -1e30]


@st.composite
def score_blocks(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    shape = (draw(st.integers(0, 5)), draw(st.integers(2, 40)))
    elements = st.sampled_from([float(np.float32(v)) for v in VALUES])
    tied = draw(hnp.arrays(dtype, shape, elements=elements))
    smooth = np.random.default_rng(draw(st.integers(0, 2**32))).normal(size=shape).astype(dtype)
    return draw(st.sampled_from([tied, smooth])), draw(st.integers(1, shape[1] - 1))


def brute_force(row: np.ndarray, n_active: int) -> list[int]:
    return sorted(sorted(range(len(row)), key=lambda j: (-row[j], j))[:n_active])


@settings(max_examples=200, deadline=None)
@given(score_blocks())
def test_winners(case: tuple[np.ndarray, int]) -> None:
    scores, n_active = case
    expected = [brute_force(row, n_active) for row in scores]
    np.testing.assert_array_equal(wta.top_active_reference(scores, n_active).tolist(), expected)
    np.testing.assert_array_equal(wta.top_active(scores, n_active).tolist(), expected)
    everyone = wta.top_active(scores, scores.shape[1])
    np.testing.assert_array_equal(everyone, np.tile(np.arange(scores.shape[1]), (len(scores), 1)))


@settings(max_examples=100, deadline=None)
@given(score_blocks())
def test_signs(case: tuple[np.ndarray, int]) -> None:
    scores, _ = case
    expected = [[1.0 if score >= 0 else -1.0 for score in row] for row in scores.tolist()]
    assert signs.as_signs_reference(scores).tolist() == expected
    got = signs.as_signs(scores)
    assert got is scores
    assert got.tolist() == expected


@settings(max_examples=200, deadline=None)
@given(score_blocks())
def test_bracket(case: tuple[np.ndarray, int]) -> None:
    scores, n_active = case
    expected = [[sorted(row)[-n_active], sorted(row)[-n_active - 1]] for row in scores.astype(float)]
    np.testing.assert_array_equal(wta.bracket_reference(scores, n_active), np.reshape(expected, (-1, 2)))
    np.testing.assert_array_equal(wta.bracket(scores, n_active), np.reshape(expected, (-1, 2)))


@settings(max_examples=100, deadline=None)
@given(score_blocks(), st.sampled_from([0.0, 1e-8, 0.01, 0.5, 1e31]), st.integers(0, 2**32))
def test_sure_winners_are_winners_whatever_the_error(
    case: tuple[np.ndarray, int], error: float, seed: int
) -> None:
    """Rows called sure have winners that errors within the bound cannot change; others get their bracket."""
    scores, n_active = case
    rng = np.random.default_rng(seed)
    lengths = rng.choice([0.0, 1.0, 3.0], size=len(scores))
    packed = np.zeros((len(scores), pack.packed_width(scores.shape[1])), np.uint8)
    plain = packed.copy()
    unsure, brackets = fast.sure_winners(scores, lengths, error, n_active, packed)
    unsure_, _ = fast.sure_winners_reference(scores, lengths, error, n_active, plain)
    assert set(unsure_) <= set(unsure)  # the search may give up on a row, which only costs time
    for row, bracket in zip(unsure, brackets, strict=True):
        largest = sorted(scores[row].astype(float), reverse=True)
        assert bracket.tolist() == largest[n_active - 1 : n_active + 1]
    for row in set(range(len(scores))) - set(unsure):
        largest = sorted(scores[row].astype(float), reverse=True)
        assert largest[n_active - 1] - largest[n_active] > 2 * error * lengths[row]
        bits = pack.unpack_bits(packed[row], scores.shape[1])
        assert np.flatnonzero(bits).tolist() == brute_force(scores[row], n_active)
        np.testing.assert_array_equal(packed[row], plain[row])


@settings(max_examples=100, deadline=None)
@given(score_blocks(), st.integers(0, 2**32))
def test_winners_decided_by_exact_scores(case: tuple[np.ndarray, int], seed: int) -> None:
    scores, n_active = case
    rng = np.random.default_rng(seed)
    m, b = scores.shape
    margins = rng.choice([0.0, 0.5, 1e31], size=(m, 1)) * [-1, 1]
    rows = np.flatnonzero(rng.random(m) < 0.8)
    bounds = (wta.bracket_reference(scores, n_active) + margins)[rows]
    d = int(rng.integers(1, 20))
    vectors, mean = rng.integers(-2, 3, (m, d)).astype(np.float32), rng.integers(-2, 3, d).astype(float)
    columns = np.zeros((b, exact.padded_width(d)))
    columns[:, :d] = rng.integers(-2, 3, (b, d))
    centred = vectors, mean, rng.permutation(m)[: len(rows)]
    packed = rng.integers(0, 256, (m, pack.packed_width(b))).astype(np.uint8)
    before = packed.copy()
    fast.decide_winners(scores, rows, bounds, centred, columns, n_active, packed)
    low = np.nextafter(bounds[:, 0].astype(scores.dtype), scores.dtype.type(-np.inf))
    limits = np.column_stack([low, bounds[:, 1].astype(scores.dtype)])
    for p, row in enumerate(rows):
        decided = (vectors[centred[2][p]] - mean) @ columns[:, :d].T
        above, below = scores[row] > bounds[p, 1], scores[row] < limits[p, 0]
        settled = np.where(above, np.inf, np.where(below, -np.inf, decided))
        bits = pack.unpack_bits(packed[row], b)
        assert np.flatnonzero(bits).tolist() == brute_force(settled, n_active)
    untouched = np.setdiff1d(np.arange(m), rows)
    np.testing.assert_array_equal(packed[untouched], before[untouched])
    if (limits[:, 1] >= bounds[:, 1]).all():
        fast.decide_winners_reference(scores, rows, limits, centred, columns, n_active, before)
        np.testing.assert_array_equal(packed, before)


@settings(max_examples=100, deadline=None)
@given(score_blocks(), st.sampled_from([0.0, 1e-8, 0.5, 2.0]), st.integers(0, 2**32))
def test_signs_and_what_is_unsure_of_them(case: tuple[np.ndarray, int], limit: float, seed: int) -> None:
    scores, _ = case
    m, b = scores.shape
    rng = np.random.default_rng(seed)
    lengths, limits = rng.choice([0.0, 1.0, 3.0], size=m), limit * rng.choice([0.5, 1.0], size=b)
    packed = np.empty((m, pack.packed_width(b)), np.uint8)
    rows, columns = fast.sure_signs(scores, lengths, limits, packed)
    np.testing.assert_array_equal(packed, pack.pack_bits(scores >= 0))
    found = set(zip(rows.tolist(), columns.tolist(), strict=True))
    assert len(found) == len(rows)
    assert sorted(found) == list(zip(rows.tolist(), columns.tolist(), strict=True))
    size, bound = np.abs(scores.astype(float)), lengths[:, None] * limits
    assert set(zip(*np.nonzero(size < bound), strict=True)) <= found
    assert found <= set(zip(*np.nonzero(size < bound * 1.00001 + 1e-36), strict=True))
    assert all(size[i, j] < max(bound[i, j], 1e-36) * 1.00001 for i, j in found)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 6), st.integers(1, 20), st.sampled_from(["f4", "f8"]), st.integers(0, 2**32))
def test_centring(m: int, d: int, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, mean = (rng.normal(size=(m, d)) * 10).astype(dtype), rng.normal(size=d)
    vectors.setflags(write=False)
    ours, plain = np.empty((m, d), np.float32), np.empty((m, d), np.float32)
    squares = fast.centre(vectors, mean, ours)
    np.testing.assert_allclose(squares, fast.centre_reference(vectors, mean, plain), rtol=1e-13)
    np.testing.assert_array_equal(ours, plain)
    np.testing.assert_array_equal(ours, (vectors.astype(float) - mean).astype(np.float32))
    rows = np.flatnonzero(rng.random(m) < 0.5)
    padded = fast.centred_rows(vectors, rows, mean)
    np.testing.assert_array_equal(padded[:, :d], vectors[rows].astype(float) - mean)
    assert padded.shape == (len(rows), exact.padded_width(d))
    assert not padded[:, d:].any()
    n_pairs = 9 if m else 0
    pairs = rng.integers(0, max(m, 1), n_pairs), rng.integers(0, 4, n_pairs)
    columns = np.zeros((4, exact.padded_width(d)))
    columns[:, :d] = rng.normal(size=(4, d))
    whole = fast.centred_rows(vectors, np.arange(m), mean)
    scores = fast.exact_scores_of(vectors, mean, pairs[0], columns, pairs[1])
    np.testing.assert_array_equal(scores, exact.exact_scores_reference(whole, columns, *pairs))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 6), st.integers(1, 30), st.integers(1, 9), st.integers(0, 2**32))
def test_accumulation_adds_in_row_order(m: int, b: int, r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_active = int(rng.integers(1, b + 1))
    active = np.sort(
        rng.permuted(np.tile(np.arange(b, dtype=np.int32), (m, 1)), axis=1)[:, :n_active], axis=1
    )
    vectors = (rng.normal(size=(m, r)) * 10.0 ** rng.integers(-9, 9, (m, r))).astype(rng.choice(["f4", "f8"]))
    start = rng.normal(size=(b, r))
    expected = start.tolist()
    for i in range(m):
        for j in active[i]:
            for c in range(r):
                expected[j][c] += float(vectors[i, c])
    for add in (accumulate.add_rows, accumulate.add_rows_reference):
        total = start.copy()
        add(total, active, vectors)
        assert total.tolist() == expected


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 50), st.integers(0, 2**32))
def test_scores_add_in_the_stated_order(d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = np.zeros((2, 3, exact.padded_width(d)))
    x[:, :d], w[:, :d] = rng.normal(size=(2, 3, d)) * 10.0 ** rng.integers(-9, 9, (2, 3, d))
    rows, columns = rng.integers(0, 3, (2, 20))
    lanes = [[0.0] * 8 for _ in rows]
    for p, (i, j) in enumerate(zip(rows, columns, strict=True)):
        for k in range(d):
            lanes[p][k % 8] += float(x[i, k]) * float(w[j, k])
    expected = [((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])) for a in lanes]
    assert exact.exact_scores(x, w, rows, columns).tolist() == expected
    assert exact.exact_scores_reference(x, w, rows, columns).tolist() == expected


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(1, 30), st.integers(1, 6), st.integers(0, 2**32))
def test_products_add_in_order(d: int, r: int, b: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(d, r)) * 1e9, rng.normal(size=(r, b))
    expected = np.zeros((d, b)).tolist()
    for i in range(d):
        for j in range(b):
            for k in range(r):
                expected[i][j] += float(left[i, k]) * float(right[k, j])
    assert exact.fixed_product(left, right).tolist() == expected
    assert exact.fixed_product_reference(left, right).tolist() == expected
    for wrong in (right[:-1], right[0], right[None], np.vstack([right, right])):
        with pytest.raises(ValueError, match="expected factors of shapes"):
            exact.fixed_product(left, wrong)


@given(st.integers(0, 5), st.integers(1, 40), st.integers(0, 2**32))
def test_packing(m: int, b: int, seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2, (m, b), dtype=np.uint8)
    packed = pack.pack_bits(bits)
    assert packed.shape == (m, (b + 7) // 8)
    values = [int.from_bytes(code.tobytes(), "little") for code in packed]
    assert values == [sum(int(bit) << j for j, bit in enumerate(row)) for row in bits]
    np.testing.assert_array_equal(pack.unpack_bits(packed, b), bits)


def test_packing_of_index_lists() -> None:
    active = np.array([[0, 9], [7, 8], [3, 10]], np.int32)
    expected = [[1, 2], [128, 1], [8, 4]]
    assert pack.pack_active(active, 11).tolist() == expected
    assert pack.pack_active_reference(active, 11).tolist() == expected


@given(st.integers(0, 5), st.integers(1, 200), st.data())
def test_unpacking_of_index_lists(m: int, b: int, data: st.DataObject) -> None:
    n_active = data.draw(st.integers(0, b))
    rng = np.random.default_rng(b)
    active = np.sort(np.argsort(rng.random((m, b)), axis=1)[:, :n_active]).astype(np.int32)
    packed = pack.pack_active(active, b)
    for unpack in (pack.list_active, pack.list_active_reference):
        found = unpack(packed, n_active)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, active)


@pytest.mark.parametrize("unpack", [pack.list_active, pack.list_active_reference])
def test_codes_of_other_numbers_of_ones_are_refused(unpack) -> None:  # type: ignore[no-untyped-def]
    packed = np.array([[3, 0], [0, 129], [7, 0], [0, 0]], np.uint8)
    with pytest.raises(ValueError, match="expected 2 ones in every code, row 2 has 3"):
        unpack(packed, 2)
    with pytest.raises(ValueError, match="row 1 has 1"):
        unpack(np.array([[3], [1]], np.uint8), 2)


def test_a_wrong_width_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 2 bytes"):
        pack.unpack_bits(np.zeros((1, 3), np.uint8), 9)


def test_without_numba_the_references_run_after_one_warning() -> None:
    script = """
import sys, warnings
sys.modules["numba"] = None
import numpy as np
from bitfleet.tasks.kernels import _numba, wta
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        active = wta.top_active(np.array([[3.0, 1.0, 2.0]]), 2)
print(active.tolist(), _numba.engine(), len(caught), "NumPy kernels" in str(caught[0].message))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "[[0, 2]] numpy 1 True"


def test_importing_the_kernels_does_not_import_numba() -> None:
    script = "import sys, bitfleet.tasks.encode; print('numba' in sys.modules, 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
