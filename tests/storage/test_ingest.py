"""Ingestion: joined files, labels, refused and dropped rows, bounded memory."""

from __future__ import annotations

import gzip
import itertools
import struct
import tracemalloc

import numpy as np
import pytest
import zarr
from bitfleet.storage.dataset_writer import default_chunk_rows
from bitfleet.storage.datasets import open_dataset
from bitfleet.storage.digest import array_digest, json_digest
from bitfleet.storage.errors import CorruptObject, DataRefused, DestinationExists
from bitfleet.storage.ingest import ingest
from bitfleet.tasks.leaves import base_rows
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)


def dataset_digest(vectors, labels=None, names=()):
    """The documented rule, written down a second time."""
    return json_digest(
        {
            "vectors": array_digest("vectors", vectors),
            "label": None if labels is None else array_digest("label", np.asarray(labels, np.int64)),
            "label_names": list(names),
        }
    )


def test_one_file(tmp_path, x):
    np.savez(tmp_path / "a.npz", X=x, y=np.arange(300) % 4)
    data = ingest(tmp_path / "a.npz", tmp_path / "a.zarr")
    assert (data.n_rows, data.n_features, data.dtype, data.has_labels) == (300, 6, "float32", True)
    np.testing.assert_array_equal(data.rows(0, 300), x)
    np.testing.assert_array_equal(data.labels(), np.arange(300) % 4)
    assert data.digest == dataset_digest(x, np.arange(300) % 4)
    assert data.attrs == {"source": ["a.npz"], "source_format": ["npz"]}
    assert open_dataset(tmp_path / "a.zarr") == data


def test_chunks_follow_the_leaf_rule():
    assert [default_chunk_rows(d) for d in range(1, 3000)] == [base_rows(d) for d in range(1, 3000)]


@settings(deadline=None, max_examples=10)
@given(chunk_rows=st.integers(20, 400), cuts=st.lists(st.integers(0, 300), max_size=3))
def test_neither_chunks_nor_files_change_the_digest(tmp_path_factory, chunk_rows, cuts):
    folder = tmp_path_factory.mktemp("ingest")
    x = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    edges = [0, *sorted(cuts), 300]
    paths = []
    for i, (start, stop) in enumerate(itertools.pairwise(edges)):
        if start < stop:
            paths.append(folder / f"{i}.npy")
            np.save(paths[-1], x[start:stop])
    data = ingest(paths, folder / "a.zarr", chunk_rows=chunk_rows)
    assert data.digest == dataset_digest(x)
    np.testing.assert_array_equal(data.rows(0, 300), x)


def test_formats_joined_and_promoted(tmp_path):
    np.save(tmp_path / "a.npy", np.full((3, 2), 7, np.uint8))
    (tmp_path / "b.fvecs").write_bytes(struct.pack("<i2f", 2, 0.5, 1.5))
    data = ingest([tmp_path / "a.npy", tmp_path / "b.fvecs"], tmp_path / "a.zarr")
    assert data.dtype == "float32"
    assert data.rows(2, 4).tolist() == [[7, 7], [0.5, 1.5]]
    assert data.attrs["source_format"] == ["npy", "vecs"]
    np.save(tmp_path / "c.npy", np.zeros((3, 3)))
    with pytest.raises(DataRefused, match="expected vectors of 2 features"):
        ingest([tmp_path / "a.npy", tmp_path / "c.npy"], tmp_path / "b.zarr")
    assert not (tmp_path / "b.zarr").exists()


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float64", "bool"])
def test_source_dtype_is_kept(tmp_path, dtype):
    data = np.random.default_rng(0).integers(0, 2, (20, 3)).astype(dtype)
    np.save(tmp_path / "a.npy", data)
    stored = ingest(tmp_path / "a.npy", tmp_path / "a.zarr")
    assert stored.dtype == dtype
    assert stored.reader().dtype == ("float64" if dtype == "float64" else "float32")
    np.testing.assert_array_equal(stored.rows(0, 20), data)


# --- labels ---------------------------------------------------------------------------------------------


def test_labels_in_files_of_their_own(tmp_path, x):
    labels = np.arange(300, dtype=np.uint8)[::-1] % 10
    np.save(tmp_path / "x.npy", x)
    head = struct.pack(">BBBBI", 0, 0, 8, 1, 300)
    (tmp_path / "labels-idx1-ubyte.gz").write_bytes(gzip.compress(head + labels.tobytes()))
    data = ingest(tmp_path / "x.npy", tmp_path / "a.zarr", labels=tmp_path / "labels-idx1-ubyte.gz")
    np.testing.assert_array_equal(data.labels(), labels)
    np.save(tmp_path / "y1.npy", labels[:100])
    np.save(tmp_path / "y2.npy", labels[100:])
    parts = [tmp_path / "y1.npy", tmp_path / "y2.npy"]
    assert ingest(tmp_path / "x.npy", tmp_path / "b.zarr", labels=parts).digest == data.digest
    with pytest.raises(DataRefused, match="100 labels are fewer"):
        ingest(tmp_path / "x.npy", tmp_path / "c.zarr", labels=parts[:1])
    with pytest.raises(DataRefused, match="expected 300 labels, got 400"):
        ingest(tmp_path / "x.npy", tmp_path / "c.zarr", labels=[*parts, parts[0]])


def test_string_labels_are_numbered_by_appearance(tmp_path, x):
    names = np.array(["owl", "", "ant", "owl"] * 75)
    np.savez(tmp_path / "a.npz", X=x, y=names)
    data = ingest(tmp_path / "a.npz", tmp_path / "a.zarr")
    assert data.label_names == ("owl", "ant")
    assert data.labels()[:4].tolist() == [0, -1, 1, 0]
    assert data.to_xarray().attrs["label_names"] == ["owl", "ant"]
    again = ingest(tmp_path / "a.zarr", tmp_path / "b.zarr", chunk_rows=7)
    assert (again.digest, again.label_names) == (data.digest, data.label_names)


def test_numpy_strings_in_a_file_of_labels(tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.array([b"a", b"b", b"c"] * 100))
    data = ingest(tmp_path / "x.npy", tmp_path / "a.zarr", labels=str(tmp_path / "y.npy"))
    assert data.label_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(300), "integer, bool or string labels, got float64"),
        (np.full(300, 2**63, np.uint64), "does not fit int64"),
    ],
)
def test_labels_that_are_refused(tmp_path, x, labels, message):
    np.savez(tmp_path / "a.npz", X=x, y=labels)
    with pytest.raises(DataRefused, match=message):
        ingest(tmp_path / "a.npz", tmp_path / "a.zarr")


def test_labels_in_some_files_only_are_refused(tmp_path, x):
    np.savez(tmp_path / "a.npz", X=x, y=np.zeros(300, int))
    np.savez(tmp_path / "b.npz", X=x)
    with pytest.raises(DataRefused, match="one has labels"):
        ingest([tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "a.zarr")


# --- rows that are not finite ---------------------------------------------------------------------------


def spoil(x):
    bad = x.copy()
    bad[3, 0], bad[17, 5], bad[18, 2], bad[299, 1] = np.nan, np.inf, -np.inf, np.nan
    bad[100:104] = np.nan
    return bad, np.r_[3, 17, 18, 100:104, 299]


def test_refused_by_row_and_count(tmp_path, x):
    np.save(tmp_path / "good.npy", x)
    np.save(tmp_path / "bad.npy", spoil(x)[0])
    with pytest.raises(DataRefused) as refusal:
        ingest([tmp_path / "good.npy", tmp_path / "bad.npy"], tmp_path / "a.zarr")
    assert "8 of 600 rows" in str(refusal.value)
    assert "bad.npy row 3, bad.npy row 17, bad.npy row 18, bad.npy row 100" in str(refusal.value)
    assert "--nonfinite drop" in str(refusal.value)
    assert not (tmp_path / "a.zarr").exists()


def test_dropping_equals_the_cleaned_file(tmp_path, x):
    bad, rows = spoil(x)
    labels = np.array(["gone" if i in rows else f"c{i % 3}" for i in range(300)])
    np.savez(tmp_path / "bad.npz", X=bad, y=labels)
    np.savez(tmp_path / "clean.npz", X=np.delete(x, rows, axis=0), y=np.delete(labels, rows))
    dropped = ingest(tmp_path / "bad.npz", tmp_path / "a.zarr", nonfinite="drop")
    clean = ingest(tmp_path / "clean.npz", tmp_path / "b.zarr")
    assert dropped.digest == clean.digest
    assert "gone" not in dropped.label_names
    assert dropped.attrs["dropped_rows"] == 8
    assert dropped.attrs["dropped_rows_digest"] == array_digest("dropped", rows)


def test_nothing_left_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.full((5, 2), np.nan))
    np.save(tmp_path / "b.npy", np.zeros((0, 2)))
    for name in "ab":
        with pytest.raises(DataRefused, match="at least one row"):
            ingest(tmp_path / f"{name}.npy", tmp_path / "a.zarr", nonfinite="drop")


# --- the rest -------------------------------------------------------------------------------------------


def test_filled_chunks_are_recorded(tmp_path):
    array = zarr.create_array(tmp_path / "src.zarr", shape=(40, 3), chunks=(10, 3), dtype="f4")
    array[:10] = 1
    with pytest.raises(CorruptObject, match="3 of 4 chunks are missing"):
        ingest(tmp_path / "src.zarr", tmp_path / "a.zarr")
    assert (
        ingest(tmp_path / "src.zarr", tmp_path / "a.zarr", missing="fill").attrs["missing_chunks_filled"] == 3
    )


@pytest.mark.parametrize("limit", [1, 150, 299, 300, 1000])
def test_limit(tmp_path, x, limit):
    np.savez(tmp_path / "a.npz", X=x[:200], y=np.arange(200))
    np.savez(tmp_path / "b.npz", X=x[200:], y=np.arange(200, 300))
    seen = []
    paths = [tmp_path / "a.npz", tmp_path / "b.npz"]
    data = ingest(paths, tmp_path / "a.zarr", limit=limit, on_rows=seen.append)
    assert data.digest == dataset_digest(x[:limit], np.arange(300)[:limit])
    assert seen[-1] == min(limit, 300)


def test_destination_and_arguments(tmp_path, x):
    np.save(tmp_path / "a.npy", x)
    (tmp_path / "there").mkdir()
    with pytest.raises(DestinationExists, match="there exists"):
        ingest(tmp_path / "a.npy", tmp_path / "there")
    with pytest.raises(ValueError, match="expected nonfinite to be one of refuse, drop"):
        ingest(tmp_path / "a.npy", tmp_path / "a.zarr", nonfinite="keep")
    with pytest.raises(DataRefused, match="at least one source"):
        ingest([], tmp_path / "a.zarr")


def test_an_interrupted_ingest_leaves_nothing(tmp_path, x):
    np.save(tmp_path / "a.npy", x)

    def interrupt(n_rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path / "a.npy", tmp_path / "a.zarr", on_rows=interrupt)
    assert not (tmp_path / "a.zarr").exists()


@pytest.mark.parametrize(
    "name",
    [
        "a.npy",
        "a.h5",
        "a.parquet",
        *(pytest.param(n, marks=pytest.mark.long) for n in ("a.npz", "a.idx.gz", "a.fvecs")),
    ],
)
def test_memory_is_bounded_by_blocks_not_by_the_file(tmp_path, name):
    """Twice the file takes the same memory, which is less than the smaller one."""
    digits = np.random.default_rng(0).integers(0, 255, (80_000, 128)).astype(np.float32)
    if "idx" in name:  # bytes: a block holds four times the rows, so that the files have to have them, too
        digits = np.tile(digits.astype(np.uint8), (4, 1))
    peaks = []
    for n_rows in (len(digits) // 2, len(digits)):
        data = digits[:n_rows]
        write_large(tmp_path / name, data)
        if not peaks:
            ingest(tmp_path / name, tmp_path / "warm.zarr", limit=10)  # imports and caches
        tracemalloc.start()
        try:
            stored = ingest(tmp_path / name, tmp_path / f"{n_rows}.zarr", chunk_rows=4096)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert stored.digest == dataset_digest(data)
    assert peaks[1] < peaks[0] + 4e6
    assert peaks[0] < digits.nbytes / 2


def test_arrow_keeps_no_row_group_that_has_been_read(tmp_path):
    pa = pytest.importorskip("pyarrow")
    data = np.random.default_rng(0).normal(size=(80_000, 128)).astype(np.float32)
    write_large(tmp_path / "a.parquet", data)
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        ingest(tmp_path / "a.parquet", tmp_path / "a.zarr")
    finally:
        pa.set_memory_pool(before)
    assert 0 < pool.max_memory() < data.nbytes / 2


def write_large(path, data):
    if path.suffix == ".npy":
        np.save(path, data)
    elif path.suffix == ".npz":
        np.savez(path, X=data, y=np.zeros(0, int))
    elif path.suffix == ".gz":
        head = struct.pack(">BBBBII", 0, 0, 8, 2, *data.shape)
        path.write_bytes(gzip.compress(head + data.astype(np.uint8).tobytes(), 1))
    elif path.suffix == ".fvecs":
        record = np.empty(len(data), [("n", "<i4"), ("row", "<f4", data.shape[1:])])
        record["n"], record["row"] = data.shape[1], data
        record.tofile(path)
    elif path.suffix == ".h5":
        with pytest.importorskip("h5py").File(path, "w") as file:
            file["train"] = data
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        column = pa.FixedSizeListArray.from_arrays(pa.array(data.reshape(-1)), data.shape[1])
        pq.write_table(pa.table({"v": column}), path, row_group_size=8192)


def test_real_digits(tmp_path, shared_data):
    data = ingest(shared_data / "mnist.npz", tmp_path / "mnist.zarr", limit=2000)
    with np.load(shared_data / "mnist.npz") as file:
        assert data.digest == dataset_digest(file["X"][:2000], file["y"][:2000])
    assert (data.dtype, data.chunk_rows) == ("uint8", 2000)
