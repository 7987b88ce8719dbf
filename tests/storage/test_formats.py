"""Every format, written by an independent writer, comes back row for row."""

from __future__ import annotations

import gzip
import struct
import zipfile
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
import zarr
from bitfleet.storage import formats
from bitfleet.storage.errors import CorruptObject, DataRefused, UnsafeObject
from bitfleet.storage.formats.source import array_blocks

if TYPE_CHECKING:
    from pathlib import Path


def read_all(source, rows=7):
    blocks = list(source.blocks(rows))
    assert all(len(vectors) <= rows for vectors, _ in blocks)
    vectors = np.concatenate([vectors for vectors, _ in blocks])
    labels = [names for _, names in blocks]
    if not source.has_labels:
        assert all(piece is None for piece in labels)
        return vectors, None
    return vectors, np.concatenate(labels)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)


@pytest.fixture
def y() -> np.ndarray:
    return np.arange(50) % 7


# --- npy, npz -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float32", "float64", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_every_dtype_and_order(tmp_path, dtype, order):
    data = np.asarray(np.random.default_rng(1).integers(0, 2, (40, 5)), dtype, order=order)
    np.save(tmp_path / "a.npy", data)
    source = formats.open_source(tmp_path / "a.npy")
    vectors, _ = read_all(source)
    assert (source.n_features, source.n_rows, source.dtype) == (5, 40, np.dtype(dtype))
    np.testing.assert_array_equal(vectors, data)


def test_images_become_one_vector_per_row(tmp_path):
    images = np.arange(4 * 3 * 2, dtype=np.uint8).reshape(4, 3, 2)
    np.save(tmp_path / "a.npy", images)
    np.savez(tmp_path / "a.npz", images)
    for name in ("a.npy", "a.npz"):
        np.testing.assert_array_equal(read_all(formats.open_source(tmp_path / name))[0], images.reshape(4, 6))


def test_npy_of_objects_is_refused_without_unpickling(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[{}, []]], dtype=object), allow_pickle=True)
    with pytest.raises(DataRefused, match="pickled objects"):
        formats.open_source(tmp_path / "a.npy")


@pytest.mark.parametrize("keep", [0, 5, 60, 200])
def test_truncated_npy_is_refused(tmp_path, x, keep):
    np.save(tmp_path / "whole.npy", x)
    (tmp_path / "a.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:keep])
    with pytest.raises(DataRefused, match=r"a\.npy"):
        formats.open_source(tmp_path / "a.npy")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_streams_vectors_and_labels_together(tmp_path, x, y, save, order):
    save(tmp_path / "a.npz", X=np.asarray(x, order=order), y=y, n_train=np.int64(40))
    source = formats.open_source(tmp_path / "a.npz")
    vectors, labels = read_all(source)
    np.testing.assert_array_equal(vectors, x)
    np.testing.assert_array_equal(labels, y)


def test_npz_keys(tmp_path, x, y):
    np.savez(tmp_path / "a.npz", a=x, b=x[:, :2], c=y)
    with pytest.raises(DataRefused, match=r"a \(50, 6\), b \(50, 2\), c \(50,\)"):
        formats.open_source(tmp_path / "a.npz")
    vectors, labels = read_all(formats.open_source(tmp_path / "a.npz", vectors="b", labels="c"))
    np.testing.assert_array_equal(vectors, x[:, :2])
    np.testing.assert_array_equal(labels, y)
    with pytest.raises(DataRefused, match="no array 'z'"):
        formats.open_source(tmp_path / "a.npz", vectors="z")
    np.savez(tmp_path / "b.npz", only=x, y=y[:10])
    assert not formats.open_source(tmp_path / "b.npz").has_labels  # its length does not fit
    with pytest.raises(DataRefused, match="one label per row"):
        formats.open_source(tmp_path / "b.npz", labels="y")


def test_npz_with_pickled_labels_is_refused_not_ignored(tmp_path, x):
    np.savez(tmp_path / "a.npz", X=x, y=np.array(["a"] * 50, dtype=object))
    with pytest.raises(DataRefused, match=r"\[y\].*pickled"):
        formats.open_source(tmp_path / "a.npz")


def test_damaged_npz_is_refused(tmp_path, x):
    np.savez_compressed(tmp_path / "a.npz", X=np.tile(x, (100, 1)))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[len(data) // 2] ^= 255
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(DataRefused, match="no readable"):
        read_all(formats.open_source(tmp_path / "a.npz"))
    (tmp_path / "b.npz").write_bytes(data[:100])
    with pytest.raises(DataRefused, match="no readable"):
        formats.open_source(tmp_path / "b.npz")


def test_npz_member_shorter_than_its_shape_is_refused(tmp_path, x):
    np.save(tmp_path / "X.npy", x)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", (tmp_path / "X.npy").read_bytes()[:-30])
    with pytest.raises(DataRefused, match="row 48 of 50"):
        read_all(formats.open_source(tmp_path / "a.npz"))


# --- IDX, vecs ------------------------------------------------------------------------------------------

IDX_CODES = {"u1": 8, "i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}


def idx_bytes(array: np.ndarray) -> bytes:
    code = IDX_CODES[array.dtype.str.replace("|", "")]
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("dtype", list(IDX_CODES))
@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "a.idx", "train-images-idx3-ubyte.gz"])
def test_idx(tmp_path, dtype, name):
    images = np.arange(20 * 4 * 3).reshape(20, 4, 3).astype(dtype)
    data = idx_bytes(images)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    source = formats.open_source(tmp_path / name)
    np.testing.assert_array_equal(read_all(source)[0], images.reshape(20, 12))
    with pytest.raises(DataRefused, match="expected labels"):
        formats.open_labels(tmp_path / name)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("change", [-3, 3])
def test_idx_of_another_length_is_refused(tmp_path, packed, change):
    data = idx_bytes(np.zeros((20, 12), np.uint8))
    data = data[:change] if change < 0 else data + b"\0" * change
    (tmp_path / "a.idx").write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(DataRefused, match=r"expected|cut off|more than"):
        read_all(formats.open_source(tmp_path / "a.idx"))


def test_damaged_gzip_is_refused(tmp_path):
    data = gzip.compress(idx_bytes(np.random.default_rng(0).integers(0, 255, (500, 12)).astype(np.uint8)))
    (tmp_path / "a.idx").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataRefused, match="gzip"):
        read_all(formats.open_source(tmp_path / "a.idx"))


@pytest.mark.parametrize(("suffix", "dtype"), [("fvecs", "f"), ("ivecs", "i"), ("bvecs", "B")])
def test_vecs_written_with_struct(tmp_path, suffix, dtype):
    rows = np.random.default_rng(2).integers(0, 255, (30, 9))
    data = b"".join(struct.pack(f"<i9{dtype}", 9, *row) for row in rows)
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(data)
    source = formats.open_source(path)
    assert (source.n_rows, source.n_features) == (30, 9)
    np.testing.assert_array_equal(read_all(source)[0], rows)


def test_ragged_and_truncated_vecs_are_refused(tmp_path):
    good = struct.pack("<i3f", 3, 1, 2, 3)
    (tmp_path / "a.fvecs").write_bytes(good * 9 + struct.pack("<i3f", 2, 1, 2, 3) + good)
    with pytest.raises(DataRefused, match="row 9 announces 2 numbers, row 0 has 3"):
        read_all(formats.open_source(tmp_path / "a.fvecs"))
    (tmp_path / "b.fvecs").write_bytes(good * 9 + good[:-1])
    with pytest.raises(DataRefused, match="within row 9"):
        read_all(formats.open_source(tmp_path / "b.fvecs"))
    for head in (struct.pack("<i", -1) + good, struct.pack("<i", 2**30) + good, b"", b"\1"):
        (tmp_path / "c.fvecs").write_bytes(head)
        with pytest.raises(DataRefused, match=r"c\.fvecs"):
            formats.open_source(tmp_path / "c.fvecs")


# --- HDF5 -----------------------------------------------------------------------------------------------


def test_hdf5_in_the_layout_of_ann_benchmarks(tmp_path, x):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.attrs["distance"] = "euclidean"
        file["train"], file["test"] = x, x[:5]
        file["neighbors"], file["distances"] = np.zeros((5, 10), np.int32), np.zeros((5, 10), np.float32)
    np.testing.assert_array_equal(read_all(formats.open_source(tmp_path / "a.hdf5"))[0], x)
    np.testing.assert_array_equal(
        read_all(formats.open_source(tmp_path / "a.hdf5", vectors="test"))[0], x[:5]
    )


@pytest.mark.parametrize("names", [[f"class {i}" for i in range(50)], list(range(50))])
def test_hdf5_groups_and_labels(tmp_path, x, names):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("g/emb", data=x, chunks=(8, 6), compression="gzip")
        file["g/kind"] = names
    vectors, labels = read_all(formats.open_source(tmp_path / "a.h5", vectors="g/emb", labels="g/kind"))
    np.testing.assert_array_equal(vectors, x)
    assert labels.tolist() == names


def test_hdf5_that_points_to_other_files_is_refused(tmp_path, x):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "secret").write_bytes(b"\0" * 1000)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["X"] = x
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = h5py.ExternalLink("other.h5", "X")
        file.create_dataset("raw", (10, 5), "f4", external=[(str(tmp_path / "secret"), 0, 200)])
    with pytest.raises(DataRefused, match="no array 'X'"):
        formats.open_source(tmp_path / "a.h5", vectors="X")
    with pytest.raises(DataRefused, match="in other files"):
        formats.open_source(tmp_path / "a.h5", vectors="raw")


def test_hdf5_chunks_that_were_never_written(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("X", (40, 3), "f4", chunks=(10, 3))
        dataset[:20] = 1
    with pytest.raises(DataRefused, match="2 chunks were never written"):
        formats.open_source(tmp_path / "a.h5")
    source = formats.open_source(tmp_path / "a.h5", missing="fill")
    assert source.notes == {"missing_chunks_filled": 2}
    assert read_all(source)[0].sum() == 60


def test_no_hdf5_file(tmp_path):
    pytest.importorskip("h5py")
    (tmp_path / "a.h5").write_bytes(b"nothing")
    with pytest.raises(DataRefused, match="no readable HDF5"):
        formats.open_source(tmp_path / "a.h5")


# --- Parquet --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "large_list", "fixed"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
def test_parquet_list_columns(tmp_path, kind, dtype):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    data = np.random.default_rng(3).integers(0, 100, (45, 4)).astype(dtype)
    values = pa.from_numpy_dtype(np.dtype(dtype))
    types = {"list": pa.list_(values), "large_list": pa.large_list(values), "fixed": pa.list_(values, 4)}
    table = pa.table({"id": np.arange(45), "emb": pa.array(list(data), types[kind])})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    source = formats.open_source(tmp_path / "a.parquet")
    assert (source.n_rows, source.n_features, source.dtype) == (45, 4, np.dtype(dtype))
    np.testing.assert_array_equal(read_all(source)[0], data)


def test_parquet_labels(tmp_path, x, y):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    names = [f"c{i}" for i in y]
    columns = {
        "v": pa.array(list(x), pa.list_(pa.float32())),
        "label": pa.array(y),
        "name": pa.array(names),
        "code": pa.array(names).dictionary_encode(),
        "some": pa.array([None, *y[1:].tolist()]),
        "truth": pa.array((y > 3).tolist()),
        "none": pa.array([None, *names[1:]]),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=11)
    expected = {
        None: y.tolist(),
        "name": names,
        "code": names,
        "some": [-1, *y[1:].tolist()],
        "truth": (y > 3).tolist(),
        "none": ["", *names[1:]],
    }
    for column, labels in expected.items():
        assert read_all(formats.open_source(tmp_path / "a.parquet", labels=column))[1].tolist() == labels


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, 2.0]] * 12 + [[1.0]], "row 12 has 1 numbers, expected vectors of 2"),
        ([[1.0, 2.0]] * 12 + [None], "row 12 is null"),
        ([[1.0, 2.0]] * 12 + [[1.0, None]], "row 12 holds a null"),
        ([[], [1.0]], "at least one number in row 0"),
    ],
)
def test_ragged_parquet_is_refused_by_row(tmp_path, rows, message):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"v": pa.array(rows, pa.list_(pa.float64()))}), tmp_path / "a.parquet")
    with pytest.raises(DataRefused, match=message):
        read_all(formats.open_source(tmp_path / "a.parquet"))


def test_parquet_columns_that_are_no_vectors(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [1, 2], "b": [["x"], ["y"]]}), tmp_path / "a.parquet")
    with pytest.raises(DataRefused, match="list<"):
        formats.open_source(tmp_path / "a.parquet")
    with pytest.raises(DataRefused, match="expected lists of numbers in column 'a'"):
        formats.open_source(tmp_path / "a.parquet", vectors="a")
    (tmp_path / "b.parquet").write_bytes(b"PAR1nothing")
    with pytest.raises(DataRefused, match="no readable Parquet"):
        formats.open_source(tmp_path / "b.parquet")


# --- Zarr -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"compressors": None},
        {"compressors": zarr.codecs.BloscCodec(), "chunks": (7, 2)},
        {"compressors": zarr.codecs.GzipCodec(), "filters": zarr.codecs.TransposeCodec(order=(1, 0))},
        {"chunks": (4, 3), "shards": (12, 6)},
        {"chunk_key_encoding": {"name": "v2", "separator": "."}},
        {"chunk_key_encoding": {"name": "default", "separator": "."}, "shards": (20, 6), "chunks": (10, 6)},
        {"serializer": zarr.codecs.BytesCodec(endian="big")},
    ],
    ids=["raw", "blosc", "gzip", "shards", "v2 keys", "dotted keys", "big endian"],
)
def test_zarr_arrays_as_others_write_them(tmp_path, x, options):
    options = {"chunks": (10, 6), **options}
    array = zarr.create_array(tmp_path / "a.zarr", shape=x.shape, dtype="float32", **options)
    array[:] = x
    np.testing.assert_array_equal(read_all(formats.open_source(tmp_path / "a.zarr"))[0], x)


@pytest.mark.parametrize(("rows", "chunk_rows"), [(7, 10), (7, 3), (7, 7), (7, 1), (7, 100), (1, 4)])
def test_no_chunk_is_decoded_twice(x, rows, chunk_rows):
    class Chunked:
        shape = x.shape
        decoded: ClassVar[list[int]] = []

        def __getitem__(self, where):
            self.decoded += range(where.start // chunk_rows, (where.stop - 1) // chunk_rows + 1)
            return x[where]

    array = Chunked()
    Chunked.decoded = []
    blocks = [block for block, _ in array_blocks(array, None, rows, chunk_rows)]
    assert max(map(len, blocks)) <= rows
    np.testing.assert_array_equal(np.concatenate(blocks), x)
    assert array.decoded == list(range(-(-50 // chunk_rows)))


def test_zarr_written_by_xarray(tmp_path, x, y):
    xr = pytest.importorskip("xarray")
    data = xr.Dataset({"emb": (("n", "d"), x), "label": ("n", y)})
    data.to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False)
    vectors, labels = read_all(formats.open_source(tmp_path / "a.zarr"))
    np.testing.assert_array_equal(vectors, x)
    np.testing.assert_array_equal(labels, y)


@pytest.mark.parametrize("shards", [None, (20, 3)])
def test_zarr_with_absent_chunks(tmp_path, shards):
    array = zarr.create_array(tmp_path / "a.zarr", shape=(40, 3), chunks=(10, 3), shards=shards, dtype="f4")
    array[:10] = 1
    array[20:30] = 1
    with pytest.raises(CorruptObject, match="missing"):
        formats.open_source(tmp_path / "a.zarr")
    source = formats.open_source(tmp_path / "a.zarr", missing="fill")
    assert source.notes == {"missing_chunks_filled": 2}
    np.testing.assert_array_equal(read_all(source)[0][:, 0].reshape(4, 10)[:, 0], [1, 0, 1, 0])


def test_zarr_format_2_is_refused(tmp_path, x):
    array = zarr.create_array(tmp_path / "a.zarr", shape=x.shape, dtype="f4", zarr_format=2)
    array[:] = x
    with pytest.raises(UnsafeObject, match="format 2"):
        formats.open_source(tmp_path / "a.zarr")


# --- all ------------------------------------------------------------------------------------------------


def test_unknown_files_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("1 2 3")
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.csv").write_text("1,2,3")
    with pytest.raises(DataRefused, match=r"CSV is read by numpy\.loadtxt and saved by numpy\.save"):
        formats.open_source(tmp_path / "a.csv")
    for name, message in {"a.txt": "no known format", "folder": "Zarr metadata", "b.npy": "no such"}.items():
        with pytest.raises(DataRefused, match=message):
            formats.open_source(tmp_path / name)


@pytest.mark.parametrize("name", ["npy", "npz", "h5", "parquet"])
def test_content_tells_the_format_where_the_name_does_not(tmp_path, name, x):
    path = tmp_path / f"a.{name}"
    write_any(path, x)
    path.rename(tmp_path / "vectors.bin")
    np.testing.assert_array_equal(read_all(formats.open_source(tmp_path / "vectors.bin"))[0], x)


def write_any(path: Path, x: np.ndarray) -> None:
    if path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".npz":
        np.savez(path, x)
    elif path.suffix == ".h5":
        with pytest.importorskip("h5py").File(path, "w") as file:
            file["X"] = x
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"v": pa.array(list(x), pa.list_(pa.float32()))}), path)
