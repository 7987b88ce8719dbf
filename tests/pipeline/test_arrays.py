"""Everything that users call "my vectors" gives the same rows, checked, without a change to the original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
import zarr
from bitfleet.pipeline import arrays
from bitfleet.storage.datasets import open_dataset
from bitfleet.storage.errors import DataRefused, IdentityMismatch
from bitfleet.tasks.protocols import RowRange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = np.random.default_rng(3).normal(size=(50, 6)).astype(np.float32)


def unknown_chunks(rows: np.ndarray) -> Any:
    """A dask array that does not know how many rows its blocks have."""
    x = da.from_array(np.vstack([rows, rows]), chunks=(7, 4))
    return x[da.arange(2 * len(rows), chunks=7) < len(rows)]


def dataset(rows: np.ndarray, folder: Path) -> Any:
    return arrays.spool(rows, folder / "source.zarr")


def zarr_array(rows: np.ndarray, folder: Path) -> Any:
    array = zarr.create_array(str(folder / "plain.zarr"), shape=rows.shape, chunks=(9, 4), dtype=rows.dtype)
    array[:] = rows
    return array


KINDS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "ndarray": lambda rows, _: rows.copy(),
    "column major": lambda rows, _: np.asfortranarray(rows),
    "strided": lambda rows, _: np.repeat(np.repeat(rows, 2, axis=0), 3, axis=1)[::2, ::3],
    "big-endian": lambda rows, _: rows.astype(rows.dtype.newbyteorder(">")),
    "read-only": lambda rows, _: np.frombuffer(rows.tobytes(), rows.dtype).reshape(rows.shape),
    "list": lambda rows, _: rows.astype(np.float64).tolist(),
    "dask": lambda rows, _: da.from_array(rows, chunks=(13, 6)),
    "dask, odd chunks": lambda rows, _: da.from_array(rows, chunks=((1, 20, 0, 29), (1, 5))),
    "dask, unknown chunks": lambda rows, _: unknown_chunks(rows),
    "zarr": zarr_array,
    "DataArray": lambda rows, _: xr.DataArray(rows.copy(), dims=("sample", "feature")),
    "DataArray, features first": lambda rows, _: xr.DataArray(rows.T.copy(), dims=("feature", "sample")),
    "DataArray of dask": lambda rows, _: xr.DataArray(da.from_array(rows, chunks=(11, 3))),
    "xarray.Dataset": lambda rows, _: xr.Dataset({"vectors": (("sample", "feature"), rows.copy())}),
    "DataFrame": lambda rows, _: pd.DataFrame(rows.copy()),
    "Dataset": dataset,
    "path": lambda rows, folder: dataset(rows, folder).path,
    "path as str": lambda rows, folder: str(dataset(rows, folder).path),
    "Dataset as xarray": lambda rows, folder: dataset(rows, folder).to_xarray(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threshold", [2**30, 0], ids=["loaded", "spooled"])
def test_every_kind_reads_the_same(
    kind: str, threshold: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "LOAD_BYTES", threshold)
    given = KINDS[kind](ROWS, tmp_path)
    reader = arrays.make_reader(given, tmp_path / "scratch")
    assert (reader.n_rows, reader.n_features) == ROWS.shape
    block = reader.read(RowRange(5, 31))
    np.testing.assert_array_equal(block.vectors, ROWS[5:31])
    assert block.vectors.flags.c_contiguous
    assert reader.dtype == ("float64" if kind == "list" else "float32")


@pytest.mark.parametrize(
    ("dtype", "in_memory"),
    [
        ("float16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("longdouble", "float64"),
        ("uint8", "float32"),
        ("int64", "float32"),
        ("bool", "float32"),
    ],
)
def test_dtype_policy(dtype: str, in_memory: str, tmp_path: Path) -> None:
    rows = (np.arange(12).reshape(4, 3) % 2).astype(dtype)
    assert arrays.memory_dtype(dtype) == np.dtype(in_memory)
    loaded = arrays.load(rows)
    assert loaded.dtype == in_memory
    np.testing.assert_array_equal(loaded, rows.astype(in_memory))
    spooled = arrays.spool(rows, tmp_path / "d.zarr")
    np.testing.assert_array_equal(spooled.rows(0, 4).astype(in_memory), loaded)


@pytest.mark.parametrize("dtype", ["complex64", "datetime64[s]", "object", "U3"])
def test_what_is_no_number_is_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match="expected vectors of real numbers"):
        arrays.load(np.empty((2, 2), dtype=dtype))


@pytest.mark.parametrize("given", [np.zeros(3), np.zeros((2, 2, 2)), np.float32(1)])
def test_other_dimensions_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="expected vectors with two dimensions"):
        arrays.load(arrays.unwrap(given))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("lazy", [False, True])
def test_nonfinite_rows_are_named(bad: float, lazy: bool) -> None:
    rows = ROWS.copy()
    rows[[17, 41], [2, 5]] = bad
    given = da.from_array(rows, chunks=(10, 6)) if lazy else rows
    with pytest.raises(DataRefused, match=r"NaN or infinity in \d of rows .* first in 17"):
        list(arrays.pieces(given))


def test_large_finite_numbers_are_not_taken_for_infinity() -> None:
    rows = np.full((4, 3), 1.7e308)
    np.testing.assert_array_equal(arrays.load(rows), rows)


@pytest.mark.parametrize("kind", ["ndarray", "column major", "dask", "zarr", "DataArray", "DataFrame"])
def test_the_original_is_not_changed(kind: str, tmp_path: Path) -> None:
    given = KINDS[kind](ROWS, tmp_path)
    arrays.make_reader(given, tmp_path / "scratch").read(RowRange(0, 50))
    arrays.spool(arrays.unwrap(given), tmp_path / "d.zarr")
    np.testing.assert_array_equal(np.asarray(given), ROWS)
    if isinstance(given, np.ndarray):
        assert given.flags.writeable


def test_unknown_chunk_sizes_stay_unknown_to_the_caller(tmp_path: Path) -> None:
    given = unknown_chunks(ROWS)
    before = given.chunks
    assert arrays.spool(given, tmp_path / "d.zarr").n_rows == 50
    assert given.chunks is before
    assert np.isnan(given.shape[0])


@pytest.mark.parametrize("rows", [1, 2, 7, 1000])
def test_pieces_are_the_rows_in_order(rows: int) -> None:
    for given in (ROWS, da.from_array(ROWS, chunks=(17, 3))):
        found = list(arrays.pieces(given, rows))
        assert max(len(piece) for piece in found) <= rows
        np.testing.assert_array_equal(np.concatenate(found), ROWS)


def test_a_spool_is_not_written_twice_and_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    first = arrays.spool(ROWS, path)
    stamp = (path / "zarr.json").stat().st_mtime_ns
    assert arrays.spool(da.from_array(ROWS, chunks=(8, 2)), path).digest == first.digest
    assert (path / "zarr.json").stat().st_mtime_ns == stamp
    with pytest.raises(IdentityMismatch, match="holds other vectors"):
        arrays.spool(ROWS + 1, path)
    assert open_dataset(path).digest == first.digest
    assert arrays.content_digest(ROWS) == first.digest


def test_an_unfinished_spool_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    arrays.spool(ROWS[:10], path)
    (path / "zarr.json").unlink()
    assert arrays.spool(ROWS, path).n_rows == 50


def test_a_refused_spool_leaves_nothing(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[49, 0] = np.nan
    with pytest.raises(DataRefused):
        arrays.spool(rows, tmp_path / "d.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lazy", [False, True])
def test_what_is_masked_is_no_data(lazy: bool) -> None:
    mask = np.zeros(ROWS.shape, bool)
    plain, masked = np.ma.array(ROWS, mask=mask), np.ma.array(ROWS, mask=mask | (np.arange(50) == 9)[:, None])
    if lazy:
        plain, masked = (da.from_array(x, chunks=(20, 6)) for x in (plain, masked))
    np.testing.assert_array_equal(arrays.load(arrays.unwrap(plain)), ROWS)
    with pytest.raises(DataRefused, match=r"masked in 1 of .* row 9"):
        arrays.load(arrays.unwrap(masked))


@pytest.mark.parametrize("shards", [None, (20, 6)])
def test_absent_chunks_of_a_zarr_array_are_not_taken_for_numbers(tmp_path: Path, shards: Any) -> None:
    array = zarr.create_array(
        str(tmp_path / "x.zarr"), shape=ROWS.shape, chunks=(10, 3), shards=shards, dtype=ROWS.dtype
    )
    array[:40] = ROWS[:40]
    with pytest.raises(DataRefused, match="lacks 2 of 10 chunks"):
        arrays.load(array)
    with pytest.raises(DataRefused, match="lacks 2 of 10 chunks"):
        arrays.spool(array, tmp_path / "data.zarr")
    assert not (tmp_path / "data.zarr").exists()
    array[40:] = ROWS[40:]
    np.testing.assert_array_equal(arrays.load(array), ROWS)


@pytest.mark.parametrize("given", [ROWS[0], None, 5, {"a": 1}, da.from_array(ROWS[0])])
def test_what_has_not_two_dimensions_is_not_spooled(given: Any, tmp_path: Path) -> None:
    for refused in (arrays.content_digest, lambda x: arrays.spool(x, tmp_path / "data.zarr")):
        with pytest.raises(ValueError, match="two dimensions"):
            refused(arrays.unwrap(given))


def test_an_unknown_number_of_features_is_refused() -> None:
    x = da.from_array(ROWS, chunks=(50, 3))
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        arrays.load(x[:, da.arange(6, chunks=3) < 4])


def test_sparse_matrices_are_refused_with_advice() -> None:
    for matrix in (scipy.sparse.csr_array(ROWS), scipy.sparse.coo_matrix(ROWS)):
        with pytest.raises(TypeError, match=r"sparse matrices are not taken.*toarray"):
            arrays.unwrap(matrix)


def test_an_xarray_dataset_needs_vectors() -> None:
    with pytest.raises(TypeError, match="expected a variable 'vectors'"):
        arrays.unwrap(xr.Dataset({"x": (("sample", "feature"), ROWS)}))


def test_names_alone_do_not_make_a_dask_array() -> None:
    class Array:
        pass

    Array.__module__ = "dask.arrayish"
    assert not arrays.is_dask(Array())
    assert arrays.is_dask(da.zeros((2, 2)))
