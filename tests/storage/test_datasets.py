"""Datasets: writing in pieces, reading by address, and refusing what is unfinished, damaged or hostile."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from bitfleet.storage.datasets import ArrayReader, DatasetWriter, open_dataset
from bitfleet.storage.digest import json_digest
from bitfleet.storage.errors import CorruptObject, DataRefused, DestinationExists, UnsafeObject
from bitfleet.tasks.protocols import BlockPair, RowIndices, RowRange
from hypothesis import given, settings
from hypothesis import strategies as st


def write(path, vectors, labels=None, *, pieces=(), label_names=(), **options):
    writer = DatasetWriter(
        path, n_features=vectors.shape[1], dtype=vectors.dtype, with_labels=labels is not None, **options
    )
    for start, stop in itertools.pairwise([0, *sorted(pieces), len(vectors)]):
        writer.append(vectors[start:stop], None if labels is None else labels[start:stop])
    return writer.close(label_names)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(100, 5)).astype(np.float32)


@pytest.fixture
def data(tmp_path, x):
    return write(tmp_path / "a.zarr", x, np.arange(100) % 7, chunk_rows=16, attrs={"source": ["a"]})


# --- writing --------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=15)
@given(
    dtype=st.sampled_from(["bool", "uint8", "int64", "float16", "float32", "float64"]),
    chunk_rows=st.integers(7, 130),
    pieces=st.lists(st.integers(0, 100), max_size=5),
)
def test_any_pieces_and_chunks_give_the_same_dataset(tmp_path_factory, dtype, chunk_rows, pieces):
    folder = tmp_path_factory.mktemp("datasets")
    vectors = np.random.default_rng(0).integers(0, 2, (100, 5)).astype(dtype)
    labels = np.arange(100) % 7
    data = write(folder / "a", vectors, labels, pieces=pieces, chunk_rows=chunk_rows)
    assert data.digest == write(folder / "b", vectors, labels).digest
    np.testing.assert_array_equal(data.rows(0, 100), vectors)
    np.testing.assert_array_equal(data.labels(), labels)
    data.verify()


def test_content_decides_the_digest(tmp_path, x):
    y = np.zeros(100, np.int64)
    digests = {
        write(tmp_path / "a", x).digest,
        write(tmp_path / "b", x.astype(np.float64)).digest,
        write(tmp_path / "c", x[:99]).digest,
        write(tmp_path / "d", x, y).digest,
        write(tmp_path / "e", x, y + 1).digest,
        write(tmp_path / "f", x, y, label_names=["cat"]).digest,
    }
    assert len(digests) == 6
    assert write(tmp_path / "g", x, attrs={"source": "elsewhere"}).digest in digests


def test_all_zeros_are_data(tmp_path):
    zeros = np.zeros((40, 3), np.float32)
    data = write(tmp_path / "a", zeros, np.zeros(40, np.int64), chunk_rows=8)
    assert len(list((tmp_path / "a" / "vectors" / "c").iterdir())) == 5
    np.testing.assert_array_equal(data.rows(0, 40), zeros)


def test_an_empty_dataset_is_a_dataset(tmp_path):
    data = write(tmp_path / "a", np.empty((0, 3), np.float32), np.empty(0, np.int64))
    assert (data.n_rows, data.n_features) == (0, 3)
    assert data.rows(0, 0).shape == (0, 3)
    assert data.labels().shape == (0,)
    assert data.reader().read(RowRange(0, 0)).vectors.shape == (0, 3)


def test_what_the_writer_refuses(tmp_path, x):
    with pytest.raises(DataRefused, match="got object"):
        DatasetWriter(tmp_path / "a", n_features=3, dtype=object)
    with pytest.raises(DataRefused, match="at least one feature"):
        DatasetWriter(tmp_path / "a", n_features=0, dtype="f4")
    with pytest.raises(ValueError, match="set by the writer"):
        DatasetWriter(tmp_path / "a", n_features=3, dtype="f4", attrs={"digest": "mine"})
    writer = DatasetWriter(tmp_path / "a", n_features=5, dtype="f4", with_labels=True)
    with pytest.raises(DestinationExists):
        DatasetWriter(tmp_path / "a", n_features=5, dtype="f4")
    with pytest.raises(DataRefused, match="expected vectors of 5 features"):
        writer.append(x[:, :4], np.zeros(100, int))
    with pytest.raises(DataRefused, match="castable to float32, got float64"):
        writer.append(x.astype(np.float64), np.zeros(100, int))
    with pytest.raises(DataRefused, match="expected labels"):
        writer.append(x)
    with pytest.raises(DataRefused, match="100 integer labels"):
        writer.append(x, np.zeros(99, int))
    writer.append(x[:7], np.zeros(7, int))
    x[3, 2] = np.inf
    with pytest.raises(DataRefused, match="row 10 holds NaN"):
        writer.append(x, np.zeros(100, int))
    writer.abort()
    assert not (tmp_path / "a").exists()


def _append_twice(writer, first, second):
    writer.append(first)
    writer.append(second)


def test_a_with_block_closes_or_leaves_nothing(tmp_path, x):
    with DatasetWriter(tmp_path / "a", n_features=5, dtype="f4") as writer:
        writer.append(x[:30])
        writer.append(x[30:])
    np.testing.assert_array_equal(open_dataset(tmp_path / "a").to_xarray()["vectors"], x)
    writer = DatasetWriter(tmp_path / "b", n_features=5, dtype="f4")
    with pytest.raises(DataRefused, match="row 100 holds NaN"), writer:
        _append_twice(writer, x, np.full_like(x, np.nan))
    assert not (tmp_path / "b").exists()


def test_a_killed_writer_leaves_nothing_that_is_taken_for_data(tmp_path):
    script = f"""
        import os, signal
        import numpy as np
        from bitfleet.storage.datasets import DatasetWriter
        writer = DatasetWriter({str(tmp_path / "a")!r}, n_features=3, dtype="f4", chunk_rows=4)
        writer.append(np.ones((10, 3), np.float32))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "a" / "vectors" / "c" / "1" / "0").exists()
    with pytest.raises(CorruptObject, match="unfinished"):
        open_dataset(tmp_path / "a")


# --- reading --------------------------------------------------------------------------------------------


def test_what_a_dataset_says_of_itself(data, x):
    assert (data.n_rows, data.n_features, data.dtype, data.chunk_rows) == (100, 5, "float32", 16)
    assert (data.has_labels, data.label_names, data.attrs) == (True, (), {"source": ["a"]})
    with pytest.raises(IndexError, match="not within a data set of 100 rows"):
        data.rows(50, 101)


def test_xarray_opens_it(data, x, tmp_path):
    opened = data.to_xarray()
    assert opened["vectors"].dims == ("sample", "feature")
    assert opened["label"].dims == ("sample",)
    np.testing.assert_array_equal(opened["vectors"].values, x)
    xarray = pytest.importorskip("xarray")
    # default arguments: without consolidated metadata this warns, and warnings are errors here
    np.testing.assert_array_equal(xarray.open_zarr(data.path)["label"], np.arange(100) % 7)


def test_consolidated_metadata_is_that_of_the_arrays(data):
    path = data.path / "zarr.json"
    text = path.read_text()
    stored = json.loads(text)["consolidated_metadata"]["metadata"]
    assert sorted(stored) == ["label", "vectors"]
    assert stored["vectors"] == json.loads((data.path / "vectors" / "zarr.json").read_text())
    path.write_text(text.replace('"float32"', '"float64"'))
    with pytest.raises(CorruptObject, match="not those that were written"):
        open_dataset(data.path)


ADDRESSES = [RowRange(0, 100), RowRange(15, 17), RowRange(96, 100), RowRange(5, 5)]
INDICES = [RowIndices((99, 0, 50, 50, 17)), RowIndices(()), RowIndices((3,))]


@pytest.mark.parametrize("address", [*ADDRESSES, *INDICES], ids=str)
@pytest.mark.parametrize("stored", ["uint8", "float16", "float32", "float64", ">f4"])
def test_both_readers_return_the_rows(tmp_path, address, stored):
    vectors = np.random.default_rng(0).integers(0, 255, (100, 5)).astype(stored)
    labels = np.arange(100) % 7
    rows = np.asarray(
        address.rows if isinstance(address, RowIndices) else range(address.start, address.stop), int
    )
    stored_reader = write(tmp_path / "a", vectors, labels, chunk_rows=16).reader()
    for reader in (stored_reader, pickle.loads(pickle.dumps(stored_reader)), ArrayReader(vectors, labels)):
        block = reader.read(address)
        assert (reader.n_rows, reader.n_features) == (100, 5)
        assert block.vectors.dtype == reader.dtype == ("float64" if stored == "float64" else "float32")
        assert (block.rows.dtype, block.labels.dtype) == (np.int64, np.int64)
        assert block.vectors.flags.c_contiguous
        assert not block.vectors.flags.writeable
        np.testing.assert_array_equal(block.rows, rows)
        np.testing.assert_array_equal(block.vectors, vectors[rows])
        np.testing.assert_array_equal(block.labels, labels[rows])


def test_pairs(data, x):
    pair = BlockPair(RowRange(0, 10), RowRange(90, 100))
    for reader in (data.reader(), ArrayReader(x)):
        left, right = reader.read(pair)
        np.testing.assert_array_equal(left.vectors, x[:10])
        np.testing.assert_array_equal(right.rows, np.arange(90, 100))


@pytest.mark.parametrize("address", [RowRange(90, 101), RowIndices((100,)), RowIndices((-1,))], ids=str)
def test_rows_outside_are_refused(data, x, address):
    for reader in (data.reader(), ArrayReader(x)):
        with pytest.raises(IndexError, match="not within a data set of 100 rows"):
            reader.read(address)


@pytest.mark.parametrize(
    "layout", [np.ascontiguousarray, np.asfortranarray, lambda a: np.repeat(a, 2, 0)[::2]]
)
def test_a_callers_array_is_never_changed(x, layout):
    given_array = layout(x)
    before, writeable = given_array.copy(), given_array.flags.writeable
    block = ArrayReader(given_array).read(RowRange(0, 100))
    with pytest.raises(ValueError, match="read-only"):
        block.vectors[0, 0] = 1
    np.testing.assert_array_equal(given_array, before)
    assert given_array.flags.writeable == writeable


def test_arrays_that_are_no_data(x):
    for array, message in [
        (x[0], "got shape .5,"),
        (x.astype(object), "got object"),
        (x.astype(complex), "complex"),
    ]:
        with pytest.raises(DataRefused, match=message):
            ArrayReader(array)
    with pytest.raises(DataRefused, match="100 integer labels"):
        ArrayReader(x, np.zeros(100))


def test_a_reader_is_small(data):
    assert len(pickle.dumps(data.reader())) < 1000


# --- damage and malice ----------------------------------------------------------------------------------


def change_group(path, **changes):
    meta = json.loads((path / "zarr.json").read_text())
    meta["attributes"] |= changes
    (path / "zarr.json").write_text(json.dumps(meta))


def test_what_is_no_dataset(tmp_path):
    with pytest.raises(DataRefused, match="there is no data set"):
        open_dataset(tmp_path / "nowhere")
    (tmp_path / "rows.npy").write_bytes(b"rows")
    with pytest.raises(DataRefused, match=r"this is a file.*ingest rows.npy rows.zarr"):
        open_dataset(tmp_path / "rows.npy")
    with pytest.raises(DataRefused, match="no data set"):
        open_dataset(tmp_path)
    (tmp_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    with pytest.raises(DataRefused, match="no data set of ours"):
        open_dataset(tmp_path)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"format_version": 2}, DataRefused, "the bitfleet that wrote it or a newer one"),
        ({"digest": 5}, CorruptObject, "missing from the attributes"),
        ({"label_names": [1]}, CorruptObject, "missing from the attributes"),
        ({"has_labels": "yes"}, CorruptObject, "missing from the attributes"),
        ({"seals": 5}, CorruptObject, "attribute seals is wrong"),
        ({"seals": {}}, CorruptObject, "not those that were written"),
    ],
)
def test_attributes_that_are_wrong(data, changes, error, message):
    change_group(data.path, **changes)
    if error is CorruptObject:
        with pytest.raises(CorruptObject, match=r"zarr\.json has changed since it was written"):
            open_dataset(data.path)
    meta = json.loads((data.path / "zarr.json").read_text())["attributes"]
    del meta["sha256"]
    change_group(data.path, sha256=json_digest(meta))
    with pytest.raises(error, match=message):
        open_dataset(data.path)


@pytest.mark.parametrize(
    "victim", ["zarr.json", "vectors/zarr.json", "label/c/3", "vectors/c/2/0", "vectors"]
)
def test_missing_parts(data, victim):
    target = data.path / victim
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    with pytest.raises(CorruptObject, match=r"missing|unfinished"):
        open_dataset(data.path)


def swap(a, b):
    first = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(first)


@pytest.mark.parametrize("name", ["vectors/c/{}/0", "label/c/{}"])
def test_whole_chunks_in_the_wrong_place_are_found_on_opening(data, name):
    swap(*(data.path / name.format(i) for i in "01"))
    with pytest.raises(CorruptObject, match="not those that were written"):
        open_dataset(data.path)
    with pytest.raises(CorruptObject, match="not those that were written"):
        data.reader().read(RowRange(0, 10))


def test_a_chunk_of_another_dataset_is_found_on_opening(data, x, tmp_path):
    other = write(tmp_path / "other.zarr", x + 1, chunk_rows=16)
    shutil.copy(other.path / "vectors" / "c" / "2" / "0", data.path / "vectors" / "c" / "2" / "0")
    with pytest.raises(CorruptObject, match="not those that were written"):
        open_dataset(data.path)


def test_a_shape_that_was_changed_is_found_on_opening(data):
    path = data.path / "vectors" / "zarr.json"
    path.write_text(path.read_text().replace("100,", "101,", 1))  # still 7 chunks: the row would be zeros
    with pytest.raises(CorruptObject, match="not those that were written"):
        open_dataset(data.path)


def test_swapped_chunks_are_found_by_verify_without_seals(data):
    swap(*(data.path / "vectors" / "c" / i / "0" for i in "01"))
    path = data.path / "zarr.json"
    meta = json.loads(path.read_text())
    del meta["attributes"]["seals"], meta["attributes"]["sha256"]  # as an earlier version wrote it
    path.write_text(json.dumps(meta))
    with pytest.raises(CorruptObject, match="expected digest"):
        open_dataset(data.path).verify()


def test_a_dataset_that_took_anothers_place(data, x):
    reader = data.reader()
    reader.read(RowRange(0, 10))
    shutil.rmtree(data.path)
    with pytest.raises(CorruptObject, match="gone or unfinished"):
        reader.read(RowRange(0, 10))
    write(data.path, x + 1, chunk_rows=16)
    with pytest.raises(CorruptObject, match="another is there"):
        reader.read(RowRange(0, 10))


def test_the_same_data_in_other_chunks_may_take_its_place(data, x):
    reader = data.reader()
    reader.read(RowRange(0, 10))
    shutil.rmtree(data.path)
    write(data.path, x, np.arange(100) % 7, chunk_rows=33)
    np.testing.assert_array_equal(reader.read(RowRange(0, 100)).vectors, x)


def test_links_and_odd_layouts_are_refused(data, x, tmp_path):
    shutil.move(data.path / "vectors", tmp_path / "outside")
    (data.path / "vectors").symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafeObject, match="symbolic link"):
        open_dataset(data.path)
    other = write(tmp_path / "b.zarr", x)
    meta = json.loads((other.path / "vectors" / "zarr.json").read_text())
    meta["chunk_grid"]["configuration"]["chunk_shape"] = [100, 3]
    (other.path / "vectors" / "zarr.json").write_text(json.dumps(meta))
    os.utime(other.path / "zarr.json")
    with pytest.raises((UnsafeObject, CorruptObject)):
        open_dataset(other.path)
