"""Writes a dataset from pieces of any size: whole chunks first, the marker that makes it valid last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .claims import abandon, claim_folder, release_folder
from .dataset import FORMAT_VERSION, OUR_ATTRIBUTES, ContentDigest, Dataset, open_dataset
from .errors import DataRefused
from .places import place, sync
from .readers import check_vectors_dtype
from .s3 import calling
from .safe import create_array
from .sealed import write_sealed_group

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import Self

    import zarr

_TARGET_CHUNK_BYTES = 32 * 2**20


class DatasetWriter:
    """Writes a new dataset row by row, in whole chunks; valid only once `close` has returned.

    Parameters
    ----------
    path : path
        Must not exist.
    n_features : int
    dtype : dtype
        Of the stored vectors; pieces must be safely castable to it.
    chunk_rows : int, optional
        By default the power of two nearest to 32 MiB of float32.
    with_labels : bool
    attrs : mapping, optional
        JSON values to keep with the data.

    Raises
    ------
    DestinationExists
        If anything is at ``path``.

    Examples
    --------
    A ``with`` block closes the data set at its end; where it is left by an error, nothing stays behind.

    >>> import numpy as np, tempfile, bitfleet as bf
    >>> path = tempfile.mkdtemp() + "/made.zarr"
    >>> with bf.DatasetWriter(path, n_features=3, dtype="float32", with_labels=True) as writer:
    ...     for part in range(4):
    ...         writer.append(np.full((10, 3), part, np.float32), np.full(10, part))
    >>> bf.open_dataset(path).n_rows
    40
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_features: int,
        dtype: np.dtype | str,
        chunk_rows: int | None = None,
        with_labels: bool = False,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = place(path)
        self.attrs = dict(attrs or {})
        if reserved := sorted(OUR_ATTRIBUTES & set(self.attrs)):
            raise ValueError(f"the attributes {reserved} are set by the writer; choose other names")
        self.dtype = np.dtype(dtype).newbyteorder("=")
        check_vectors_dtype(self.dtype, str(self.path))
        self.chunk_rows = default_chunk_rows(n_features) if chunk_rows is None else int(chunk_rows)
        if n_features < 1 or self.chunk_rows < 1:
            raise DataRefused(
                f"{self.path}: expected at least one feature and one row per chunk, "
                f"got n_features={n_features}, chunk_rows={self.chunk_rows}"
            )
        self.n_features = int(n_features)
        self.with_labels = with_labels
        self.n_rows = 0
        self._pending = 0
        self._vectors = np.empty((self.chunk_rows, self.n_features), self.dtype)
        self._labels = np.empty(self.chunk_rows if with_labels else 0, np.int64)
        self._arrays: dict[str, zarr.Array] = {}
        self._digests = ContentDigest(self.dtype, self.n_features, with_labels)
        claim_folder(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def append(self, vectors: np.ndarray, labels: np.ndarray | None = None) -> None:
        """Add rows, shape (m, d), with int labels, shape (m,), if the dataset has them.

        Raises
        ------
        DataRefused
            If width, dtype or labels do not fit, or a number is NaN or infinite.
        """
        vectors, labels = self._checked(vectors, labels)
        self._digests.update(vectors, labels)
        done = 0
        while done < len(vectors):
            take = min(self.chunk_rows - self._pending, len(vectors) - done)
            self._vectors[self._pending : self._pending + take] = vectors[done : done + take]
            if labels is not None:
                self._labels[self._pending : self._pending + take] = labels[done : done + take]
            self._pending += take
            done += take
            if self._pending == self.chunk_rows:
                self._flush()

    def close(self, label_names: Sequence[str] = ()) -> Dataset:
        """Write what is pending, flush to disk, then the marker; return the finished dataset."""
        if self._pending or not self._arrays:
            self._flush()
        sync(self.path)
        attributes = {
            "bitfleet_format": "dataset",
            "format_version": FORMAT_VERSION,
            "digest": self._digests.hexdigest(label_names),
            "has_labels": self.with_labels,
            "label_names": list(label_names),
        }
        write_sealed_group(self.path, attributes | self.attrs, self._arrays)
        release_folder(self.path)
        return open_dataset(self.path)

    def abort(self) -> None:
        """Remove what has been written."""
        abandon(self.path)

    def _checked(
        self, vectors: np.ndarray, labels: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        vectors = np.asarray(vectors)
        if vectors.ndim != 2 or vectors.shape[1] != self.n_features:
            raise DataRefused(
                f"row {self.n_rows + self._pending}: expected vectors of {self.n_features} features, "
                f"got an array of shape {vectors.shape}"
            )
        if not np.can_cast(vectors.dtype, self.dtype, "safe"):
            raise DataRefused(
                f"expected vectors castable to {self.dtype}, got {vectors.dtype}: convert them with "
                f".astype({str(self.dtype)!r}), or open the writer with dtype={str(vectors.dtype)!r}"
            )
        vectors = vectors.astype(self.dtype, copy=False)
        bad = nonfinite_rows(vectors)
        if bad.size:
            raise DataRefused(
                f"row {self.n_rows + self._pending + bad[0]} holds NaN or an infinite number; leave "
                "such rows out or fill them in"
            )
        if (labels is not None) != self.with_labels:
            raise DataRefused(
                "expected labels with these vectors, got none: append(vectors, labels); -1 is for none"
                if self.with_labels
                else "expected no labels, got some: open the writer with with_labels=True to keep them"
            )
        if labels is not None:
            labels = np.asarray(labels)
            if labels.shape != vectors.shape[:1] or not np.can_cast(labels.dtype, np.int64, "safe"):
                raise DataRefused(
                    f"expected {len(vectors)} integer labels, got {labels.dtype} of shape {labels.shape}"
                )
            labels = labels.astype(np.int64, copy=False)
        return vectors, labels

    def _flush(self) -> None:
        """Write the pending rows as one whole chunk."""
        pieces = {"vectors": self._vectors[: self._pending]}
        if self.with_labels:
            pieces["label"] = self._labels[: self._pending]
        for name, piece in pieces.items():
            if name not in self._arrays:
                # all rows in one chunk that is not full: no chunk larger than the data
                rows = self.chunk_rows if self._pending == self.chunk_rows else max(self._pending, 1)
                self._arrays[name] = create_array(
                    self.path / name,
                    (0, *piece.shape[1:]),
                    piece.dtype,
                    chunk_rows=rows,
                    dimension_names=("sample", "feature")[: piece.ndim],
                )
            array = self._arrays[name]
            with calling(self.path):
                array.resize((self.n_rows + len(piece), *piece.shape[1:]))
                array[self.n_rows :] = piece
        self.n_rows += self._pending
        self._pending = 0


def default_chunk_rows(n_features: int) -> int:
    """Return the power of two of rows nearest to 32 MiB of float32 (the size of a leaf)."""
    exact = _TARGET_CHUNK_BYTES / (4 * max(n_features, 1))
    return max(1, 2 ** round(float(np.log2(exact))))


def nonfinite_rows(vectors: np.ndarray) -> np.ndarray:
    """Return the numbers of the rows with NaN or infinite entries, ascending."""
    if vectors.dtype.kind != "f" or np.isfinite(vectors).all():
        return np.empty(0, np.int64)
    return np.flatnonzero(~np.isfinite(vectors).all(axis=1))
