"""A code is a function of its row alone, and equals the definition computed with exact fractions."""

from __future__ import annotations

import pickle
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from bitfleet.tasks import encode
from bitfleet.tasks.encode import ProjectionEncoder
from bitfleet.tasks.kernels.pack import unpack_bits
from hypothesis import given, settings
from hypothesis import strategies as st


def by_definition(encoder: ProjectionEncoder, vectors: np.ndarray) -> np.ndarray:
    """Codes from the fixed-order float64 score, written with Python numbers."""
    bits = np.zeros((len(vectors), encoder.n_bits), np.uint8)
    for i, row in enumerate(vectors.astype(np.float64)):
        centred = [float(v) - float(m) for v, m in zip(row, encoder.mean, strict=True)]
        scores = []
        for column in encoder.projection.T:
            a = [0.0] * 8
            for k, (c, p) in enumerate(zip(centred, column, strict=True)):
                a[k % 8] += c * float(p)
            scores.append(((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])))
        if encoder.n_active is None:
            bits[i] = [score >= 0 for score in scores]
        else:
            bits[i, sorted(range(len(scores)), key=lambda j: (-scores[j], j))[: encoder.n_active]] = 1
    return bits


def hard_rows(rng: np.random.Generator, projection: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Rows whose scores are close to zero or to each other, ordinary ones, zeros and the mean itself."""
    d, _ = projection.shape
    ordinary = rng.normal(size=(12, d)) + mean
    whole = rng.integers(-3, 4, size=(12, d)).astype(float)
    normal = projection[:, 0] / max(np.linalg.norm(projection[:, 0]), 1e-300)
    flat = rng.normal(size=(12, d))
    flat -= np.outer(flat @ normal, normal)
    difference = projection[:, 0] - projection[:, -1]
    even = rng.normal(size=(12, d))
    even -= np.outer(even @ difference, difference) / max(difference @ difference, 1e-300)
    return np.concatenate([ordinary, whole, flat + mean, even + mean, np.zeros((1, d)), mean[None]])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(2, 33),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["f4", "f8"]),
    st.integers(0, 2**32),
)
def test_codes_follow_the_definition(
    d: int, b: int, sparse: bool, whole: bool, dtype: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    projection = rng.integers(-1, 2, (d, b)).astype(float) if whole else rng.normal(size=(d, b))
    projection[:, b // 2] = projection[:, 0]  # two bits that always tie
    mean = np.zeros(d) if whole else rng.normal(size=d) * 100
    encoder = ProjectionEncoder(mean, projection, int(rng.integers(1, b)) if sparse else None)
    rows = hard_rows(rng, projection, mean).astype(dtype)
    np.testing.assert_array_equal(unpack_bits(encoder.encode(rows), b), by_definition(encoder, rows))


def embed(rng: np.random.Generator, kind: str, sparse: bool) -> tuple[ProjectionEncoder, np.ndarray]:
    d, b = 61, 77
    n_active = 9 if sparse else None
    mean = rng.normal(size=d)
    if kind == "factored":
        first, second = rng.normal(size=(d, 5)), rng.normal(size=(5, b))
        return ProjectionEncoder(mean, first @ second, n_active, factors=(first, second)), mean
    if kind == "binary":
        return ProjectionEncoder(np.zeros(d), (rng.random((d, b)) < 0.2).astype(float), n_active), mean
    return ProjectionEncoder(mean, rng.normal(size=(d, b)), n_active), mean


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["dense", "factored", "binary"])
def test_tiles_of_any_size_at_any_offset_give_equal_bytes(kind: str, sparse: bool, dtype: str) -> None:
    rng = np.random.default_rng(5)
    encoder, mean = embed(rng, kind, sparse)
    rows = np.concatenate([hard_rows(rng, encoder.projection, mean) for _ in range(40)]).astype(dtype)
    whole = encoder.encode(rows)
    for size in (1, 2, 7, 1000):
        for offset in (0, 3):
            parts = [encoder.encode(rows[:offset])]
            parts += [encoder.encode(rows[i : i + size]) for i in range(offset, len(rows), size)]
            np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(encoder.encode(rows[::-1])[::-1], whole)
    np.testing.assert_array_equal(encoder.encode(np.asfortranarray(rows)), whole)


@pytest.mark.parametrize("kind", ["dense", "factored", "binary"])
def test_the_fast_product_stays_within_its_bound(kind: str) -> None:
    rng = np.random.default_rng(6)
    encoder, mean = embed(rng, kind, sparse=True)
    rows = hard_rows(rng, encoder.projection, mean).astype(np.float32)
    [(tile, fast)] = encoder._tiles(rows)
    centred = tile.centred(np.arange(len(rows)))
    plan = encoder._plan
    for i in range(len(rows)):
        for j in range(0, encoder.n_bits, 7):
            true = sum(
                Fraction(float(c)) * Fraction(float(p))
                for c, p in zip(centred[i], plan.columns[j], strict=False)
            )
            bound = plan.relative_error * tile.lengths[i] * plan.lengths[j]
            assert abs(Fraction(float(fast[i, j])) - true) <= Fraction(float(bound))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("exponent", [-1070, -300, -140, -40, 0, 40, 120, 300, 1000])
def test_the_scale_of_a_row_changes_nothing(exponent: int, sparse: bool) -> None:
    rng = np.random.default_rng(8)
    projection = rng.integers(-4, 5, (20, 30)).astype(float)
    encoder = ProjectionEncoder(np.zeros(20), projection, 4 if sparse else None)
    rows = rng.integers(-8, 9, (50, 20)).astype(float)
    expected = encoder.encode(rows)
    np.testing.assert_array_equal(encoder.encode(np.ldexp(rows, exponent)), expected)
    if -140 <= exponent <= 120:
        np.testing.assert_array_equal(encoder.encode(np.ldexp(rows, exponent).astype(np.float32)), expected)
    scaled = ProjectionEncoder(np.zeros(20), np.ldexp(projection, min(exponent, 900)), encoder.n_active)
    np.testing.assert_array_equal(scaled.encode(rows), expected)


@pytest.mark.parametrize("sparse", [False, True])
def test_every_number_type_gives_the_codes_of_its_values(sparse: bool) -> None:
    rng = np.random.default_rng(9)
    encoder, _ = embed(rng, "dense", sparse)
    small = rng.integers(0, 2, (40, 61))
    expected = encoder.encode(small.astype(np.float64))
    for dtype in ("?", "u1", "i1", "u2", "i2", "i4", "u4", "i8", "u8", "f2", "f4", ">f4", "<f8"):
        np.testing.assert_array_equal(encoder.encode(small.astype(dtype)), expected)


def test_without_numba_the_codes_are_the_same() -> None:
    script = """
import sys, warnings
sys.modules["numba"] = None
warnings.simplefilter("ignore")
import numpy as np
from bitfleet.tasks.encode import ProjectionEncoder
rng = np.random.default_rng(14)
first, second = rng.normal(size=(450, 6)), rng.integers(-2, 3, (6, 45)).astype(float)
rows = np.concatenate([rng.normal(size=(30, 450)), rng.integers(-1, 2, (30, 450)), np.zeros((1, 450))])
rows[7] *= 1e-200
for n_active in (None, 5):
    for factors in (None, (first, second)):
        encoder = ProjectionEncoder(rng.normal(size=450), first @ second, n_active, factors=factors)
        for dtype in ("f4", "f8"):
            print(encoder.encode(rows.astype(dtype)).tobytes().hex())
"""
    bare = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ours = script.replace('sys.modules["numba"] = None', "")
    done = subprocess.run([sys.executable, "-c", ours], capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 8
    assert done.stdout == bare.stdout


def test_more_features_than_float32_can_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(10)
    projection, rows = rng.normal(size=(30, 12)), rng.normal(size=(20, 30))
    expected = ProjectionEncoder(np.zeros(30), projection, 3).encode(rows)
    monkeypatch.setattr(encode, "_FLOAT32_FEATURES", 10)
    wide = ProjectionEncoder(np.zeros(30), projection, 3)
    assert wide._plan.matrices[0].dtype == np.float64
    np.testing.assert_array_equal(wide.encode(rows), expected)


def test_a_row_equal_to_the_mean_ties_everywhere() -> None:
    rng = np.random.default_rng(11)
    mean = rng.normal(size=6)
    dense = ProjectionEncoder(mean, rng.normal(size=(6, 10)))
    sparse = ProjectionEncoder(mean, rng.normal(size=(6, 10)), 3)
    assert unpack_bits(dense.encode(mean[None]), 10).tolist() == [[1] * 10]
    assert sparse.active(mean[None]).tolist() == [[0, 1, 2]]


def test_no_rows_give_no_codes_and_the_input_is_not_changed() -> None:
    rng = np.random.default_rng(12)
    encoder, _ = embed(rng, "dense", False)
    assert encoder.encode(np.empty((0, 61), np.float32)).shape == (0, 10)
    rows = rng.normal(size=(9, 61)) * 1e200
    rows.setflags(write=False)
    encoder.encode(rows)


def test_pickling_keeps_the_codes_and_not_the_derived_arrays() -> None:
    rng = np.random.default_rng(13)
    encoder, _ = embed(rng, "factored", True)
    payload = pickle.dumps(encoder)
    rows = rng.normal(size=(30, 61)).astype(np.float32)
    np.testing.assert_array_equal(pickle.loads(payload).encode(rows), encoder.encode(rows))
    assert len(payload) < encoder.projection.nbytes + 5 * (61 + 77) * 8 + 2000


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.zeros((3, 5)), r"expected vectors of shape \(m, 4\)"),
        (np.zeros(4), r"expected vectors of shape \(m, 4\)"),
        (np.zeros((3, 4), complex), "expected real numbers"),
        (np.zeros((3, 4), object), "expected real numbers"),
        (np.array([[0.0] * 4, [np.nan] * 4]), "row 1 holds NaN"),
        (np.array([[0.0] * 4, [0.0] * 4, [np.inf, -np.inf, 0, 0]], np.float32), "row 2 holds NaN"),
    ],
)
def test_unusable_vectors_are_refused(vectors: np.ndarray, message: str) -> None:
    for n_active in (None, 2):
        encoder = ProjectionEncoder(np.zeros(4), np.ones((4, 3)), n_active)
        with pytest.raises(ValueError, match=message):
            encoder.encode(vectors)


@pytest.mark.parametrize(
    ("mean", "projection", "n_active", "message"),
    [
        (np.zeros(3), np.zeros((4, 2)), None, "expected a mean of shape"),
        (np.zeros(4), np.zeros((4, 0)), None, "expected a projection of shape"),
        (np.zeros(4), np.full((4, 2), np.nan), None, "finite"),
        (np.zeros(4), np.zeros((4, 2)), 2, "n_active < n_bits"),
        (np.zeros(4), np.zeros((4, 2)), 0, "n_active < n_bits"),
    ],
)
def test_unusable_parameters_are_refused(
    mean: np.ndarray, projection: np.ndarray, n_active: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ProjectionEncoder(mean, projection, n_active)


def test_dense_codes_have_no_active_list() -> None:
    with pytest.raises(ValueError, match="dense codes"):
        ProjectionEncoder(np.zeros(2), np.ones((2, 2))).active(np.ones((1, 2)))


def test_factors_that_do_not_make_the_projection_are_refused() -> None:
    rng = np.random.default_rng(14)
    first, second = rng.normal(size=(6, 2)), rng.normal(size=(2, 5))
    with pytest.raises(ValueError, match="product is the projection"):
        ProjectionEncoder(np.zeros(6), first @ second + 1e-9, factors=(first, second))


def test_factors_that_cancel_are_not_used() -> None:
    first = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0], [5.0, 5.0]])
    second = np.array([[1e9, 1.0, 1.0, 1.0, 3.0], [1.0 - 1e9, 0.0, 1.0, 2.0, 4.0]])
    encoder = ProjectionEncoder(np.zeros(5), first @ second, factors=(first, second))
    assert len(encoder._plan.matrices) == 1
