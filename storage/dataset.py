"""A finished dataset: what it says of itself, its rows, and the check of its content."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .digest import DataDigest, json_digest
from .errors import CorruptObject, DataRefused, UnsafeObject
from .metadata import ALLOWED
from .places import place
from .readers import LABEL_DTYPES, MAX_GROUP_BYTES, DatasetReader, memory_dtype, stored_array
from .safe import read_group, zarr_group
from .sealed import SEALS, SHA256, check_attributes, sealed_array

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import xarray

    from .places import Place
    from .safe import CheckedArray

FORMAT_VERSION = 1
OUR_ATTRIBUTES = frozenset(
    {"bitfleet_format", "format_version", "digest", "has_labels", "label_names", SEALS, SHA256}
)


@dataclass(frozen=True)
class Dataset:
    """A finished dataset; small and picklable, the rows stay on disk.

    Attributes
    ----------
    path : Path or ObjectPath
        Absolute.
    n_rows, n_features : int
    dtype : str
        As stored; see `DatasetReader` for the dtype in memory.
    digest : str
        SHA-256 of vectors, labels and names, whatever the chunks.
    chunk_rows : int
    has_labels : bool
    label_names : tuple of str
        Name of label i at place i; empty if labels are plain numbers.
    attrs : dict
        Where the data came from and what was done to it.
    """

    path: Place
    n_rows: int
    n_features: int
    dtype: str
    digest: str
    chunk_rows: int
    has_labels: bool = False
    label_names: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return the vectors of the rows ``start <= row < stop`` in their stored dtype."""
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start} to {stop} are not within a data set of {self.n_rows} rows")
        return self._vectors().rows(start, stop)

    def labels(self) -> np.ndarray:
        """Return all labels, int64, shape (n,); `DataRefused` if there are none."""
        labels = self._labels()
        if labels is None:
            raise DataRefused(f"{self.path} has no labels; ingest it again with labels=...")
        return labels.rows()

    def reader(self) -> DatasetReader:
        """Return what reads this dataset block by block on a worker."""
        return DatasetReader(
            str(self.path),
            self.n_rows,
            self.n_features,
            memory_dtype(self.dtype),
            self.chunk_rows,
            self.has_labels,
            self.digest,
        )

    def to_xarray(self) -> xarray.Dataset:
        """Open it, lazily, as an `xarray.Dataset` with ``vectors`` and ``label``."""
        import xarray

        self._vectors(), self._labels()  # checked before xarray looks at them
        return xarray.open_zarr(**zarr_group(self.path), consolidated=False, chunks=None)

    def verify(self) -> None:
        """Read every row and compare with the digest; `CorruptObject` if the content is another."""
        vectors, labels = self._vectors(), self._labels()
        digests = ContentDigest(vectors.layout.dtype, self.n_features, self.has_labels)
        for start in range(0, self.n_rows, self.chunk_rows):
            stop = min(start + self.chunk_rows, self.n_rows)
            digests.update(vectors.rows(start, stop), None if labels is None else labels.rows(start, stop))
        found = digests.hexdigest(self.label_names)
        if found != self.digest:
            raise CorruptObject(f"{self.path}: expected digest {self.digest}, the content has {found}")

    def _vectors(self) -> CheckedArray:
        return stored_array(self.path, self.digest, "vectors")

    def _labels(self) -> CheckedArray | None:
        return stored_array(self.path, self.digest, "label", LABEL_DTYPES) if self.has_labels else None


def open_dataset(path: str | os.PathLike[str]) -> Dataset:
    """Open a dataset after checking metadata and presence of all chunks.

    Raises
    ------
    DataRefused
        If there is nothing, or something that is no dataset.
    CorruptObject
        If it is unfinished or damaged.
    UnsafeObject
        If reading it would need anything outside the white-list.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> path = tempfile.mkdtemp() + "/made.zarr"
    >>> with bf.DatasetWriter(path, n_features=3, dtype="float32") as writer:
    ...     writer.append(np.eye(3, dtype="float32"))
    >>> bf.open_dataset(path).rows(1, 2).tolist()
    [[0.0, 1.0, 0.0]]
    """
    path = place(path)
    if path.is_file():
        raise DataRefused(
            f"{path}: expected a data set, this is a file; make one with "
            f"`bitfleet ingest {path.name} {path.stem}.zarr`"
        )
    if not path.is_dir():
        raise DataRefused(f"{path}: there is no data set; make one with `bitfleet ingest SOURCE {path.name}`")
    if not (path / "zarr.json").exists():
        if (path / "vectors").exists():
            raise CorruptObject(f"{path}: unfinished, its writer did not end; remove it and ingest again")
        raise DataRefused(f"{path}: this folder is no data set; make one with `bitfleet ingest`")
    attributes = _check_attributes(read_group(path, max_bytes=MAX_GROUP_BYTES), path)
    vectors = sealed_array(path, attributes, "vectors", ALLOWED)
    labels = None
    if attributes["has_labels"]:
        labels = sealed_array(path, attributes, "label", LABEL_DTYPES)
    layout = vectors.layout
    if len(layout.shape) != 2 or layout.chunks[1] != max(layout.shape[1], 1):
        raise UnsafeObject(
            f"{path}: expected 2-D vectors in chunks of whole rows, got chunks {layout.chunks}"
        )
    if labels is not None and labels.layout.shape != layout.shape[:1]:
        raise CorruptObject(f"{path}: {layout.shape[0]} vectors but labels of shape {labels.layout.shape}")
    return Dataset(
        path=path,
        n_rows=layout.shape[0],
        n_features=layout.shape[1],
        dtype=layout.dtype.name,
        digest=attributes["digest"],
        chunk_rows=layout.chunks[0],
        has_labels=labels is not None,
        label_names=tuple(attributes["label_names"]),
        attrs={key: value for key, value in attributes.items() if key not in OUR_ATTRIBUTES},
    )


class ContentDigest:
    """The digest of a dataset: over those of its arrays and the names of its labels."""

    def __init__(self, dtype: np.dtype, n_features: int, with_labels: bool) -> None:
        self.vectors = DataDigest("vectors", dtype, (n_features,))
        self.labels = DataDigest("label", np.int64) if with_labels else None

    def update(self, vectors: np.ndarray, labels: np.ndarray | None) -> None:
        """Add the next rows."""
        self.vectors.update(vectors)
        if self.labels is not None and labels is not None:
            self.labels.update(labels)

    def hexdigest(self, label_names: Sequence[str] = ()) -> str:
        """Return the dataset's digest."""
        return json_digest(
            {
                "vectors": self.vectors.hexdigest(),
                "label": None if self.labels is None else self.labels.hexdigest(),
                "label_names": list(label_names),
            }
        )


def _check_attributes(attributes: dict[str, Any], path: Place) -> dict[str, Any]:
    if attributes.get("bitfleet_format") != "dataset":
        raise DataRefused(
            f"{path}: a Zarr group but no data set of ours; `bitfleet ingest {path.name} NEW.zarr`"
        )
    if attributes.get("format_version") != FORMAT_VERSION:
        raise DataRefused(
            f"{path}: expected data set format {FORMAT_VERSION}, got {attributes.get('format_version')!r}; "
            "use the bitfleet that wrote it or a newer one"
        )
    check_attributes(path, attributes)
    names = attributes.get("label_names")
    plain = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if (
        not plain
        or not isinstance(attributes.get("digest"), str)
        or type(attributes.get("has_labels")) is not bool
    ):
        raise CorruptObject(f"{path}: digest, has_labels or label_names are missing from the attributes")
    return attributes
