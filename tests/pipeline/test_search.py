"""`CodeIndex` and `search` against brute force over unpacked codes, in memory, in files and on a cluster."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline.cli import app
from bitfleet.pipeline.search import projections
from bitfleet.storage.codes import create_codes, finish_codes
from bitfleet.tasks.asymmetric import asymmetric_distances
from scipy.spatial.distance import cdist
from typer.testing import CliRunner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distributed import Client

Found = tuple[np.ndarray, np.ndarray]


def unpacked(packed: np.ndarray, n_bits: int) -> np.ndarray:
    return np.unpackbits(packed, axis=1, bitorder="little", count=n_bits)


def ranked(distances: np.ndarray, k: int) -> Found:
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, axis=1), order


def assert_found(found: Found, expected: Found) -> None:
    assert np.array_equal(found[1], expected[1])
    assert found[0] == pytest.approx(expected[0], rel=1e-12)


def sparse_codes(
    rng: np.random.Generator, n: int, n_bits: int, n_active: int
) -> tuple[np.ndarray, np.ndarray]:
    places = np.argsort(rng.random((n, n_bits)), axis=1)[:, :n_active]
    bits = np.zeros((n, n_bits), np.uint8)
    np.put_along_axis(bits, places, 1, axis=1)
    return np.packbits(bits, axis=1, bitorder="little"), places


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(700, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def dense(vectors: np.ndarray) -> Any:
    return bf.ITQ(n_bits=20, n_iter=3, random_state=0).fit(vectors)


@pytest.fixture(scope="module")
def sparse(vectors: np.ndarray) -> Any:
    return bf.FruitFly(n_bits=100, n_active=7, random_state=0).fit(vectors)


# ---------------------------------------------------------------- CodeIndex


@pytest.mark.parametrize("strategy", ["auto", "scan", "pivots"])
@pytest.mark.parametrize("k", [1, 10, 5000])
def test_dense_index(strategy: str, k: int) -> None:
    rng = np.random.default_rng(1)
    packed = rng.integers(0, 256, (900, 9), dtype=np.uint8) & np.array([255] * 8 + [3], np.uint8)
    index = bf.CodeIndex(packed, n_bits=66, strategy=strategy)
    found = index.search(packed[:20], k)
    assert_found(found, ranked(cdist(unpacked(packed[:20], 66), unpacked(packed, 66), "cityblock"), k))
    assert (found[0].dtype, found[1].dtype) == (np.int32, np.int64)
    assert len(index) == 900
    assert repr(index) == "CodeIndex(n_rows=900, n_bits=66)"


def test_sparse_index_takes_packed_codes_and_places() -> None:
    packed, places = sparse_codes(np.random.default_rng(2), 300, 75, 6)
    expected = ranked(cdist(unpacked(packed[:9], 75), unpacked(packed, 75), "cityblock"), 12)
    for codes in (packed, places.astype(np.int32), places[:, ::-1]):
        index = bf.CodeIndex(codes, n_active=6, n_bits=75)
        for queries in (packed[:9], places[:9]):
            assert_found(index.search(queries, 12), expected)
    assert np.array_equal(index.to_numpy(), packed)


@pytest.mark.parametrize("n_active", [None, 6])
def test_all_clusters_give_the_exact_result(n_active: int | None) -> None:
    packed, _ = sparse_codes(np.random.default_rng(3), 800, 75, 6)
    exact = bf.CodeIndex(packed, n_active, n_bits=75).search(packed[:30], 50)
    index = bf.CodeIndex(packed, n_active, n_bits=75, n_clusters=16)
    assert_found(index.search(packed[:30], 50, n_probe=16), exact)
    few = index.search(packed[:30], 50, n_probe=1)
    assert np.array_equal(few[1][:, 0], np.arange(30))  # a query's own cluster holds it
    assert (few[0] >= exact[0]).all()
    again = bf.CodeIndex(packed, n_active, n_bits=75, n_clusters=16).search(packed[:30], 50, n_probe=1)
    assert_found(again, few)


def test_few_probes_still_find_k() -> None:
    packed, _ = sparse_codes(np.random.default_rng(4), 400, 75, 6)
    index = bf.CodeIndex(packed, 6, n_bits=75, n_clusters=100)
    distances, ids = index.search(packed[:5], 400, n_probe=1)
    assert np.array_equal(np.sort(ids, axis=1), np.tile(np.arange(400), (5, 1)))
    assert_found((distances, ids), bf.CodeIndex(packed, 6, n_bits=75).search(packed[:5], 400))


def test_clusters_of_vectors(vectors: np.ndarray, sparse: Any) -> None:
    codes = sparse.encode(vectors)
    index = bf.CodeIndex(codes, 7, n_bits=100, n_clusters="auto", vectors=vectors)
    assert index.n_clusters == 1
    index = bf.CodeIndex(codes, 7, n_bits=100, n_clusters=9, vectors=vectors)
    exact = bf.CodeIndex(codes, 7, n_bits=100).search(codes[:8], 20)
    assert_found(index.search(codes[:8], 20, n_probe=9, query_vectors=vectors[:8]), exact)
    with pytest.raises(bf.ConfigError, match="give the queries' as query_vectors="):
        index.search(codes[:8], 20)


def test_rescoring_orders_candidates_by_their_vectors(
    vectors: np.ndarray, dense: Any, tmp_path: Path
) -> None:
    codes = dense.encode(vectors)
    index = bf.CodeIndex(codes, n_bits=20)
    queries = vectors[:6] + np.float32(0.1)
    query_codes = dense.encode(queries)
    np.save(tmp_path / "x.npy", vectors)
    dataset = bf.ingest(tmp_path / "x.npy", tmp_path / "x.zarr")
    candidates = index.search(query_codes, 15)[1]
    for metric, scipy_metric in (("euclidean", "sqeuclidean"), ("cosine", "cosine")):
        true = cdist(queries.astype(float), vectors.astype(float), scipy_metric)
        true = true * (2 if metric == "cosine" else 1)
        rows = np.take_along_axis(candidates, np.take_along_axis(true, candidates, 1).argsort(1)[:, :5], 1)
        for source in (vectors, dataset, tmp_path / "x.zarr"):
            found = index.search(
                query_codes, 5, rescore=source, oversample=3, query_vectors=queries, metric=metric
            )
            assert np.array_equal(found[1], rows)
            assert found[0] == pytest.approx(np.take_along_axis(true, rows, 1), rel=1e-5)
    with pytest.raises(bf.ConfigError, match="query_vectors="):
        index.search(query_codes, 5, rescore=vectors)


def test_rescoring_by_a_decoder(vectors: np.ndarray, sparse: Any) -> None:
    model = bf.fit_decoder(sparse, vectors)
    codes = model.encode(vectors)
    index = bf.CodeIndex(codes, 7, n_bits=100)
    found = index.search(codes[:5], 10, rescore=model.decoder, oversample=3, query_vectors=vectors[:5])
    candidates = index.search(codes[:5], 30)[1]
    true = cdist(vectors[:5], model.decode(codes), "sqeuclidean")
    best = np.take_along_axis(true, candidates, 1)
    assert found[0][:, 0] == pytest.approx(best.min(axis=1), rel=1e-6)
    assert found[0] == pytest.approx(np.sort(best, axis=1)[:, :10], rel=1e-6)
    with pytest.raises(bf.ConfigError, match="it decodes 100 bits, they have 8"):
        bf.CodeIndex(codes[:, :1]).search(codes[:5, :1], 3, rescore=model.decoder, query_vectors=vectors[:5])


def test_asymmetric_search(vectors: np.ndarray, dense: Any) -> None:
    codes, queries = dense.encode(vectors), projections(dense, vectors[:7])
    assert np.array_equal(queries >= 0, unpacked(codes[:7], 20) == 1)
    found = bf.CodeIndex(codes, n_bits=20).search(queries, 9, asymmetric=True)
    assert_found(found, ranked(asymmetric_distances(queries, unpacked(codes, 20)), 9))
    with pytest.raises(bf.ConfigError, match=r"expected projections of type float, shape \(q, 20\)"):
        bf.CodeIndex(codes, n_bits=20).search(codes[:7], 9, asymmetric=True)


def test_faiss_finds_the_same_in_the_exported_index() -> None:
    pytest.importorskip("faiss")
    packed, _ = sparse_codes(np.random.default_rng(5), 500, 77, 6)
    index = bf.CodeIndex(packed, n_bits=77)
    expected = index.search(packed[:20], 10)
    distances, ids = index.to_faiss().search(packed[:20], 10)
    assert np.array_equal(distances, expected[0])
    assert np.array_equal(ids, expected[1])
    lists = bf.CodeIndex(packed, 6, n_bits=77, n_clusters=8).to_faiss()
    lists.nprobe = 8
    assert lists.ntotal == 500
    assert np.array_equal(lists.search(packed[:20], 10)[0], expected[0])
    lists.nprobe = 1
    assert (lists.search(packed[:20], 1)[0] >= 0).all()


def test_without_faiss_the_export_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "faiss":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(bf.ConfigError, match=r"pip install 'bitfleet\[faiss\]'"):
        bf.CodeIndex(np.zeros((2, 8), np.uint8)).to_faiss()


def test_empty_index_and_no_queries() -> None:
    nothing = np.empty((0, 4), np.uint8)
    for index in (
        bf.CodeIndex(nothing),
        bf.CodeIndex(nothing, strategy="pivots"),
        bf.CodeIndex(nothing, n_active=2),
        bf.CodeIndex(nothing, n_clusters="auto"),
    ):
        distances, ids = (
            index.search(np.full((3, 4), 1, np.uint8) * (index.n_active is None), 5)
            if (index.n_active is None)
            else index.search(np.array([[0, 1]] * 3), 5)
        )
        assert distances.shape == ids.shape == (3, 0)
    codes = np.eye(4, dtype=np.uint8)
    for index in (bf.CodeIndex(codes), bf.CodeIndex(codes, 1), bf.CodeIndex(codes, n_clusters=2)):
        distances, ids = index.search(codes[:0], 3)
        assert distances.shape == ids.shape == (0, 3)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_vectors_near_the_ends_of_floats(scale: float) -> None:
    rng = np.random.default_rng(0)
    codes, vectors = rng.integers(0, 256, (60, 4), dtype=np.uint8), rng.normal(size=(60, 6))
    index = bf.CodeIndex(codes)
    found = [
        index.search(codes[:5], 4, query_vectors=s * vectors[:5], rescore=s * vectors, metric="cosine")
        for s in (1.0, scale)
    ]
    assert_found(found[1], found[0])


def test_vectors_too_large_for_clusters_or_distances_are_refused() -> None:
    codes, vectors = np.arange(16, dtype=np.uint8).reshape(8, 2), 1e200 * np.eye(8)
    with pytest.raises(bf.ConfigError, match="rescale"):
        bf.CodeIndex(codes, n_clusters=2, vectors=vectors)
    with pytest.raises(bf.ConfigError, match="rescale"):
        bf.CodeIndex(codes).search(codes[:2], 3, query_vectors=vectors[:2], rescore=vectors)
    with pytest.raises(bf.DataRefused, match="NaN or infinity"):
        bf.CodeIndex(codes, n_clusters=2, vectors=vectors * np.nan)
    with pytest.raises(bf.ConfigError, match="the seed"):
        bf.CodeIndex(codes, n_clusters=2, random_state=-1)


@pytest.mark.parametrize("n_rows", [1, 3, 9])
def test_vectors_of_other_queries_are_refused(n_rows: int) -> None:
    codes, vectors = np.arange(16, dtype=np.uint8).reshape(8, 2), np.eye(8)
    index = bf.CodeIndex(codes, n_clusters=2, vectors=vectors)
    plain = bf.CodeIndex(codes)
    for wrong in (
        np.ones((n_rows, 8)),
        np.ones((2, 1)),
        np.ones(8),
        np.full((2, 8), np.nan),
        np.full((2, 8), "a"),
    ):
        with pytest.raises(bf.ConfigError, match="query_vectors"):
            index.search(codes[:2], 3, query_vectors=wrong)
        with pytest.raises(bf.ConfigError, match="query_vectors"):
            plain.search(codes[:2], 3, query_vectors=wrong, rescore=vectors)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: bf.CodeIndex(np.zeros((3, 2), np.float32)), "expected packed codes of uint8"),
        (lambda: bf.CodeIndex(np.zeros((3, 2), np.uint8), n_bits=20), "expected 3 bytes a code for 20 bits"),
        (
            lambda: bf.CodeIndex(np.full((3, 2), 255, np.uint8), n_bits=12),
            "expected zero padding after bit 12",
        ),
        (lambda: bf.CodeIndex(np.zeros((3, 2), np.uint8), 4), "expected 4 ones in every code, row 0 has 0"),
        (lambda: bf.CodeIndex(np.zeros((3, 2), np.int64)), "need n_bits="),
        (
            lambda: bf.CodeIndex(np.zeros((3, 2), np.int64), n_bits=9),
            "every place at most once in a code, row 0 has one twice",
        ),
        (lambda: bf.CodeIndex(np.array([[1, 9]]), n_bits=9), "expected places from 0 to 8, got 1 to 9"),
        (lambda: bf.CodeIndex(np.zeros((3, 2), np.uint8), n_clusters=4), "at most one cluster for each"),
        (lambda: bf.CodeIndex(np.zeros((3, 2), np.uint8), vectors=np.zeros((3, 2))), "give n_clusters= too"),
        (lambda: bf.CodeIndex(np.zeros((3, 2), np.uint8), strategy="fast"), "strategy to be one of auto"),
        (
            lambda: bf.CodeIndex(np.zeros((3, 2), np.uint8)).search(np.zeros((1, 2), np.uint8), 0),
            "k to be an",
        ),
        (
            lambda: bf.CodeIndex(np.zeros((3, 2), np.uint8)).search(np.zeros((1, 3), np.uint8), 1),
            "expected 2 by",
        ),
        (
            lambda: bf.CodeIndex(np.ones((3, 2), np.uint8), 2).search(np.zeros((1, 2), np.uint8), 1),
            "queries: expected 2 ones in every code",
        ),
        (lambda: bf.CodeIndex(np.zeros((3, 2), np.uint8), n_bits=16.0), "expected n_bits to be an integer"),
        (lambda: bf.CodeIndex(np.zeros((3, 2), np.uint8), 0), "expected n_active to be an integer >= 1"),
        (lambda: bf.CodeIndex(np.zeros((3, 0), np.int32), n_bits=9), "at least one place"),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(bf.ConfigError, match=message):
        build()


# ---------------------------------------------------------------- codes in files


def write_chunks(model: Any, rows: np.ndarray, path: Path) -> None:
    """Write the codes of rows in chunks of 90, as workers do."""
    writer = create_codes(
        path,
        n_rows=len(rows),
        n_bits=model.n_bits,
        n_active=model.encoder().n_active,
        chunk_rows=90,
        model_digest=model.digest,
        source_digest="-",
    )
    packed = model.encode(rows)
    finish_codes(path, [writer.write(at, packed[at : at + 90]) for at in range(0, len(rows), 90)])


@pytest.fixture(scope="module")
def stored(vectors: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A data set in many chunks, queries, and for two models the model and the codes, all as paths."""
    folder = tmp_path_factory.mktemp("stored")
    paths: dict[str, Any] = {"folder": folder}
    for name, rows in (("data", vectors), ("queries", vectors[:9] + np.float32(0.05))):
        np.save(folder / f"{name}.npy", rows)
        bf.ingest(folder / f"{name}.npy", folder / f"{name}.zarr", chunk_rows=64)
        paths[name] = folder / f"{name}.zarr"
    for name, method, params in (
        ("dense", "itq", {"n_bits": 20, "n_iter": 3}),
        ("sparse", "fruit_fly", {"n_bits": 100, "n_active": 7}),
    ):
        bf.train(paths["data"], folder / name, method, **params)
        write_chunks(bf.load(folder / name), vectors, folder / f"{name}-codes.zarr")
        bf.encode(folder / name, paths["queries"], folder / f"{name}-queries.zarr")
        paths[name] = folder / name
    return paths


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_search_of_stored_codes(stored: dict[str, Any], name: str, clusters: Callable[[int], Client]) -> None:
    model = bf.load(stored[name])
    codes, queries = stored["folder"] / f"{name}-codes.zarr", stored["folder"] / f"{name}-queries.zarr"
    packed, asked = bf.open_codes(codes).rows(0, 700), bf.open_codes(queries).rows(0, 9)
    bits = unpacked(asked, model.n_bits), unpacked(packed, model.n_bits)
    expected = ranked(cdist(*bits, "cityblock"), 15)
    for found in (
        bf.search(codes, queries, 15),
        bf.search(bf.open_codes(codes), asked, 15),
        bf.search(codes, stored["queries"], 15, model=stored[name]),
        bf.search(packed, stored["queries"], 15, model=model),
        bf.search(codes, queries, 15, scheduler=clusters(2)),
        bf.CodeIndex(codes).search(queries, 15),
    ):
        assert_found(found, expected)
    assert bf.search(codes, queries, 10_000)[1].shape == (9, 700)
    assert bf.search(codes, asked[:0], 3)[1].shape == (0, 3)


def test_asymmetric_search_of_stored_codes(stored: dict[str, Any], clusters: Callable[[int], Client]) -> None:
    model = bf.load(stored["dense"])
    codes = stored["folder"] / "dense-codes.zarr"
    packed = bf.open_codes(codes).rows(0, 700)
    asked = projections(model, bf.open_dataset(stored["queries"]).rows(0, 9))
    expected = ranked(asymmetric_distances(asked, unpacked(packed, 20)), 15)
    for found in (
        bf.search(codes, asked, 15, asymmetric=True),
        bf.search(codes, stored["queries"], 15, asymmetric=True, model=model),
        bf.search(packed, asked, 15, asymmetric=True),
        bf.search(codes, asked, 15, asymmetric=True, scheduler=clusters(2)),
    ):
        assert_found(found, expected)
    arcs = bf.SpectralHashing(n_bits=8).fit(np.eye(9))
    with pytest.raises(bf.ConfigError, match="not signs of projections"):
        bf.projections(arcs, np.eye(9))
    with pytest.raises(bf.ConfigError, match="not signs of projections"):
        bf.search(
            stored["folder"] / "sparse-codes.zarr",
            stored["queries"],
            3,
            asymmetric=True,
            model=stored["sparse"],
        )


@pytest.mark.parametrize("params", [{}, {"n_bits": 7}, {"n_bits": 7, "n_components": 9}, {"center": True}])
def test_plain_signs_are_searched_by_the_real_numbers_of_queries(
    vectors: np.ndarray, params: dict[str, Any]
) -> None:
    sign = bf.Sign(**params).fit(vectors)
    asked, bits = projections(sign, vectors[:7]), sign.transform(vectors)
    if "n_components" not in params:
        mean = vectors.mean(axis=0, dtype=np.float64) if params.get("center") else 0.0
        np.testing.assert_allclose(asked, (vectors[:7] - mean)[:, : params.get("n_bits")], atol=1e-12)
    weighed = np.where((asked >= 0)[:, None] != bits[None], abs(asked)[:, None], 0.0).sum(axis=2)
    found = bf.CodeIndex(sign.encode(vectors), n_bits=bits.shape[1]).search(asked, 5, asymmetric=True)
    assert_found(found, ranked(weighed, 5))


def test_rescoring_of_stored_codes(stored: dict[str, Any], vectors: np.ndarray) -> None:
    codes = stored["folder"] / "dense-codes.zarr"
    queries = bf.open_dataset(stored["queries"]).rows(0, 9)
    found = bf.search(codes, queries, 5, model=stored["dense"], rescore=stored["data"], oversample=1000)
    assert_found(found, ranked(cdist(queries.astype(float), vectors.astype(float), "sqeuclidean"), 5))
    with pytest.raises(bf.ConfigError, match="rescoring compares vectors"):
        bf.search(codes, stored["folder"] / "dense-queries.zarr", 5, rescore=stored["data"])


def test_codes_of_another_model_are_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(bf.ConfigError, match="was encoded by the model"):
        bf.search(stored["folder"] / "dense-codes.zarr", stored["queries"], 3, model=stored["sparse"])
    with pytest.raises(bf.ConfigError, match="expected queries of 20 bits, got 100"):
        bf.search(stored["folder"] / "dense-codes.zarr", stored["folder"] / "sparse-queries.zarr", 3)


def test_stored_queries_of_another_model_are_refused(vectors: np.ndarray, tmp_path: Path) -> None:
    for seed in (0, 1):
        hasher = bf.LSH(n_bits=16, random_state=seed).fit(vectors)
        bf.encode(hasher, vectors, tmp_path / f"{seed}.zarr")
    paths = tmp_path / "0.zarr", tmp_path / "1.zarr"
    for find in (bf.search, lambda codes, *rest: bf.CodeIndex(codes).search(*rest)):
        with pytest.raises(bf.ConfigError, match=r"0\.zarr was encoded by .*1\.zarr by .* the same model"):
            find(*paths, 3)


@pytest.mark.parametrize("n_queries", [3, 120])
def test_queries_may_have_other_numbers_of_ones(n_queries: int, stored: dict[str, Any]) -> None:
    codes = bf.open_codes(stored["folder"] / "sparse-codes.zarr")
    asked = sparse_codes(np.random.default_rng(3), n_queries, 100, 5)[0]
    distances = cdist(unpacked(asked, 100), unpacked(codes.rows(0, 700), 100), "cityblock")
    assert_found(bf.search(codes, asked, 4), ranked(distances, 4))


def test_command_line(stored: dict[str, Any], tmp_path: Path) -> None:
    import json

    codes, queries = stored["folder"] / "dense-codes.zarr", stored["folder"] / "dense-queries.zarr"
    distances, ids = bf.search(codes, queries, 4)
    run = CliRunner()
    done = run.invoke(app, ["search", str(codes), str(queries), "--k", "4", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["ids"] == ids.tolist()
    assert json.loads(done.stdout)["distances"] == distances.tolist()
    lines = done.stderr.splitlines()
    first = "  ".join(f"{row} ({distance:g})" for row, distance in zip(ids[0], distances[0], strict=True))
    assert lines[:2] == ["query  its nearest rows (their distances)", f"    0  {first}"]
    assert len(lines) == 1 + min(len(ids), 20) + (len(ids) > 20)
    out = tmp_path / "found.npz"
    arguments = ["search", str(codes), str(stored["queries"]), "-k", "4", "--model", str(stored["dense"])]
    assert run.invoke(app, [*arguments, "--out", str(out)]).exit_code == 0
    with np.load(out) as found:
        assert np.array_equal(found["ids"], ids)
        assert np.array_equal(found["distances"], distances)
    assert run.invoke(app, [*arguments, "--out", str(out)]).exit_code == 2


def test_results_are_written_whole_or_not_at_all(
    stored: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, queries = stored["folder"] / "dense-codes.zarr", stored["folder"] / "dense-queries.zarr"
    arguments = ["search", str(codes), str(queries), "--out"]
    missing = CliRunner().invoke(app, [*arguments, str(tmp_path / "no" / "found.npz")])
    assert missing.exit_code == 2
    assert "there is no folder" in missing.stderr

    def interrupted(file: Any, **arrays: np.ndarray) -> None:
        file.write(b"PK")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    assert CliRunner().invoke(app, [*arguments, str(tmp_path / "found.npz")]).exit_code == 130
    assert not list(tmp_path.iterdir())


def test_codes_of_a_model_with_a_decoder_are_its_own(vectors: np.ndarray, tmp_path: Path) -> None:
    model = bf.ITQ(n_bits=16, n_iter=2, random_state=0).fit(vectors).model_
    codes = bf.encode(model, vectors, tmp_path / "codes.zarr")
    with_decoder = bf.fit_decoder(model, vectors)
    found = bf.search(codes, vectors[:4], 3, model=with_decoder)
    assert_found(found, bf.search(codes, vectors[:4], 3, model=model))


@pytest.mark.parametrize("scale", [1.0, 2.0**-660, 2.0**-1000])
def test_rescoring_orders_vectors_whose_squares_vanish(scale: float) -> None:
    rng = np.random.default_rng(8)
    X = rng.integers(-50, 50, (60, 6)).astype(float)
    X[::7] = X[0]
    codes = np.zeros((60, 1), np.uint8)  # of no help
    _, expected = bf.CodeIndex(codes).search(codes[:9], 20, query_vectors=X[:9], rescore=X, oversample=3)
    distances, ids = bf.CodeIndex(codes).search(
        codes[:9], 20, query_vectors=X[:9] * scale, rescore=X * scale, oversample=3
    )
    np.testing.assert_array_equal(ids, expected)
    assert (np.diff(distances, axis=1) >= 0).all()
    far = np.concatenate([X * scale, np.full((1, 6), 1e10)])  # beside a row of ordinary size
    _, ids = bf.CodeIndex(np.zeros((61, 1), np.uint8)).search(
        codes[:9], 20, query_vectors=far[:9], rescore=far, oversample=4
    )
    np.testing.assert_array_equal(ids, expected)


def test_a_metric_without_rescoring_is_refused() -> None:
    X = np.random.default_rng(0).normal(size=(50, 6))
    itq = bf.ITQ(n_bits=6, random_state=0).fit(X)
    codes = itq.encode(X)
    for found in (
        lambda **more: bf.search(codes, X[:3], 2, model=itq, **more),
        lambda **more: bf.CodeIndex(codes).search(codes[:3], 2, **more),
    ):
        with pytest.raises(bf.ConfigError, match="how candidates are rescored"):
            found(metric="cosine")
        with pytest.raises(bf.ConfigError, match="one of euclidean, cosine, got 'cosin'"):
            found(metric="cosin")
    assert bf.search(codes, X[:3], 2, model=itq, rescore=X, metric="cosine")[1][:, 0].tolist() == [0, 1, 2]
