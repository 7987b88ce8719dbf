"""Whatever a user calls "my vectors", as blocks: arrays of six kinds, data sets and paths of data sets.

Rows are samples, columns are features.  In memory, vectors are float32, or float64 where the input is
float64; a caller's array is never changed.  Arrays are recognised by what they are, without importing the
libraries that they come from.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..storage.dataset import ContentDigest
from ..storage.datasets import ArrayReader, Dataset, DatasetWriter, open_dataset
from ..storage.errors import CorruptObject, DataRefused, IdentityMismatch
from ..storage.places import remove
from ..tasks.leaves import base_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..storage.places import Place
    from ..tasks.protocols import BlockReader

#: Lazy arrays (dask, zarr, xarray) up to this size are simply loaded; larger ones are spooled to disk.
LOAD_BYTES = 2**30

Vectors: TypeAlias = Any  # ndarray | dask.array | zarr.Array | xarray.DataArray | DataFrame | Dataset | path


def is_dask(vectors: Vectors) -> bool:
    """Tell whether ``vectors`` is a dask array."""
    return _named(vectors, "dask.array", "Array")


def is_dataset(vectors: Vectors) -> bool:
    """Tell whether ``vectors`` is a bitfleet data set or the path of one."""
    return isinstance(vectors, Dataset | str | os.PathLike)


def as_dataset(vectors: Vectors) -> Dataset:
    """Return the data set that a path or data set stands for."""
    return vectors if isinstance(vectors, Dataset) else open_dataset(vectors)


def unwrap(vectors: Vectors) -> Vectors:
    """Return the array inside a labelled container, samples first, and anything else as an array.

    Of an ``xarray.Dataset`` the variable ``vectors`` is taken.  A ``DataArray`` with the dimensions
    ``sample`` and ``feature`` is taken in that order, any other as it stands.
    """
    if _named(vectors, "xarray", "Dataset"):
        if "vectors" not in vectors.data_vars:
            raise TypeError(
                f"expected a variable 'vectors', the xarray.Dataset has {list(vectors.data_vars)}"
            )
        vectors = vectors["vectors"]
    if _named(vectors, "xarray", "DataArray"):
        if set(vectors.dims) == {"sample", "feature"}:
            vectors = vectors.transpose("sample", "feature")
        return vectors if vectors.chunks is None else vectors.data
    if _named(vectors, "pandas", "DataFrame"):
        return vectors.to_numpy()
    if isinstance(vectors, np.ma.MaskedArray):
        return _unmasked(vectors)
    if isinstance(vectors, np.ndarray) or is_lazy(vectors):
        return vectors
    if _named(vectors, "scipy.sparse", "_spbase") or _named(vectors, "scipy.sparse", "spmatrix"):
        raise TypeError("sparse matrices are not taken, since codes need every feature: pass x.toarray()")
    return np.asarray(vectors)


def is_lazy(vectors: Vectors) -> bool:
    """Tell whether an unwrapped array is still on disk or to be computed."""
    return is_dask(vectors) or _named(vectors, "zarr", "Array") or _named(vectors, "xarray", "DataArray")


def memory_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the type that vectors of ``dtype`` have in memory: float64 for float64, else float32.

    Raises
    ------
    TypeError
        If ``dtype`` is not a real number type.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in "biuf":
        raise TypeError(f"expected vectors of real numbers, got dtype {dtype}")
    return np.dtype(np.float64 if dtype.kind == "f" and dtype.itemsize >= 8 else np.float32)


def check_shape(vectors: Vectors) -> None:
    """Raise unless ``vectors`` has two dimensions, samples and features, and a known number of these."""
    ndim = getattr(vectors, "ndim", None)
    if ndim != 2:
        shape = getattr(vectors, "shape", None)
        what = type(vectors).__name__ if ndim is None else f"{ndim} dimensions, shape {shape}"
        raise ValueError(
            f"expected vectors with two dimensions (samples, features), got {what}; "
            "a single vector is x[None, :]"
        )
    if vectors.shape[1] != vectors.shape[1]:  # NaN: dask does not know
        raise ValueError(
            "expected a known number of features, the dask array has columns of unknown chunks; "
            "call its compute_chunk_sizes()"
        )


def check_stored(vectors: Vectors) -> None:
    """Raise `DataRefused` if a Zarr array lacks chunks, which it would read as numbers nobody has written."""
    if not _named(vectors, "zarr", "Array") or 0 in vectors.shape:
        return
    absent = vectors.nchunks - vectors.nchunks_initialized  # of shards the chunks that they could hold
    if absent > 0:
        raise DataRefused(
            f"the Zarr array lacks {absent} of {vectors.nchunks} chunks; if they mean the fill value, ingest "
            "it with missing='fill' (--missing fill), or pass x[:]"
        )


def load(vectors: Vectors) -> np.ndarray:
    """Return an unwrapped array in memory, C-contiguous, float32 or float64, finite.

    The result may share memory with the input; whoever uses it does not write to it.
    """
    check_shape(vectors)
    dtype = memory_dtype(vectors.dtype)
    if not is_lazy(vectors):
        return finite(np.ascontiguousarray(vectors, dtype=dtype), first_row=0)
    blocks = list(pieces(vectors))
    if not blocks:
        return np.empty((0, vectors.shape[1]), dtype)
    return np.concatenate([block.astype(dtype, copy=False) for block in blocks])


def pieces(vectors: Vectors, rows: int | None = None) -> Iterator[np.ndarray]:
    """Yield an unwrapped array's rows in order, checked for NaN and infinity, at most ``rows`` at a time.

    The source's type is kept, and never more than a few pieces are in memory.

    Raises
    ------
    DataRefused
        At the first piece that holds NaN or infinity; the message names the rows.
    """
    check_shape(vectors)
    memory_dtype(vectors.dtype)
    check_stored(vectors)
    rows = base_rows(vectors.shape[1]) if rows is None else rows
    start = 0
    for block in _dask_blocks(vectors) if is_dask(vectors) else (vectors,):
        for low in range(0, block.shape[0], rows):
            piece = plain(block[low : low + rows])
            yield finite(piece, first_row=start)
            start += len(piece)


def spool(vectors: Vectors, path: Place, labels: np.ndarray | None = None) -> Dataset:
    """Write an unwrapped array, and maybe its labels, to a data set at ``path`` and return it.

    An unfinished data set there (of a spool that was killed) is replaced; a finished one must hold the same
    vectors and labels, which are then not written again.

    Raises
    ------
    IdentityMismatch
        If a finished data set of other vectors is at ``path``.
    DataRefused
        If a row holds NaN or infinity.
    """
    check_shape(vectors)
    dtype = _stored_dtype(vectors.dtype)
    if path.exists():
        try:
            return _unchanged(open_dataset(path), vectors, labels)
        except CorruptObject:
            remove(path)
    n_features = int(vectors.shape[1])
    writer = DatasetWriter(
        path,
        n_features=n_features,
        dtype=dtype,
        with_labels=labels is not None,
        attrs={"source": "array"},
    )
    try:
        for piece, names in _with_labels(vectors, labels):
            writer.append(piece.astype(dtype, copy=False), names)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def content_digest(vectors: Vectors, labels: np.ndarray | None = None) -> str:
    """Return the digest that a data set of these vectors (unwrapped) and labels would have."""
    check_shape(vectors)
    dtype = _stored_dtype(vectors.dtype)
    found = ContentDigest(dtype, int(vectors.shape[1]), with_labels=labels is not None)
    for piece, names in _with_labels(vectors, labels):
        found.update(piece.astype(dtype, copy=False), names)
    return found.hexdigest()


def make_reader(vectors: Vectors, scratch: Place, labels: np.ndarray | None = None) -> BlockReader:
    """Return a reader for work in this process; large lazy arrays are spooled into ``scratch``.

    A data set brings its own labels.
    """
    if is_dataset(vectors):
        return as_dataset(vectors).reader()
    vectors = unwrap(vectors)
    if is_lazy(vectors) and _nbytes(vectors) > LOAD_BYTES:
        return spool(vectors, scratch / "data.zarr", labels).reader()
    return ArrayReader(load(vectors), labels)


def _unchanged(dataset: Dataset, vectors: Vectors, labels: np.ndarray | None) -> Dataset:
    """Return the data set if it holds exactly these vectors and labels."""
    if content_digest(vectors, labels) != dataset.digest:
        raise IdentityMismatch(
            f"{dataset.path} holds other vectors or labels than the ones given; choose another run directory"
        )
    return dataset


def _with_labels(
    vectors: Vectors, labels: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield pieces and their labels."""
    start = 0
    for piece in pieces(vectors):
        yield piece, None if labels is None else labels[start : start + len(piece)]
        start += len(piece)


def _dask_blocks(vectors: Any) -> Iterator[np.ndarray]:
    """Compute a dask array's row blocks one after the other; chunk sizes may be unknown."""
    if vectors.numblocks[1] > 1:
        vectors = vectors.rechunk({1: -1})
    for index in range(vectors.numblocks[0]):
        yield vectors.blocks[index].compute()


def plain(block: Any) -> np.ndarray:
    """Return a block as an array; `DataRefused`, naming rows, if something in it is masked."""
    return _unmasked(block) if isinstance(block, np.ma.MaskedArray) else np.asarray(block)


def _unmasked(vectors: Any) -> np.ndarray:
    """Return a masked array's data if nothing in it is masked: what stands behind a mask is not data."""
    rows = np.flatnonzero(np.ma.getmaskarray(vectors).reshape(len(vectors), -1).any(axis=1))
    if len(rows):
        raise DataRefused(
            f"vectors are masked in {len(rows)} of {len(vectors)} rows, first in row {rows[0]}; "
            "drop these rows or fill them in"
        )
    return np.asarray(vectors.data)


def finite(block: np.ndarray, first_row: int) -> np.ndarray:
    """Return the block; `DataRefused`, naming rows, if it holds NaN or infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = block.dtype.kind == "f" and not np.isfinite(np.sum(block, dtype=np.float64))
    if suspicious:
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if len(bad):  # the sum of finite numbers may overflow
            shown = ", ".join(str(first_row + row) for row in bad[:5])
            raise DataRefused(
                f"vectors hold NaN or infinity in {len(bad)} of rows {first_row} to "
                f"{first_row + len(block) - 1}, first in {shown}; drop these rows or fill them in"
            )
    return block


def _stored_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the type in which vectors are kept on disk: their own, little-endian and of standard width."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float64) if dtype.itemsize > 8 else dtype.newbyteorder("<")


def _nbytes(vectors: Any) -> float:
    """Return the size in memory; NaN (unknown dask chunks) counts as infinite."""
    size = float(vectors.shape[0]) * vectors.shape[1] * vectors.dtype.itemsize
    return size if size == size else float("inf")


def _named(value: Any, package: str, name: str) -> bool:
    """Tell whether a class of ``value`` is ``package…name``, by name alone."""
    return any(
        cls.__name__ == name and (cls.__module__ + ".").startswith(package + ".")
        for cls in type(value).__mro__
    )
