"""Exact search: kernels against their references, accumulators against brute force, any cut into blocks."""

from __future__ import annotations

import pickle
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.kernels import euclidean, hamming, nearest, ranked
from bitfleet.tasks.protocols import Block, RoundState
from bitfleet.tasks.search import NearestCodes, NearestVectors, tie_keys
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

if TYPE_CHECKING:
    from bitfleet.tasks.protocols import Accumulator

cuts = st.lists(st.integers(1, 99), max_size=6).map(lambda c: [0, *sorted(set(c)), 100])


def blocks(rows: np.ndarray, edges: list[int]) -> list[Block]:
    return [Block(np.arange(a, b), rows[a:b]) for a, b in pairwise(edges)]


def run(accumulator: Accumulator, parts: list[Block]) -> dict[str, np.ndarray]:
    """Merge leaves, and add them to one state: both give the same."""
    leaves = [accumulator.update(accumulator.init(), part) for part in parts]
    merged = reduce(accumulator.merge, leaves, accumulator.init())
    assert accumulator.carries
    carried = reduce(accumulator.update, parts, accumulator.init())
    assert {key: array.tobytes() for key, array in carried.items()} == {
        key: array.tobytes() for key, array in merged.items()
    }
    return accumulator.finalize(merged)


def packed(rng: np.random.Generator, n: int, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    bits = rng.integers(0, 2, (n, n_bits), dtype=np.uint8)
    return bits, np.packbits(bits, axis=1, bitorder="little")


def exact_distance(query: list[float], row: list[float]) -> float:
    total = 0.0
    for a, b in zip(query, row, strict=True):
        total += (a - b) * (a - b)
    return total


def brute_force(distances: np.ndarray, seed: int | None, k: int) -> np.ndarray:
    """Row numbers by (distance, tie, row number), by sorting tuples."""
    ties = tie_keys(seed, np.arange(distances.shape[1])).tolist()
    order = [
        sorted(range(len(row)), key=lambda j, row=row: (row[j], ties[j], j)) for row in distances.tolist()
    ]
    return np.array(order)[:, :k]


# ---------------------------------------------------------------- kernels


@pytest.mark.parametrize("n_bits", [1, 8, 63, 64, 65, 200])
@pytest.mark.parametrize("k", [1, 7, 40])
def test_nearest_codes_equals_its_reference_and_scipy(n_bits: int, k: int) -> None:
    rng = np.random.default_rng(n_bits)
    (query_bits, queries), (bits, codes) = packed(rng, 9, n_bits), packed(rng, 40, n_bits)
    words = hamming.as_words(queries), hamming.as_words(codes)
    distances, rows = hamming.nearest_codes(*words, k)
    for fast, slow in zip((distances, rows), hamming.nearest_codes_reference(*words, k), strict=True):
        assert fast.dtype == slow.dtype
        assert np.array_equal(fast, slow)
    exact = cdist(query_bits, bits, "cityblock")
    assert np.array_equal(rows, np.argsort(exact, axis=1, kind="stable")[:, :k])
    assert np.array_equal(distances, np.take_along_axis(exact, rows, axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pair_distances_equal_their_reference_bit_for_bit(dtype: type) -> None:
    rng = np.random.default_rng(3)
    queries, vectors = rng.normal(size=(5, 37)).astype(dtype), rng.normal(size=(50, 37)).astype(dtype)
    pairs = rng.integers(0, 5, 200), rng.integers(0, 50, 200)
    fast = euclidean.pair_distances(queries, vectors, *pairs)
    assert np.array_equal(fast, euclidean.pair_distances_reference(queries, vectors, *pairs))
    assert fast == pytest.approx(cdist(queries, vectors, "sqeuclidean")[pairs], rel=1e-6)


@settings(deadline=None)  # the first example may compile
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(0, 12), st.integers(1, 24))
def test_merge_equals_sorting(seed: int, n_left: int, n_right: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(n_left + n_right) for _ in range(3)]).astype(np.int64)
    distance = rng.integers(0, 3, ids.shape).astype(np.int32)
    tie = rng.integers(0, 2, ids.shape).astype(np.uint32)

    def side(part: slice) -> ranked.Ranked:
        order = np.lexsort((ids[:, part], tie[:, part], distance[:, part]), axis=1)
        d, t, i = (np.take_along_axis(a[:, part], order, axis=1) for a in (distance, tie, ids))
        return d, t, i

    left, right = side(slice(0, n_left)), side(slice(n_left, None))
    k = min(k, n_left + n_right)
    merged = ranked.merge_ranked(left, right, k)
    for fast, slow in zip(merged, ranked.merge_ranked_reference(left, right, k), strict=True):
        assert fast.dtype == slow.dtype
        assert np.array_equal(fast, slow)


# ---------------------------------------------------------------- ties


def test_a_tie_key_is_a_function_of_seed_and_row_alone() -> None:
    whole = tie_keys(5, np.arange(1000))
    assert len(set(whole.tolist())) == 1000
    for start, stop in [(0, 3), (1, 2), (3, 17), (517, 1000)]:
        assert np.array_equal(tie_keys(5, np.arange(start, stop)), whole[start:stop])
    scattered = np.array([999, 4, 500])
    assert np.array_equal(tie_keys(5, scattered), whole[scattered])
    assert not np.array_equal(tie_keys(6, np.arange(1000)), whole)
    assert not tie_keys(None, np.arange(10)).any()


# ---------------------------------------------------------------- accumulators


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**16), st.integers(1, 130), st.sampled_from([None, 0, 3]), cuts)
def test_nearest_codes_of_any_blocks_equal_brute_force(
    data_seed: int, k: int, seed: int | None, edges: list[int]
) -> None:
    rng = np.random.default_rng(data_seed)
    (query_bits, queries), (bits, codes) = packed(rng, 4, 6), packed(rng, 100, 6)
    accumulator = NearestCodes(k, seed).accumulator(RoundState(0, {"query_codes": queries}))
    found = run(accumulator, blocks(codes, edges))
    distances = cdist(query_bits, bits, "cityblock").astype(np.int64)
    assert np.array_equal(found["id"], brute_force(distances, seed, k))
    assert np.array_equal(found["distance"], np.take_along_axis(distances, found["id"], axis=1))


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2**16),
    st.integers(1, 130),
    st.sampled_from([None, 0, 3]),
    st.sampled_from([np.float32, np.float64]),
    cuts,
)
def test_nearest_vectors_of_any_blocks_equal_brute_force(
    data_seed: int, k: int, seed: int | None, dtype: type, edges: list[int]
) -> None:
    rng = np.random.default_rng(data_seed)
    vectors = rng.integers(-2, 3, (100, 3)).astype(dtype)  # few values: exact distances, many equal
    queries = rng.integers(-2, 3, (5, 3)).astype(dtype)
    accumulator = NearestVectors(k, seed).accumulator(RoundState(0, {"query_vectors": queries}))
    found = run(accumulator, blocks(vectors, edges))
    distances = cdist(queries, vectors, "sqeuclidean")
    assert np.array_equal(found["id"], brute_force(distances, seed, k))
    assert np.array_equal(found["distance"], np.take_along_axis(distances, found["id"], axis=1))


@pytest.mark.parametrize(
    "kind", ["plain", "few values", "half of it overflows in float32", "a sample that misleads"]
)
@pytest.mark.parametrize("k", [1, 40, 700, 3001])
def test_the_compiled_nearest_rows_are_those_of_the_reference(kind: str, k: int) -> None:
    """Of rows so many that a sample of them tells where to look."""
    rng = np.random.default_rng(k)
    queries, vectors = rng.normal(size=(3, 6)), rng.normal(size=(3001, 6))
    if kind == "few values":
        queries, vectors = np.round(queries), np.round(vectors)
    elif kind == "half of it overflows in float32":
        vectors[::2] *= 1e30
    elif kind == "a sample that misleads":  # the rows that are looked at first are the nearest
        order = np.argsort(np.linalg.norm(vectors - queries[0], axis=1))
        sampled = np.arange(0, 2944, 64)
        rest = np.setdiff1d(np.arange(3001), sampled)
        places = np.concatenate([sampled, rest])
        shuffled = np.empty_like(vectors)
        shuffled[places] = vectors[order]
        vectors = shuffled
    with np.errstate(over="ignore"):
        rounded = queries.astype(np.float32), vectors.astype(np.float32)
    ranks = rng.permutation(len(vectors))
    arguments = queries, vectors, rounded, ranks, k
    found, expected = nearest.nearest_rows(*arguments), nearest.nearest_rows_reference(*arguments)
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]
    ties, ids = ranks.astype(np.uint32) // 2, ranks.astype(np.int64)  # in the order of the ranks
    lists = expected[0], ties[expected[1]], ids[expected[1]] - 5000  # as if of other rows, equally near
    results = []
    for improve in (nearest.improve_lists, nearest.improve_lists_reference):
        copies = tuple(array.copy() for array in lists)
        improve(copies, queries, vectors, rounded, ranks, ties, ids)
        results.append([array.tobytes() for array in copies])
    assert results[0] == results[1]
    assert results[0] != [array.tobytes() for array in lists] or k == 1


@pytest.mark.parametrize("kind", ["offset", "tiny", "huge", "outliers", "float64", "near ties"])
def test_screening_never_loses_a_neighbour(kind: str) -> None:
    """Where float32 distances are useless, the lists still are those of exact distances."""
    rng = np.random.default_rng(11)
    vectors, queries = rng.normal(size=(400, 20)), rng.normal(size=(30, 20))
    if kind == "offset":
        vectors, queries = vectors + 1e4, queries + 1e4
    elif kind == "tiny":
        vectors, queries = vectors * 1e-25, queries * 1e-25
    elif kind == "huge":
        vectors, queries = vectors * 1e25, queries * 1e25
    elif kind == "outliers":
        vectors[::50] *= 1e12
    elif kind == "near ties":
        vectors = 1 + 1e-6 * vectors
        queries = 1 + 1e-6 * queries
    dtype = np.float64 if kind == "float64" else np.float32
    vectors, queries = vectors.astype(dtype), queries.astype(dtype)
    accumulator = NearestVectors(10).accumulator(RoundState(0, {"query_vectors": queries}))
    found = run(accumulator, blocks(vectors, [0, 7, 150, 400]))
    exact = [[exact_distance(q, x) for x in vectors.tolist()] for q in queries.tolist()]
    assert np.array_equal(found["id"], np.argsort(exact, axis=1, kind="stable")[:, :10])
    assert np.array_equal(found["distance"], np.sort(exact, axis=1)[:, :10])


def test_cosine_neighbours_equal_scipy() -> None:
    rng = np.random.default_rng(12)
    vectors, queries = (
        rng.normal(size=(200, 8)).astype(np.float32),
        rng.normal(size=(6, 8)).astype(np.float32),
    )
    vectors *= rng.uniform(0.1, 10, (200, 1)).astype(np.float32)
    program = NearestVectors(5, metric="cosine")
    found = run(program.accumulator(RoundState(0, {"query_vectors": queries})), blocks(vectors, [0, 33, 200]))
    distances = cdist(queries, vectors, "cosine")
    assert np.array_equal(found["id"], np.argsort(distances, axis=1)[:, :5])
    assert found["distance"] / 2 == pytest.approx(np.sort(distances, axis=1)[:, :5], abs=1e-6)
    vectors[3] = 0  # a zero row is at distance one from everything and breaks nothing
    again = run(program.accumulator(RoundState(0, {"query_vectors": queries})), blocks(vectors, [0, 200]))
    assert np.isfinite(again["distance"]).all()


def test_blocks_are_encoded_by_the_method_in_the_state() -> None:
    class Signs:
        """Stands for a method: its encoder takes the sign of each feature."""

        n_active = None

        def encoder(self, state: RoundState) -> Signs:
            return self

        def encode(self, vectors: np.ndarray) -> np.ndarray:
            return np.packbits(vectors >= 0, axis=1, bitorder="little")

    rng = np.random.default_rng(1)
    vectors, queries = rng.normal(size=(50, 12)), rng.normal(size=(3, 12))
    state = RoundState(0, {"query_codes": Signs().encode(queries)})
    encoded = run(NearestCodes(5, 0, Signs()).accumulator(state), blocks(vectors, [0, 20, 50]))
    codes = Signs().encode(vectors)
    given_codes = run(NearestCodes(5, 0).accumulator(state), blocks(codes, [0, 50]))
    assert all(np.array_equal(encoded[key], given_codes[key]) for key in encoded)


def test_nothing_to_search_gives_empty_lists() -> None:
    state = RoundState(
        0, {"query_vectors": np.zeros((3, 4), np.float32), "query_codes": np.zeros((3, 1), np.uint8)}
    )
    for program, rows in (
        (NearestVectors(5), np.empty((0, 4), np.float32)),
        (NearestCodes(5), np.empty((0, 1), np.uint8)),
    ):
        found = run(program.accumulator(state), blocks(rows, [0, 0]))
        assert found["id"].shape == found["distance"].shape == (3, 0)


def test_rows_that_do_not_fit_the_queries_are_refused() -> None:
    state = RoundState(
        0, {"query_vectors": np.zeros((3, 4), np.float32), "query_codes": np.zeros((3, 1), np.uint8)}
    )
    with pytest.raises(ValueError, match="rows of 4 features"):
        run(NearestVectors(5).accumulator(state), [Block(np.arange(2), np.zeros((2, 5), np.float32))])
    with pytest.raises(ValueError, match="same model"):
        run(NearestCodes(5).accumulator(state), [Block(np.arange(2), np.zeros((2, 2), np.uint8))])
    with pytest.raises(ValueError, match="k >= 1"):
        NearestCodes(0).accumulator(state)
    with pytest.raises(ValueError, match="euclidean, cosine"):
        NearestVectors(3, metric="manhattan")


def test_without_numba_the_same_lists_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    vectors, queries = rng.normal(size=(60, 9)).astype(np.float32), rng.normal(size=(4, 9)).astype(np.float32)
    codes, query_codes = packed(rng, 60, 20)[1], packed(rng, 4, 20)[1]
    state = RoundState(0, {"query_vectors": queries, "query_codes": query_codes})

    def found() -> list[np.ndarray]:
        pairs = (NearestVectors(7, 0), vectors), (NearestCodes(7, 0), codes)
        lists = [run(program.accumulator(state), blocks(rows, [0, 25, 60])) for program, rows in pairs]
        return [array for summary in lists for array in summary.values()]

    compiled = found()
    for module in (hamming, euclidean, ranked, nearest):
        monkeypatch.setattr(module, "loops", lambda: None)
    assert all(np.array_equal(a, b) for a, b in zip(found(), compiled, strict=True))


def test_programs_are_small() -> None:
    """They enter the task graph; the queries do not."""
    assert len(pickle.dumps(NearestCodes(1000, 7))) < 500
    assert len(pickle.dumps(NearestVectors(1000, 7))) < 500
