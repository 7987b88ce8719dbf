"""The coarse quantizer, asymmetric distances and the codes laid out for search."""

from __future__ import annotations

import numpy as np
import pytest
from bitfleet.tasks import asymmetric, clusters, index
from bitfleet.tasks.kernels import running
from bitfleet.tasks.kernels.pack import pack_bits
from bitfleet.tasks.protocols import Block
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist


def blobs(rng: np.random.Generator, n: int, d: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    centres = rng.normal(size=(c, d)) * 20
    labels = rng.integers(0, c, n)
    return (centres[labels] + rng.normal(size=(n, d))).astype(np.float32), labels


def fitted(rows: np.ndarray, c: int, seed: int = 0) -> clusters.CoarseQuantizer:
    return clusters.fit_quantizer(lambda numbers: rows[numbers], len(rows), c, seed)


def test_centroids_are_the_means_of_what_is_nearest_to_them() -> None:
    rows, _ = blobs(np.random.default_rng(0), 600, 5, 4)
    found = fitted(rows, 12)
    assert found.components is None
    assigned = found.assign(rows)
    exact = cdist(rows - found.mean, found.centroids)
    assert np.array_equal(assigned, exact.argmin(axis=1))
    for c in range(12):
        assert found.centroids[c] == pytest.approx((rows - found.mean)[assigned == c].mean(axis=0), abs=0.5)


@pytest.mark.parametrize("d", [3, 200])
def test_separate_groups_get_clusters_of_their_own(d: int) -> None:
    rows, labels = blobs(np.random.default_rng(1), 500, d, 3)
    found = fitted(rows, 30)
    for c in range(30):
        assert len(np.unique(labels[found.assign(rows) == c])) <= 1


def test_the_same_seed_gives_the_same_clusters() -> None:
    rows = np.random.default_rng(2).normal(size=(700, 80)).astype(np.float32)
    one, two, other = fitted(rows, 7), fitted(rows, 7), fitted(rows, 7, seed=1)
    assert np.array_equal(one.centroids, two.centroids)
    assert not np.array_equal(one.centroids, other.centroids)


def test_fewer_different_rows_than_clusters() -> None:
    rows = np.repeat(np.eye(3, dtype=np.float32), 20, axis=0)
    found = fitted(rows, 10)
    assert np.isfinite(found.centroids).all()
    assert len(np.unique(found.assign(rows))) == 3


def test_probes_are_the_nearest_clusters_and_enough_for_k() -> None:
    rng = np.random.default_rng(3)
    rows, queries = rng.normal(size=(400, 6)).astype(np.float32), rng.normal(size=(9, 6)).astype(np.float32)
    found = fitted(rows, 20)
    sizes = np.bincount(found.assign(rows), minlength=20)
    order = cdist(queries - found.mean, found.centroids).argsort(axis=1)
    assert np.array_equal(found.probes(queries, 4, sizes, 1), order[:, :4])
    for k in (100, 400):
        probes = found.probes(queries, 1, sizes, k)
        for q in range(9):
            taken = probes[q][probes[q] >= 0]
            assert np.array_equal(taken, order[q, : len(taken)])
            assert sizes[taken].sum() >= k
            assert sizes[taken[:-1]].sum() < k
    assert found.probes(queries[:0], 4, sizes, 1).shape[0] == 0


@pytest.mark.parametrize("n", [1, 3, 40])
def test_few_smallest_are_in_order_and_first_among_equals(n: int) -> None:
    values = np.random.default_rng(n).integers(0, 9, (30, 40)).astype(np.float32)
    expected = [sorted(range(40), key=lambda i, row=row: (row[i], i))[:n] for row in values]
    assert np.array_equal(running.few_smallest(values, n), expected)
    assert np.array_equal(running.few_smallest_reference(values, n), expected)


# ---------------------------------------------------------------- asymmetric distances


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 80), st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**32))
def test_asymmetric_search_equals_its_definition(n: int, n_bits: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (n, n_bits), dtype=np.uint8)
    projections = rng.normal(size=(3, n_bits)) * 10.0 ** rng.integers(-30, 30)
    k = min(k, n)
    found = asymmetric.nearest_to_projections(projections, pack_bits(bits), k)
    exact = asymmetric.asymmetric_distances(projections, bits)
    rows = np.argsort(exact, axis=1, kind="stable")[:, :k]
    assert np.array_equal(found[1], rows)
    assert np.array_equal(found[0], np.take_along_axis(exact, rows, axis=1))
    unlike = (projections[:, None] >= 0) != (bits[None] == 1)
    loose = np.where(unlike, np.abs(projections)[:, None], 0).sum(axis=2)
    assert found[0] == pytest.approx(np.take_along_axis(loose, rows, axis=1), rel=1e-9, abs=0)


def test_signs_alone_give_hamming_distances() -> None:
    rng = np.random.default_rng(0)
    bits, query = rng.integers(0, 2, (50, 30), dtype=np.uint8), rng.integers(0, 2, (2, 30), dtype=np.uint8)
    found = asymmetric.nearest_to_projections(2.0 * query - 1, pack_bits(bits), 50)
    exact = cdist(query, bits, "cityblock")
    assert np.array_equal(found[1], np.argsort(exact, axis=1, kind="stable"))
    assert np.array_equal(found[0], np.sort(exact, axis=1))


def test_asymmetric_blocks_add_up() -> None:
    rng = np.random.default_rng(1)
    packed = pack_bits(rng.integers(0, 2, (90, 12), dtype=np.uint8))
    projections = rng.normal(size=(4, 12))
    whole = asymmetric.nearest_to_projections(projections, packed, 10)
    accumulator = asymmetric.NearestProjectionsAccumulator(projections, 10, None)
    leaves = [
        accumulator.update(accumulator.init(), Block(np.arange(a, b), packed[a:b]))
        for a, b in ((0, 31), (31, 32), (32, 90))
    ]
    merged = accumulator.merge(leaves[2], accumulator.merge(leaves[0], leaves[1]))
    assert np.array_equal(accumulator.finalize(merged)["id"], whole[1])
    assert np.array_equal(accumulator.finalize(merged)["distance"], whole[0])


# ---------------------------------------------------------------- codes laid out for search


@pytest.mark.parametrize("near", [True, False])
def test_every_strategy_finds_the_same(near: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_WORTH_SORTING", 1000)
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (4000, 64), dtype=np.uint8)
    if near:
        bits = bits[rng.integers(0, 30, 4000)] ^ (rng.random((4000, 64)) < 0.02)
    packed = pack_bits(bits)
    queries = packed[:40]
    exact = cdist(bits[:40], bits, "cityblock")
    rows = np.argsort(exact, axis=1, kind="stable")[:, :5]
    for strategy in index.STRATEGIES:
        codes = index.DenseCodes(packed, strategy)
        for _ in range(2):
            distances, found = codes.search(queries, 5)
            assert np.array_equal(found, rows)
            assert np.array_equal(distances, np.take_along_axis(exact, rows, axis=1))
        if strategy == "auto":
            assert codes._pays == {5: near}
