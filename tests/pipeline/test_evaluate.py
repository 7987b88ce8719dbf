"""Evaluation against brute force over unpacked codes, and its independence of blocks, workers and storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import xarray
from bitfleet.pipeline.api import encode_into
from bitfleet.pipeline.config import build_method
from bitfleet.pipeline.errors import ConfigError
from bitfleet.pipeline.evaluate import DEFAULT_METRICS, evaluate
from bitfleet.pipeline.executors import SERIAL, Where
from bitfleet.pipeline.fitting import fit_in_memory
from bitfleet.pipeline.search import projections
from bitfleet.storage.datasets import Dataset, DatasetWriter
from bitfleet.tasks.asymmetric import asymmetric_distances
from bitfleet.tasks.search import tie_keys
from scipy.spatial.distance import cdist
from scipy.stats import kendalltau

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bitfleet.pipeline.model import Model
    from distributed import Client

ALL = ("map@50", "map_min@50", "precision@20", "recall5@30", "recall@100")


@pytest.fixture
def split(blobs: tuple[np.ndarray, np.ndarray]) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """500 rows to search, 100 to ask for, each with labels."""
    vectors, labels = blobs
    return (vectors[:500], labels[:500]), (vectors[500:], labels[500:])


@pytest.fixture
def model(split: tuple[tuple[np.ndarray, np.ndarray], ...], tmp_path: Path) -> Model:
    return fit_in_memory(split[0][0], build_method("lsh", {"n_bits": 12}), 3, tmp_path)


@pytest.fixture
def local_client(clusters: Callable[[int], Client]) -> Client:
    return clusters(2)


def stored(path: Path, rows: tuple[np.ndarray, np.ndarray], chunk_rows: int = 64) -> Dataset:
    writer = DatasetWriter(
        path, n_features=rows[0].shape[1], dtype=np.float32, chunk_rows=chunk_rows, with_labels=True
    )
    writer.append(*rows)
    return writer.close()


def unpacked(model: Model, vectors: np.ndarray) -> np.ndarray:
    return np.unpackbits(model.encode(vectors), axis=1, bitorder="little", count=model.n_bits)


def ranking(model: Model, database: np.ndarray, queries: np.ndarray, seed: int) -> np.ndarray:
    """All rows by (Hamming distance, tie, row), from unpacked codes."""
    distances = cdist(unpacked(model, queries), unpacked(model, database), "cityblock")
    ties = np.broadcast_to(tie_keys(seed, np.arange(len(database))), distances.shape)
    rows = np.broadcast_to(np.arange(len(database)), distances.shape)
    return np.lexsort((rows, ties, distances), axis=1)


def by_hand(order: np.ndarray, split: tuple, cutoffs: tuple[int, int]) -> dict[str, list[float]]:
    (database, labels), (queries, wanted) = split
    n, p = cutoffs
    nearest = np.argsort(cdist(queries.astype(float), database.astype(float)), axis=1, kind="stable")
    values: dict[str, list[float]] = {name: [] for name in ALL}
    for row, ranked in enumerate(order):
        hits = (labels[ranked] == wanted[row]).tolist()
        points = [sum(hits[: k + 1]) / (k + 1) for k in range(n) if hits[k]]
        values["map@50"].append(sum(points) / len(points) if points else 0.0)
        values["map_min@50"].append(sum(points) / min(n, sum(hits)))
        values["precision@20"].append(sum(hits[:p]) / p)
        values["recall5@30"].append(len(set(nearest[row, :5]) & set(ranked[:30])) / 5)
        values["recall@100"].append(len(set(nearest[row, :10]) & set(ranked[:100])) / 10)
    return values


def test_every_metric_equals_brute_force(split: tuple, model: Model) -> None:
    result = evaluate(model, *split, ALL, seed=7)
    order = ranking(model, split[0][0], split[1][0], 7)
    expected = by_hand(order, split, (50, 20))
    for name in ALL:
        assert result["per_query"].sel(metric=name).values == pytest.approx(expected[name]), name
        assert float(result["value"].sel(metric=name)) == pytest.approx(np.mean(expected[name]))
        error = np.std(expected[name], ddof=1) / 10
        assert float(result["standard_error"].sel(metric=name)) == pytest.approx(error)
    assert np.array_equal(result["retrieved"], order[:, :10])
    assert "retrieved" in result.attrs["map@50"]
    assert result.attrs["model"] == model.digest


def test_storage_codes_and_passes_do_not_show(
    split: tuple, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers from arrays, data sets, stored codes, and a few queries at a time."""
    expected = evaluate(model, *split, ALL, seed=1)
    database, queries = stored(tmp_path / "a.zarr", split[0]), stored(tmp_path / "b.zarr", split[1], 33)
    from_disk = evaluate(model, database.path, queries, ALL, seed=1)
    codes = encode_into(model, database, tmp_path / "codes.zarr", SERIAL)
    from_codes = evaluate(model, database, queries, ",".join(ALL), seed=1, codes=codes.path)
    monkeypatch.setattr("bitfleet.pipeline.evaluate._HELD", 700)
    in_passes = evaluate(model, *split, ALL, seed=1)
    assert from_disk.attrs["data"] == database.digest
    assert from_codes.identical(from_disk)
    for other in (from_disk, in_passes):
        xarray.testing.assert_equal(other, expected)


def test_workers_do_not_show(
    split: tuple, model: Model, tmp_path: Path, local_client: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bitfleet.pipeline.neighbors.base_rows", lambda n_features: 64)  # eight leaves
    database = stored(tmp_path / "a.zarr", split[0])
    expected = evaluate(model, database, split[1], ALL)
    assert evaluate(model, database, split[1], ALL, scheduler=local_client).identical(expected)
    in_memory = evaluate(model, *split, ALL, scheduler=local_client)  # spooled for the workers
    xarray.testing.assert_equal(in_memory, expected)


def test_block_size_does_not_show(split: tuple, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = evaluate(model, *split, ALL)
    for rows in (1, 7, 499):
        monkeypatch.setattr("bitfleet.pipeline.neighbors.base_rows", lambda n_features, rows=rows: rows)
        assert evaluate(model, *split, ALL).identical(expected)


def test_the_seed_orders_ties_and_nothing_else(split: tuple, model: Model) -> None:
    one, two = (evaluate(model, *split, ALL, seed=seed) for seed in (0, 1))
    assert not np.array_equal(one["retrieved"], two["retrieved"])
    assert np.array_equal(one["hamming"], two["hamming"])


def test_fewer_rows_than_the_cutoff(split: tuple, model: Model) -> None:
    (vectors, labels), queries = split
    result = evaluate(model, (vectors[:6], labels[:6]), queries, "map@1000,precision@1000,recall10@100")
    assert result.sizes["rank"] == 6
    assert float(result["value"].sel(metric="recall10@100")) == 1  # all six rows are among the 100
    same = (labels[:6] == queries[1][:, None]).mean()
    assert float(result["value"].sel(metric="precision@1000")) == pytest.approx(same)


def test_a_query_that_is_a_row_finds_itself_first(model: Model, split: tuple) -> None:
    vectors = split[0][0]
    result = evaluate(model, vectors, vectors[:20], "recall1@500")
    assert (result["hamming"].values[:, 0] == 0).all()
    assert float(result["value"][0]) == 1


def test_cosine_neighbours(model: Model, split: tuple) -> None:
    database, queries = split[0][0], split[1][0]
    result = evaluate(model, database, queries, "recall5@30", distance="cosine")
    nearest = np.argsort(cdist(queries, database, "cosine"), axis=1)[:, :5]
    order = ranking(model, database, queries, 0)[:, :30]
    expected = [len(set(a) & set(b)) / 5 for a, b in zip(nearest, order, strict=True)]
    assert result["per_query"].values[0] == pytest.approx(expected)
    assert "cosine" in result.attrs["recall5@30"]


def test_labels_are_needed_only_by_label_metrics(model: Model, split: tuple) -> None:
    (database, labels), (queries, wanted) = split
    assert evaluate(model, database, queries, ["recall@20"]).sizes["metric"] == 1
    with pytest.raises(ValueError, match=r"map@5, precision@3 need labels and the queries have none"):
        evaluate(model, (database, labels), queries, "map@5,recall@20,precision@3")
    with pytest.raises(ValueError, match="the data have none"):
        evaluate(model, database, (queries, wanted), "map@5")
    wanted = np.where(np.isin(np.arange(100), [4, 9]), -1, wanted)
    with pytest.raises(ValueError, match=r"2 have none .* row 4"):
        evaluate(model, (database, labels), (queries, wanted), "map@5")


def test_what_cannot_be_evaluated_is_refused(model: Model, split: tuple, tmp_path: Path) -> None:
    (database, labels), queries = split
    with pytest.raises(ValueError, match=r"'mpa@5', 'recal@5'; known are"):
        evaluate(model, *split, ["mpa@5", "recal@5", "map@5"])
    with pytest.raises(ValueError, match="24 features, the queries have 23"):
        evaluate(model, database, queries[0][:, :23], "recall@5")
    with pytest.raises(ValueError, match="queries have no rows"):
        evaluate(model, database, queries[0][:0], "recall@5")
    with pytest.raises(ValueError, match="data have no rows"):
        evaluate(model, database[:0], queries[0], "recall@5")
    with pytest.raises(ValueError, match="500 integer labels"):
        evaluate(model, (database, labels[:-1]), queries, "map@5")
    with pytest.raises(ValueError, match="euclidean, cosine"):
        evaluate(model, database, queries[0], "recall@5", distance="manhattan")
    with pytest.raises(ValueError, match="got both"):
        evaluate(model, *split, scheduler="local", executor=object())  # type: ignore[arg-type]


def test_codes_of_another_model_or_data_are_refused(model: Model, split: tuple, tmp_path: Path) -> None:
    database = stored(tmp_path / "a.zarr", split[0])
    other = fit_in_memory(split[0][0], build_method("lsh", {"n_bits": 12}), 4, tmp_path / "scratch")
    codes = encode_into(other, database, tmp_path / "codes.zarr", SERIAL)
    with pytest.raises(ValueError, match="encoded by the model"):
        evaluate(model, database, split[1], codes=codes)
    shuffled = stored(tmp_path / "b.zarr", (split[0][0][::-1], split[0][1][::-1]))
    codes = encode_into(model, shuffled, tmp_path / "other.zarr", SERIAL)
    with pytest.raises(ValueError, match="codes of other data"):
        evaluate(model, database, split[1], codes=codes)


def test_remote_workers_need_a_saved_model(model: Model, split: tuple) -> None:
    from bitfleet.pipeline.config import ClusterTable

    with pytest.raises(ValueError, match="save the model"):
        evaluate(model, *split, scheduler=Where(ClusterTable(scheduler="tcp://10.0.0.1:8786")))


def test_neighbor_metrics_equal_scipy_and_loops(
    split: tuple, model: Model, tmp_path: Path, local_client: Client
) -> None:
    """Overlap MAP, Kendall's τ-b and the k-order gap, in any blocks, of stored codes and on workers."""
    (rows, _), (queries, _) = split
    names, k = ("overlap_map@7", "kendall@30", "gap@7", "overlap_map@600"), 7
    distance = cdist(queries.astype(float), rows.astype(float))
    nearest = np.argsort(distance, axis=1, kind="stable")
    bits = [
        np.unpackbits(model.encode(x), axis=1, bitorder="little", count=model.n_bits) for x in (queries, rows)
    ]
    hamming = np.round(cdist(*bits, "cityblock"))
    expected: list[list[float]] = [[], [], [], []]
    for c, h, order in zip(distance, hamming, nearest, strict=True):
        limit = np.sort(h)[k - 1]
        places, tied = k - (h < limit).sum(), (h == limit).sum()
        chances = [1 if h[i] < limit else places / tied if h[i] == limit else 0 for i in order[:k]]
        expected[0].append(sum(chances) / k)
        tau = kendalltau(c[order[:30]], h[order[:30]]).statistic
        expected[1].append(0.0 if np.isnan(tau) else tau)
        expected[2].append(c[order[k]] - c[order[k - 1]])
        expected[3].append(1.0)
    found = evaluate(model, rows, queries, names)
    np.testing.assert_allclose(found.per_query, expected, atol=1e-6)
    data = stored(tmp_path / "rows.zarr", split[0])
    codes = encode_into(model, data, tmp_path / "codes.zarr", SERIAL)
    model.save(tmp_path / "model.zarr")
    workers = evaluate(
        str(tmp_path / "model.zarr"), data, queries, names, codes=codes, scheduler=local_client
    )
    np.testing.assert_array_equal(workers.per_query, found.per_query)
    with pytest.raises(ValueError, match="500 rows"):
        evaluate(model, rows, queries, "gap@500")


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_asymmetric_and_rescored_rankings_equal_brute_force(
    split: tuple, tmp_path: Path, distance: str
) -> None:
    (database, labels), (queries, wanted) = split
    model = fit_in_memory(database, build_method("itq", {"n_bits": 10}), 3, tmp_path)
    away = asymmetric_distances(projections(model, queries), unpacked(model, database))
    ties = np.broadcast_to(tie_keys(5, np.arange(500)), away.shape)
    near = {
        True: np.lexsort((ties, away), axis=1),
        False: ranking(model, database, queries, 5),
    }
    true = cdist(queries.astype(float), database.astype(float), distance)
    truly = np.argsort(true, axis=1, kind="stable")
    for asymmetric, factor in ((True, None), (True, 3), (False, 3)):
        result = evaluate(
            model, *split, "recall5@10,precision@20", seed=5, distance=distance, asymmetric=asymmetric,
            rescore=factor,
        )  # fmt: skip
        order = near[asymmetric]
        for name, n in (("recall5@10", 10), ("precision@20", 20)):
            first = order[:, :n]
            if factor:
                candidates = order[:, : n * factor]
                better = np.take_along_axis(true, candidates, axis=1).argsort(axis=1, kind="stable")
                first = np.take_along_axis(candidates, better[:, :n], axis=1)
            expected = (
                [len(set(t) & set(f)) / 5 for t, f in zip(truly[:, :5], first, strict=True)]
                if name.startswith("recall")
                else (labels[first] == wanted[:, None]).mean(axis=1)
            )
            assert result["per_query"].sel(metric=name).values == pytest.approx(expected), (asymmetric, name)
        assert result.attrs.get("rescore") == factor
        assert ("hamming" in result) != asymmetric


def test_asymmetric_evaluation_does_not_depend_on_storage(
    split: tuple, tmp_path: Path, local_client: Client
) -> None:
    database, queries = stored(tmp_path / "a.zarr", split[0]), stored(tmp_path / "b.zarr", split[1], 33)
    model = fit_in_memory(split[0][0], build_method("itq", {"n_bits": 10}), 3, tmp_path)
    codes = encode_into(model, database, tmp_path / "codes.zarr", SERIAL)
    options: dict = {"seed": 1, "asymmetric": True, "rescore": 2}
    expected = evaluate(model, database, queries, ALL, **options)
    assert evaluate(model, database, queries, ALL, codes=codes, **options).identical(expected)
    on_workers = evaluate(model, database, queries, ALL, scheduler=local_client.scheduler.address, **options)
    assert on_workers.identical(expected)


def test_what_cannot_be_ranked_so(split: tuple, model: Model, tmp_path: Path) -> None:
    for options, message in (
        ({"rescore": 0}, "rescore to be an integer >= 1"),
        ({"rescore": 2, "refine": 2}, "got both"),
        ({"distance": "manhattan"}, "distance to be one of euclidean, cosine"),
        ({"rescore": 2, "metrics": "overlap_map@5"}, "compare Hamming distances"),
        ({"asymmetric": True, "metrics": "map@5,kendall@5"}, "kendall@5 compare Hamming distances"),
    ):
        with pytest.raises(ConfigError, match=message):
            evaluate(model, *split, **options)  # type: ignore[arg-type]
    hash_of_arcs = fit_in_memory(split[0][0], build_method("spectral_hashing", {"n_bits": 8}), 3, tmp_path)
    with pytest.raises(ConfigError, match="not signs of projections"):
        evaluate(hash_of_arcs, *split, asymmetric=True)


def test_without_labels_neighbours_are_measured(split: tuple, model: Model) -> None:
    (database, _), (queries, _) = split
    assert list(evaluate(model, *split)["metric"].values) == list(DEFAULT_METRICS)
    for given in ((database, queries), (split[0], queries), (database, split[1])):
        found = evaluate(model, *given)
        assert list(found["metric"].values) == ["recall10@10", "recall10@100"]
