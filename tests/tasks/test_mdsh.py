"""MDSH: eigenvectors of the whole affinity matrix, affinities as a loop over all products, falling errors."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
import scipy.linalg
from bitfleet.tasks.curves import Grid, Histogram
from bitfleet.tasks.eigenfunctions import affinity_functions
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.base import Front
from bitfleet.tasks.methods.mdsh import MDSH
from bitfleet.tasks.protocols import Block
from bitfleet.tasks.weighted_hamming import BitAffinity

if TYPE_CHECKING:
    from collections.abc import Callable

SIGMA = 0.15


@pytest.fixture
def rectangle() -> np.ndarray:
    """Rows that fill a rectangle evenly, the paper's uniform data without chance."""
    x, y = (np.arange(36) + 0.5) / 36, (np.arange(25) + 0.5) / 36
    return np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)


def gaussian(X: np.ndarray, sigma: float = SIGMA) -> np.ndarray:
    return np.exp(-np.square(X[:, None] - X).sum(axis=2) / (2 * sigma**2))


def signs(method: Any, state: Any, X: np.ndarray) -> np.ndarray:
    return 2.0 * unpack_bits(method.encoder(state).encode(X), method.n_bits) - 1


def test_products_are_the_eigenvectors_of_the_affinity_matrix(train: Callable, rectangle: np.ndarray) -> None:
    method = MDSH(8, sigma=SIGMA, products=True, clip=0)
    state = train(method, rectangle)[-1]
    values, vectors = scipy.linalg.eigh(gaussian(rectangle))
    values, vectors = values[::-1][:9] / len(rectangle), vectors[:, ::-1][:, :9]
    found = [state.arrays["bases"][0], *state.arrays["bit_weights"]]
    np.testing.assert_allclose(found, values, rtol=0.01)
    assert (np.diff(values) < -0.02 * values[1:]).all()  # no two are equal: vectors are well defined
    clear = np.abs(vectors[:, 1:]) > 0.1 * np.abs(vectors[:, 1:]).max(axis=0)
    same = np.sign(vectors[:, 1:]) == signs(method, state, rectangle)
    shares = (same & clear).sum(axis=0) / clear.sum(axis=0)
    np.testing.assert_allclose(np.maximum(shares, 1 - shares), 1)


def test_uniform_data_has_the_papers_eigenvalues() -> None:
    """λ_j ∝ exp(-σ²/2 (j π / R)²) as σ / R goes to 0; sines, since rows at an end have fewer neighbours."""
    values, functions = affinity_functions(np.full(400, 7), 1 / 400, 0.01, 6)
    j, x = np.arange(1, 7), (np.arange(400) + 0.5) / 400
    expected = 0.01 * np.sqrt(2 * np.pi) * np.exp(-0.5 * (0.01 * j * np.pi) ** 2)
    np.testing.assert_allclose(values, expected, rtol=0.01)
    sines = np.sqrt(2) * np.sin(np.pi * j[:, None] * x)
    assert (np.abs((functions * sines).mean(axis=1)) > 0.99).all()


def test_functions_add_up_to_the_affinity() -> None:
    counts = np.array([0, 3, 9, 20, 31, 18, 0, 0, 4, 11, 2, 0])
    values, functions = affinity_functions(counts, 0.5, 0.8, 12)
    places = 0.5 * np.arange(12)
    there = counts > 0
    expected = np.exp(-np.square(places[:, None] - places) / (2 * 0.8**2))
    found = np.einsum("j,ju,jv->uv", values, functions, functions)
    np.testing.assert_allclose(found[np.ix_(there, there)], expected[np.ix_(there, there)], atol=1e-6)
    assert values.sum() == pytest.approx(1)
    weighted = functions * (counts / counts.sum())
    np.testing.assert_allclose(weighted @ functions.T, np.eye(len(values)), atol=1e-6)


def test_bits_and_affinities_are_their_definition(train: Callable) -> None:
    """The product over components is the sum over all products of functions, listed one by one."""
    X = np.random.default_rng(0).gamma(2, size=(200, 3)) * [3, 2, 1]
    method = MDSH(7, sigma=2.0, n_bins=20)
    state = train(method, X)[-1]
    a = state.arrays
    v = np.clip((X - X.mean(axis=0)) @ a["components"], a["low"], a["high"])
    bits = signs(method, state, X)
    for j, place in enumerate(a["places"]):
        middles = a["least"][place] + a["step"][place] * (np.arange(20) + 0.5)
        function = np.interp(v[:, place], middles, a["values"][j])
        clear = np.abs(function) > 1e-9
        np.testing.assert_array_equal(bits[clear, j], np.sign(function)[clear])
    codes = method.encoder(state).encode(X)
    found = method.affinity(state).of(codes[:10], codes)
    choices = [
        [(a["bases"][i], None)] + [(w, j) for j, w in enumerate(a["bit_weights"]) if a["groups"][j] == i]
        for i in range(3)
    ]
    expected = np.zeros((10, 200))
    for product in itertools.product(*choices):
        value, y = 1.0, np.ones(200)
        for weight, j in product:
            value *= weight
            y = y if j is None else y * bits[:, j]
        expected += value * np.outer(y[:10], y)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("products", [False, True])
def test_affinities_come_near_as_bits_grow_where_plain_distances_do_not(
    train: Callable, rectangle: np.ndarray, products: bool
) -> None:
    w = gaussian(rectangle)
    errors, weighted, plain = [], [], []
    for n_bits in (2, 8, 32):
        method = MDSH(n_bits, sigma=SIGMA, products=products, clip=0)
        state = train(method, rectangle)[-1]
        codes = method.encoder(state).encode(rectangle)
        affinities, y = method.affinity(state).of(codes, codes), signs(method, state, rectangle)
        errors.append(np.linalg.norm(affinities - w) / np.linalg.norm(w))
        weighted.append(np.corrcoef(affinities.ravel(), w.ravel())[0, 1])
        plain.append(np.corrcoef((y @ y.T).ravel(), w.ravel())[0, 1])
        assert affinities.max() <= 1
    assert errors[0] > errors[1] > errors[2] - 0.002
    assert weighted[2] > weighted[0] + 0.1
    assert weighted[2] > plain[2] + 0.1
    assert affinities[0, 0] == pytest.approx(1, abs=0.02)


def test_histograms_are_numpys_and_add_up() -> None:
    X = np.random.default_rng(1).normal(size=(500, 3))
    grid = Grid.between(X.min(axis=0), X.max(axis=0), 40)
    histogram = Histogram(Front(np.zeros(3)), grid)
    blocks = [Block(np.arange(len(part)), part) for part in np.split(X, [1, 77, 300])]
    parts = [histogram.update(histogram.init(), block) for block in blocks]
    counts = parts[0]
    for part in parts[1:]:
        counts = histogram.merge(counts, part)
    for i in range(3):
        np.testing.assert_array_equal(counts["counts"][i], np.histogram(X[:, i], 40)[0])
    low, high = grid.quantiles(counts["counts"], 0.1)
    np.testing.assert_allclose(low, np.quantile(X, 0.1, axis=0), atol=grid.step.max())
    np.testing.assert_allclose(high, np.quantile(X, 0.9, axis=0), atol=grid.step.max())
    assert [a.tolist() for a in grid.quantiles(counts["counts"], 0)] == [
        grid.least.tolist(), (grid.least + 40 * grid.step).tolist(),
    ]  # fmt: skip


def test_bits_beyond_the_functions_are_ones(train: Callable) -> None:
    X = np.random.default_rng(0).random((300, 1))
    for products in (False, True):
        method = MDSH(64, sigma=0.5, products=products)
        state = train(method, X)[-1]
        n = state.scalars["n_functions"]
        assert 3 < n < 20
        assert (signs(method, state, X)[:, n:] == 1).all()
        assert not state.arrays["bit_weights"][n:].any()


def test_the_search_is_a_sort_of_affinities() -> None:
    rng = np.random.default_rng(2)
    X, Q = rng.normal(size=(400, 6)), rng.normal(size=(20, 6))
    mdsh = bf.MDSH(n_bits=12).fit(X)
    codes, queries = mdsh.encode(X), mdsh.encode(Q)
    affinities, ids = bf.weighted_hamming(codes, queries, 1000, model=mdsh)
    found = mdsh.model_.method.affinity(mdsh.model_.state).of(queries, codes)
    for q in range(20):
        order = np.argsort(-found[q], kind="stable")
        np.testing.assert_array_equal(ids[q], order)
        np.testing.assert_array_equal(affinities[q], found[q, order])
    few = bf.weighted_hamming(codes, queries, 7, model=mdsh)
    np.testing.assert_array_equal(few[1], ids[:, :7])
    with pytest.raises(bf.ConfigError, match="weighs its bits, such as mdsh, got one of itq"):
        bf.weighted_hamming(codes, queries, 7, model=bf.ITQ(n_bits=12).fit(X))
    with pytest.raises(bf.ConfigError, match="expected 2 bytes a code"):
        bf.weighted_hamming(codes[:, :1], queries, 7, model=mdsh)
    with pytest.raises(bf.ConfigError, match="k to be an integer >= 1"):
        bf.weighted_hamming(codes, queries, 0, model=mdsh)


def test_groups_of_more_than_eight_bits_are_added_up() -> None:
    rng = np.random.default_rng(3)
    affinity = BitAffinity(np.array([0.5, 1.0]), rng.random(21), rng.integers(0, 2, 21) * [1] * 21)
    bits = rng.integers(0, 2, (30, 21))
    y, codes = 2.0 * bits - 1, np.packbits(bits, axis=1, bitorder="little")
    factors = [
        base
        + (y[:, affinity.groups == g] * affinity.weights[affinity.groups == g]) @ y[:, affinity.groups == g].T
        for g, base in enumerate(affinity.bases)
    ]
    np.testing.assert_allclose(affinity.of(codes, codes), factors[0] * factors[1], atol=1e-12)


def test_refusals() -> None:
    for params, message in (
        ({"sigma": 0}, "sigma"),
        ({"n_bins": 1}, "n_bins"),
        ({"clip": 0.5}, "clip"),
        ({"products": 2}, "products"),
    ):
        with pytest.raises(ValueError, match=message):
            MDSH(**params)  # type: ignore[arg-type]


@pytest.mark.parametrize("products", [False, True])
def test_widths_that_leave_nothing_to_tell_rows_apart_are_refused(train: Callable, products: bool) -> None:
    X = np.random.default_rng(0).normal(size=(60, 6))
    for sigma, message in ((1e-5, "so small that bins"), (1e9, "so large that all bins are alike")):
        with pytest.raises(ValueError, match=message):
            train(MDSH(8, sigma=sigma, products=products), X)
    assert train(MDSH(8, sigma=1e-5), np.ones((20, 6)))[-1].scalars["n_functions"] == 0
