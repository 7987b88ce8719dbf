"""Parquet with one column of vectors (lists of one length), read batch by batch; needs pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataRefused
from ..readers import check_vectors_dtype
from .source import LABEL_NAMES, VECTOR_NAMES, Piece, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BUFFER_BYTES = 2**20


def open_source(path: Path, *, vectors: str | None = None, labels: str | None = None) -> Source:
    """Open the vector column, and the label column if there is one, of a Parquet file.

    Without names, vectors are the only column of lists (or one of the usual names) and labels the column
    ``label``, ``labels`` or ``y``.  A null label means none.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise DataRefused(f"{path}: reading Parquet needs pyarrow; pip install 'bitfleet[parquet]'") from None
    try:
        with _open(path) as file:
            schema = file.schema_arrow
            n_rows = file.metadata.num_rows
            vectors, labels = _choose_columns(schema, vectors, labels, path)
            dtype = _value_dtype(schema.field(vectors).type, path, vectors)
            width = _width(file, schema.field(vectors).type, vectors, path)
    except (pa.ArrowException, OSError) as error:
        raise DataRefused(f"{path}: no readable Parquet file ({error})") from error
    columns = [vectors] if labels is None else [vectors, labels]

    def read(rows: int) -> Iterator[Piece]:
        start = 0
        try:
            with _open(path) as file:
                for batch in file.iter_batches(batch_size=rows, columns=columns, use_threads=False):
                    block = _vectors(batch.column(vectors), width, start, path)
                    yield block, None if labels is None else _labels(batch.column(labels), pa)
                    start += len(block)
        except (pa.ArrowException, OSError) as error:
            raise DataRefused(f"{path}: damaged Parquet data ({error})") from error

    return Source(path, width, dtype, n_rows, labels is not None, read)


def _open(path: Path) -> Any:
    import pyarrow.parquet as pq

    # with pre_buffer, the default, every row group that has been read stays in memory
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)


def _choose_columns(
    schema: Any, vectors: str | None, labels: str | None, path: Path
) -> tuple[str, str | None]:
    listing = ", ".join(f"{field.name} {field.type}" for field in schema) or "nothing"
    for name in (vectors, labels):
        if name is not None and name not in schema.names:
            raise DataRefused(f"{path}: there is no column {name!r}; there are: {listing}")
    lists = [field.name for field in schema if hasattr(field.type, "value_type") and _is_list(field.type)]
    if vectors is None:
        named = [name for name in VECTOR_NAMES if name in lists]
        if not named and len(lists) != 1:
            raise DataRefused(f"{path}: name the column of vectors (vectors=...); there are: {listing}")
        vectors = (named or lists)[0]
    elif vectors not in lists:
        raise DataRefused(f"{path}: expected lists of numbers in column {vectors!r}; there are: {listing}")
    if labels is None:
        labels = next((name for name in LABEL_NAMES if name in schema.names and name not in lists), None)
    return vectors, labels


def _is_list(column_type: Any) -> bool:
    import pyarrow.types as types

    return (
        types.is_list(column_type)
        or types.is_large_list(column_type)
        or types.is_fixed_size_list(column_type)
    )


def _value_dtype(column_type: Any, path: Path, name: str) -> np.dtype:
    try:
        dtype = np.dtype(column_type.value_type.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        dtype = np.dtype(object)
    check_vectors_dtype(dtype, f"{path}[{name}] ({column_type})")
    return dtype


def _width(file: Any, column_type: Any, name: str, path: Path) -> int:
    """Return the length of the vectors: of the type if it has one, else of the first row."""
    width = getattr(column_type, "list_size", None)
    if width is None:
        batch = next(file.iter_batches(batch_size=1, columns=[name]), None)
        width = 0 if batch is None or batch.num_rows == 0 else len(batch.column(0)[0].as_py() or ())
    if width < 1:
        raise DataRefused(f"{path}[{name}]: expected vectors of at least one number in row 0")
    return int(width)


def _vectors(column: Any, width: int, start: int, path: Path) -> np.ndarray:
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    other = np.flatnonzero(lengths != width)
    if other.size:
        found = "is null" if lengths[other[0]] < 0 else f"has {lengths[other[0]]} numbers"
        raise DataRefused(f"{path}: row {start + other[0]} {found}, expected vectors of {width}")
    values = column.flatten()
    if values.null_count:
        row = start + int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // width
        raise DataRefused(f"{path}: the vector in row {row} holds a null")
    return values.to_numpy(zero_copy_only=False).reshape(-1, width)


def _labels(column: Any, pa: Any) -> np.ndarray:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.asarray(column.fill_null("").to_pylist(), dtype=object)
    if column.null_count and pa.types.is_integer(column.type):
        column = column.cast(pa.int64()).fill_null(-1)
    return np.asarray(column.to_numpy(zero_copy_only=False))
