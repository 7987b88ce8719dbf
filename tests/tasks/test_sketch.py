"""Frequent Directions: its bound over any split and merge tree, against whole matrices and a reference."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse
from bitfleet import FrequentDirections
from bitfleet.tasks.gram import ExactGram, sketch_for
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pathlib import Path

D = 12


def affinities(rng: np.random.Generator, n: int) -> np.ndarray:
    X = rng.normal(size=(n, 3))
    return np.exp(-np.square(X[:, None] - rng.normal(size=(D, 3))).sum(axis=2))


MATRICES = {
    "random": lambda rng, n: rng.normal(size=(n, D)),
    "low rank": lambda rng, n: rng.normal(size=(n, 2)) @ rng.normal(size=(2, D)),
    "spiked": lambda rng, n: rng.normal(size=(n, D)) * rng.choice([1e-3, 1.0, 1e3], (n, 1)),
    "affinities": affinities,
    "falling": lambda rng, n: rng.normal(size=(n, D)) * 4.0 ** -np.arange(D),
    "all equal": lambda rng, n: np.ones((n, D)),
    "zero": lambda rng, n: np.zeros((n, D)),
}


@st.composite
def streams(draw: st.DrawFn) -> tuple[np.ndarray, list[int], list[int], tuple[int, int]]:
    """Rows, where they are split, in which order neighbours merge, and the sketch's sizes."""
    n = draw(st.integers(1, 200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    A = MATRICES[draw(st.sampled_from(sorted(MATRICES)))](rng, n)
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=8)))
    order = [draw(st.integers(0, i)) for i in range(len(cuts) - 1, -1, -1)]
    size = draw(st.integers(1, D + 2))
    return A, cuts, order, (size, size + draw(st.integers(1, 3 * size)))


def sketch_of(sizes: tuple[int, int], dtype: str) -> FrequentDirections:
    return FrequentDirections(sizes[0], buffer_size=sizes[1], dtype=dtype)


def merged(
    A: np.ndarray, cuts: list[int], order: list[int], sizes: tuple[int, int], dtype: str
) -> FrequentDirections:
    parts = [sketch_of(sizes, dtype).partial_fit(part) for part in np.split(A, cuts)]
    for place in order:
        parts[place : place + 2] = [parts[place].merge(parts[place + 1])]
    return parts[0]


def lost(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh(A.T @ A - B.T.astype(float) @ B)


@settings(max_examples=80, deadline=None)
@given(streams())
def test_the_certificate_holds_over_any_split_and_merge_tree(case: tuple) -> None:
    A, cuts, order, sizes = case
    size = sizes[0]
    sketch = merged(A, cuts, order, sizes, "float64")
    square, gone = np.sum(A**2), lost(A, sketch.components_)
    assert len(sketch.components_) <= size
    assert gone[0] >= -1e-9 * square
    assert gone[-1] <= sketch.certificate_ * (1 + 1e-6) + 1e-9 * square
    values = np.linalg.svd(A, compute_uv=False) ** 2
    prior = min(values[k:].sum() / (size + 1 - k) for k in range(size + 1))
    assert sketch.certificate_ <= prior * (1 + 1e-9) + 1e-12 * square
    assert sketch.square_ == pytest.approx(square)
    assert sketch.n_samples_seen_ == len(A)


@settings(max_examples=40, deadline=None)
@given(streams())
def test_float32_keeps_it_up_to_its_slack(case: tuple) -> None:
    A, cuts, order, sizes = case
    A = A.astype(np.float32)
    sketch = merged(A, cuts, order, sizes, "float32")
    assert sketch.components_.dtype == np.float32
    gone = lost(A.astype(float), sketch.components_)
    assert gone[0] >= -sketch.slack_
    assert gone[-1] <= sketch.certificate_ + sketch.slack_


@pytest.mark.parametrize("name", MATRICES)
def test_long_streams_stay_within_certificate_and_slack(name: str) -> None:
    A = MATRICES[name](np.random.default_rng(5), 6000)
    for dtype in ("float64", "float32"):
        rows = A.astype(dtype)
        sketch = FrequentDirections(4, dtype=dtype).partial_fit(rows)
        gone = lost(rows.astype(float), sketch.components_)
        assert gone[0] >= -sketch.slack_
        assert gone[-1] <= sketch.certificate_ + sketch.slack_


@settings(max_examples=25, deadline=None)
@given(streams(), st.sampled_from(["float64", "float32"]))
def test_bits_depend_on_the_rows_alone(case: tuple, dtype: str) -> None:
    """Not on how many come at a time, nor on being read, stored or sparse in between."""
    A, cuts, _, sizes = case
    whole, pieces = sketch_of(sizes, dtype).partial_fit(A), sketch_of(sizes, dtype)
    for part in np.split(A, cuts):
        pieces.partial_fit(scipy.sparse.csr_matrix(part) if len(part) % 2 else part)
        assert pieces.certificate_ >= 0
        pieces = FrequentDirections.from_arrays(sizes[0], pieces.arrays(), buffer_size=sizes[1])
    for left, right in zip(whole.arrays().values(), pieces.arrays().values(), strict=True):
        assert left.tobytes() == right.tobytes()
    assert whole.components_.tobytes() == pieces.components_.tobytes()


def test_few_rows_and_few_dimensions_are_exact() -> None:
    rng = np.random.default_rng(1)
    few = rng.normal(size=(7, D))
    sketch = FrequentDirections(7).partial_fit(few)
    np.testing.assert_allclose(sketch.components_.T @ sketch.components_, few.T @ few, atol=1e-12)
    flat = rng.normal(size=(500, 3)) @ rng.normal(size=(3, D))
    sketch = FrequentDirections(3).partial_fit(flat)
    B = sketch.components_
    np.testing.assert_allclose(B.T @ B, flat.T @ flat, atol=1e-9)
    assert sketch.certificate_ < 1e-9
    np.testing.assert_allclose(B @ B.T, np.diag(sketch.energies_), atol=1e-9)
    assert (np.diff(sketch.energies_) <= 0).all()


def test_against_the_row_by_row_reference(root: Path) -> None:
    reference = runpy.run_path(str(root / "benchmarks" / "reference" / "frequent_directions.py"))
    A = MATRICES["affinities"](np.random.default_rng(2), 700)
    theirs: Any = reference["FrequentDirections"](D, 5)
    for row in A:
        theirs.append(row)
    ours = FrequentDirections(5).partial_fit(A)
    gone = lost(A, theirs.sketch())  # the whole buffer: half of it alone breaks the bound
    assert gone[0] >= -1e-9
    assert gone[-1] <= theirs.lost * (1 + 1e-6)
    assert ours.certificate_ < theirs.lost


def test_merging_changes_neither_side_and_no_rows_change_nothing() -> None:
    A = MATRICES["random"](np.random.default_rng(3), 90)
    left = FrequentDirections(4).partial_fit(A[:50])
    right = FrequentDirections(4).partial_fit(A[50:])
    before = [a.tobytes() for s in (left, right) for a in s.arrays().values()]
    left.merge(right)
    assert before == [a.tobytes() for s in (left, right) for a in s.arrays().values()]
    for same in (left.merge(FrequentDirections(4)), FrequentDirections(4).merge(left)):
        assert same.components_.tobytes() == left.components_.tobytes()
        assert same.n_samples_seen_ == 50


def test_exact_sums_take_over_where_they_are_cheaper() -> None:
    A = MATRICES["affinities"](np.random.default_rng(4), 300)
    exact = sketch_for(D, 2, 4, "float64").partial_fit(A[:100]).merge(ExactGram(D).partial_fit(A[100:]))
    assert isinstance(exact, ExactGram)
    values, vectors = exact.spectrum()
    expected = np.linalg.svd(A)
    np.testing.assert_allclose(values, expected.S**2, rtol=1e-8)
    np.testing.assert_allclose(np.abs(np.sum(vectors.T * expected.Vh, axis=1)), 1, atol=1e-6)
    assert exact.certificate_ == 0
    assert exact.n_samples_seen_ == 300
    assert isinstance(sketch_for(17, 2, 4, "float64"), FrequentDirections)


def test_bad_input_says_what_is_wrong_and_changes_nothing() -> None:
    for bad in (0, -1, 2.5, True, "three"):
        with pytest.raises(ValueError, match="sketch_size to be an integer >= 1"):
            FrequentDirections(bad)  # type: ignore[arg-type]
    for bad in (3, 2.5, "many"):
        with pytest.raises(ValueError, match="buffer_size to be an integer >= 4"):
            FrequentDirections(3, buffer_size=bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dtype to be one of float64, float32"):
        FrequentDirections(3, dtype="float16")
    sketch = FrequentDirections(3).partial_fit(np.ones((20, D)))
    before = sketch.components_
    rows = np.ones((9, D))
    rows[4, 2] = np.nan
    for bad, message in (
        (rows, "NaN or infinity"),
        (np.ones((2, 5)), r"expected rows of shape \(m, 12\), got \(2, 5\)"),
        (np.ones(12), r"got \(12,\)"),
        (np.array([["a"] * 12]), "real numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            sketch.partial_fit(bad)
    np.testing.assert_array_equal(sketch.components_, before)
    with pytest.raises(ValueError, match="same sketch_size, got 3 and 4"):
        sketch.merge(FrequentDirections(4))
    with pytest.raises(ValueError, match="same buffer_size, got 6 and 7"):
        sketch.merge(FrequentDirections(3, buffer_size=7))
    with pytest.raises(ValueError, match="same width, got 12 and 2"):
        sketch.merge(FrequentDirections(3).partial_fit([[1.0, 2.0]]))
    with pytest.raises(ValueError, match="overflow float32"):
        _ = FrequentDirections(1, dtype="float32").partial_fit(np.full((5, 2), 1e30)).components_
