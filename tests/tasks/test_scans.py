"""The exhaustive scans against sorting all distances by (distance, row), one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.kernels import blocked, pivots, running, vertical
from bitfleet.tasks.kernels.hamming import as_words
from bitfleet.tasks.kernels.pack import list_active, pack_active, pack_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

if TYPE_CHECKING:
    from collections.abc import Callable

Found = tuple[np.ndarray, np.ndarray]


def by_sorting(
    query_bits: np.ndarray, bits: np.ndarray, k: int, among: list[np.ndarray] | None = None
) -> Found:
    """The k nearest by sorting (distance, row) pairs; ``among`` are the rows that count for each query."""
    distances = cdist(query_bits, bits, "cityblock").astype(int)
    rows = [range(len(bits))] * len(query_bits) if among is None else among
    pairs = [sorted((row[j], j) for j in each)[:k] for row, each in zip(distances, rows, strict=True)]
    found = np.array(pairs).reshape(len(query_bits), k, 2)
    return found[:, :, 0], found[:, :, 1]


def assert_equal(found: Found, expected: Found) -> None:
    assert (found[0].dtype, found[1].dtype) == (np.int32, np.int64)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1])


def words_of(bits: np.ndarray) -> np.ndarray:
    return as_words(pack_bits(bits))


def sparse(rng: np.random.Generator, n: int, n_bits: int, n_active: int) -> np.ndarray:
    return np.sort(np.argsort(rng.random((n, n_bits)), axis=1)[:, :n_active], axis=1)


def spread(active: np.ndarray, n_bits: int) -> np.ndarray:
    bits = np.zeros((len(active), n_bits), np.uint8)
    np.put_along_axis(bits, active, 1, axis=1)
    return bits


def dense_case(kind: str, rng: np.random.Generator, n: int, n_bits: int) -> np.ndarray:
    bits = rng.integers(0, 2, (n, n_bits), dtype=np.uint8)
    if kind == "identical":
        bits[:] = bits[0]
    elif kind == "two values":
        bits = bits[rng.integers(0, min(2, n), n)]
    elif kind == "near first":
        bits[n // 10 :] = 1 - bits[0]
        bits[: n // 10] = bits[0]
    return bits


# ---------------------------------------------------------------- dense codes


def search_dense(bits: np.ndarray, query_bits: np.ndarray, k: int) -> dict[str, Found]:
    words, queries = words_of(bits), words_of(query_bits)
    tiles = blocked.make_tiles(words)
    tree = pivots.sort_by_pivot(words, np.random.default_rng(0), 7)
    return {
        "tiles": blocked.search_tiles(tiles, queries, k),
        "tiles, NumPy": blocked.search_tiles_reference(tiles, queries, k),
        "pivots": pivots.search_pivots(tree, queries, k)[:2],
        "pivots, NumPy": pivots.search_sorted_reference(tree, None, queries, k),
    }


@pytest.mark.parametrize("kind", ["random", "identical", "two values", "near first"])
@pytest.mark.parametrize(
    ("n", "n_bits"), [(1, 5), (300, 64), (1100, 100), (4200, 17), (700, 256), (500, 330)]
)
@pytest.mark.parametrize("k", [1, 9, 250, 10_000])
def test_dense_scans_equal_sorting(kind: str, n: int, n_bits: int, k: int) -> None:
    rng = np.random.default_rng(n)
    bits = dense_case(kind, rng, n, n_bits)
    queries = np.concatenate([bits[:3], rng.integers(0, 2, (4, n_bits), dtype=np.uint8)])
    k = min(k, n)
    expected = by_sorting(queries, bits, k)
    for found in search_dense(bits, queries, k).values():
        assert_equal(found, expected)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 400), st.integers(1, 140), st.integers(1, 70), st.integers(1, 400), st.integers(0, 2**32)
)
def test_dense_scans_equal_sorting_for_any_sizes(n: int, n_bits: int, q: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (n, n_bits), dtype=np.uint8)
    queries = rng.integers(0, 2, (q, n_bits), dtype=np.uint8)
    expected = by_sorting(queries, bits, min(k, n))
    for found in search_dense(bits, queries, min(k, n)).values():
        assert_equal(found, expected)


@pytest.mark.parametrize("n_words", [1, 2, 3, 4])
def test_pivots_pass_over_codes_that_cannot_be_near(n_words: int) -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2, (20, 64 * n_words), dtype=np.uint8)[rng.integers(0, 20, 4000)]
    flipped = rng.random(bits.shape) < 0.02
    words = words_of(bits ^ flipped)
    tree = pivots.sort_by_pivot(words, np.random.default_rng(0), 20)
    distances, rows, compared = pivots.search_pivots(tree, words[:50], 5)
    assert_equal((distances, rows), blocked.search_tiles(blocked.make_tiles(words), words[:50], 5))
    assert compared < 0.5 * 50 * 4000


def test_centres_are_majorities() -> None:
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 2, (3, 128), dtype=np.uint8)
    bits = np.repeat(truth, 50, axis=0) ^ (rng.random((150, 128)) < 0.1)
    tree = pivots.sort_by_pivot(words_of(bits), np.random.default_rng(5), 3)
    assert tree.centres is not None
    found = {row.tobytes() for row in np.ascontiguousarray(tree.centres.T)}
    assert len(found & {row.tobytes() for row in words_of(truth)}) >= 1
    assert np.array_equal(np.sort(tree.ids), np.arange(150))


def test_nearest_centres_equal_their_reference_and_scipy() -> None:
    rng = np.random.default_rng(3)
    bits, centres = rng.integers(0, 2, (90, 130)), rng.integers(0, 2, (11, 130))
    given = words_of(bits), np.ascontiguousarray(words_of(centres).T)
    exact = cdist(bits, centres, "cityblock")
    for nearest, distances in (pivots.nearest_centres(*given), pivots.nearest_centres_reference(*given)):
        assert np.array_equal(nearest, exact.argmin(axis=1))
        assert np.array_equal(distances, exact.min(axis=1))


# ---------------------------------------------------------------- sparse codes


def search_sparse(active: np.ndarray, queries: np.ndarray, n_bits: int, k: int) -> dict[str, Found]:
    columns = vertical.make_columns(active, n_bits)
    return {
        "columns": vertical.search_columns(columns, queries, k),
        "columns, NumPy": vertical.search_columns_reference(columns, queries, k),
    }


@pytest.mark.parametrize("kind", ["random", "identical", "two values", "near first"])
@pytest.mark.parametrize(
    ("n", "n_bits", "n_active"),
    [
        (1, 9, 3),
        (600, 70, 8),
        (5000, 64, 16),
        (2049, 100, 33),
        (300, 512, 127),
        (300, 300, 128),
        (200, 700, 256),
    ],
)
@pytest.mark.parametrize("k", [1, 10, 200, 10_000])
def test_sparse_scan_equals_sorting(kind: str, n: int, n_bits: int, n_active: int, k: int) -> None:
    rng = np.random.default_rng(n)
    active, others = sparse(rng, n, n_bits, n_active), sparse(rng, 5, n_bits, n_active)
    if kind == "identical":
        active[:] = active[0]
    elif kind == "two values":
        active = active[rng.integers(0, min(2, n), n)]
    elif kind == "near first":
        active[: n // 10], active[n // 10 :] = active[0], others[0]
    queries = np.concatenate([active[:3], others])
    k = min(k, n)
    expected = by_sorting(spread(queries, n_bits), spread(active, n_bits), k)
    for found in search_sparse(active, queries, n_bits, k).values():
        assert_equal(found, expected)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(2, 150), st.data(), st.integers(1, 300), st.integers(0, 2**32))
def test_sparse_scan_equals_sorting_for_any_sizes(
    n: int, n_bits: int, data: st.DataObject, k: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n_active = data.draw(st.integers(1, n_bits))
    active, queries = sparse(rng, n, n_bits, n_active), sparse(rng, 66, n_bits, n_active)
    k = min(k, n)
    expected = by_sorting(spread(queries, n_bits), spread(active, n_bits), k)
    for found in search_sparse(active, queries, n_bits, k).values():
        assert_equal(found, expected)


def test_ones_are_found_and_counted() -> None:
    rng = np.random.default_rng(0)
    active = sparse(rng, 40, 77, 5)
    packed = pack_active(active, 77)
    assert np.array_equal(list_active(packed, 5), active)
    with pytest.raises(ValueError, match="expected 6 ones in every code, row 0 has 5"):
        list_active(packed, 6)


# ---------------------------------------------------------------- thresholds guessed from a sample


@pytest.mark.parametrize("arranged", ["random", "all near codes in the sample", "none in the sample"])
def test_a_guessed_threshold_changes_nothing(arranged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_ENOUGH", 4)
    starts: list[bool] = []
    plain = running.new_buffers
    monkeypatch.setattr(
        running, "new_buffers", lambda *a: (starts.append(len(a) > 3 and a[3] is not None), plain(*a))[1]
    )
    rng = np.random.default_rng(0)
    tile = 64 * vertical.TILE_WORDS
    active, query = sparse(rng, 20 * tile, 64, 8), sparse(rng, 2, 64, 8)
    if arranged != "random":
        first = tile if arranged == "none in the sample" else 0
        active[first : first + 30] = query[0]
    found = vertical.search_columns(vertical.make_columns(active, 64), query, 50)
    assert_equal(found, by_sorting(spread(query, 64), spread(active, 64), 50))
    assert starts[:2] == [False, True]
    assert len(starts) == (3 if arranged == "all near codes in the sample" else 2)

    bits, query_bits = spread(active, 64), spread(query, 64)
    found = blocked.search_tiles(blocked.make_tiles(words_of(bits)), words_of(query_bits), 50)
    assert_equal(found, by_sorting(query_bits, bits, 50))


# ---------------------------------------------------------------- clusters


def cluster_search(kind: str) -> Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int], list[Found]]:
    def dense(
        active: np.ndarray, queries: np.ndarray, clusters: np.ndarray, probes: np.ndarray, k: int
    ) -> list[Found]:
        tree = pivots.sort_by_cluster(words_of(spread(active, 96)), clusters, 6)
        words = words_of(spread(queries, 96))
        return [
            pivots.search_clusters(tree, probes, words, k),
            pivots.search_sorted_reference(tree, probes, words, k),
        ]

    def columns(
        active: np.ndarray, queries: np.ndarray, clusters: np.ndarray, probes: np.ndarray, k: int
    ) -> list[Found]:
        lists = vertical.make_columns(active, 96, clusters, 6)
        return [
            vertical.search_column_clusters(lists, probes, queries, k),
            vertical.search_column_clusters_reference(lists, probes, queries, k),
        ]

    return dense if kind == "dense" else columns


@pytest.mark.parametrize("kind", ["dense", "columns"])
@pytest.mark.parametrize("n_values", [1, 2, 1500])
@pytest.mark.parametrize("k", [1, 40, 200])
def test_clusters_hold_what_sorting_finds_in_them(kind: str, n_values: int, k: int) -> None:
    rng = np.random.default_rng(k)
    active = sparse(rng, n_values, 96, 12)[rng.integers(0, n_values, 1500)]
    queries = sparse(rng, 70, 96, 12)
    clusters = rng.integers(0, 5, 1500)  # the sixth is empty
    probes = np.array([[5, 0, 3], [1, 2, -1]])[rng.integers(0, 2, 70)]
    among = [np.flatnonzero(np.isin(clusters, row)) for row in probes]
    expected = by_sorting(spread(queries, 96), spread(active, 96), k, among)
    for found in cluster_search(kind)(active, queries, clusters, probes, k):
        assert_equal(found, expected)


def test_nearer_codes_find_room_among_ties_that_have_filled_it() -> None:
    k = 32
    ties = 2 * k + vertical._SPARE  # so many keys are held, and whole words of codes
    active = np.array([[0, 1, 8, 9]] * ties + [[0, 1, 2, 3]] * (k - 1))
    queries = np.array([[0, 1, 2, 3], [12, 13, 14, 15]])
    expected = by_sorting(spread(queries, 16), spread(active, 16), k)
    lists = vertical.make_columns(active, 16, np.zeros(len(active), np.int64), 1)
    assert_equal(vertical.search_column_clusters(lists, np.array([[0], [0]]), queries, k), expected)


@pytest.mark.parametrize("kind", ["dense", "columns"])
def test_without_numba_everything_is_found_too(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (blocked, pivots, vertical):
        monkeypatch.setattr(module, "loops", lambda: None)
    rng = np.random.default_rng(7)
    active, queries = sparse(rng, 300, 96, 12), sparse(rng, 5, 96, 12)
    bits = spread(active, 96), spread(queries, 96)
    clusters, probes = rng.integers(0, 5, 300), np.array([[1, 4]] * 5)
    expected = by_sorting(bits[1], bits[0], 20, [np.flatnonzero(np.isin(clusters, [1, 4]))] * 5)
    assert_equal(cluster_search(kind)(active, queries, clusters, probes, 20)[0], expected)
    everywhere = search_dense(*bits, 20) if kind == "dense" else search_sparse(active, queries, 96, 20)
    for found in everywhere.values():
        assert_equal(found, by_sorting(bits[1], bits[0], 20))


# ---------------------------------------------------------------- nothing at all


def test_no_queries_and_no_codes() -> None:
    words = words_of(np.ones((40, 10), np.uint8))
    for found in search_dense(np.ones((40, 10), np.uint8), np.empty((0, 10), np.uint8), 3).values():
        assert found[0].shape == found[1].shape == (0, 3)
    empty = blocked.make_tiles(words[:0])
    assert blocked.search_tiles(empty, words[:2], 0)[1].shape == (2, 0)
    columns = vertical.make_columns(np.empty((0, 3), np.int64), 10)
    assert vertical.search_columns(columns, np.array([[0, 1, 2]]), 0)[1].shape == (1, 0)


def test_compiled_code_is_kept_under_what_it_comes_from() -> None:
    """numba looks at the file of a function alone; these are compiled afresh if their helpers change, too."""
    from bitfleet.tasks.kernels import compiled_columns, compiled_scan
    from bitfleet.tasks.kernels._numba import _digest_of

    for kernel in (compiled_scan.scan_tiles, compiled_columns.scan_columns):
        assert _digest_of(("compiled_running", "vectors")) in str(kernel.stats.cache_path)


@pytest.mark.parametrize("extra", [-1, 0, 1, 300])
def test_a_nearer_code_after_as_many_ties_as_there_is_room_for(extra: int) -> None:
    k, n_bits = 2, 70
    n_ties = 2 * k + vertical._SPARE + extra
    ties, far, near = [[0, 1 + j % 60] for j in range(n_ties)], [[61, 62]] * (-n_ties % 64), [[0, 69]]
    active, queries = np.array([*ties, *far, *near]), np.array([[0, 69]] * 3)
    lists = vertical.make_columns(active, n_bits, np.zeros(len(active), np.int64), 1)
    found = vertical.search_column_clusters(lists, np.zeros((3, 1), np.int64), queries, k)
    assert_equal(found, by_sorting(spread(queries, n_bits), spread(active, n_bits), k))
