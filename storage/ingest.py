"""Reads foreign files into a dataset: streaming, in stored order, with every row accounted for.

Rows with NaN or infinite entries are refused with their numbers, or dropped and counted.  Labels become
int64: integers and bools as they are, strings numbered in order of appearance with their names kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .claims import abandoned
from .dataset_writer import DatasetWriter, nonfinite_rows
from .digest import DataDigest
from .errors import DataRefused, DestinationExists
from .formats import detect_format, open_labels, open_source
from .places import is_remote, place, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .dataset import Dataset
    from .formats import Labels, Source

PathLike: TypeAlias = "str | os.PathLike[str]"

MAX_LABEL_NAMES = 65_536
_BLOCK_BYTES = 2**22
_SHOWN = 5


def ingest(
    src: PathLike | Sequence[PathLike],
    dest: PathLike,
    *,
    vectors: str | None = None,
    labels: PathLike | Sequence[PathLike] | None = None,
    nonfinite: str = "refuse",
    chunk_rows: int | None = None,
    missing: str = "refuse",
    limit: int | None = None,
    on_rows: Callable[[int], None] | None = None,
) -> Dataset:
    """Write the vectors of one or more files, joined in the order given, as a new dataset.

    Parameters
    ----------
    src : path or sequence of paths
        npy, npz, IDX (also gzip), fvecs/bvecs/ivecs, HDF5, Parquet or Zarr; of these only Zarr on ``s3://``.
    dest : path
        Must not exist.
    vectors : str, optional
        Name of the array or column of vectors, where a file holds several.
    labels : str, path or sequence of paths, optional
        Name of the array or column of labels inside the files; or files of labels (npy, npz, IDX), whose
        rows belong to those of ``src`` in order.
    nonfinite : {"refuse", "drop"}
        What to do with rows that hold NaN or infinite numbers.
    chunk_rows : int, optional
        Rows per stored chunk; by default the power of two nearest to 32 MiB of float32.
    missing : {"refuse", "fill"}
        What to do with chunks that a Zarr or HDF5 source lacks; filled ones are counted in the attributes.
    limit : int, optional
        Read no more than the first ``limit`` rows.
    on_rows : callable, optional
        Called with the number of rows read so far.

    Raises
    ------
    DataRefused
        If a file is not readable, widths differ, labels do not fit, or rows are not finite.
    DestinationExists
        If anything is at ``dest``.
    UnsafeObject, CorruptObject
        If a Zarr source is outside the white-list or incomplete.
    """
    _check_choice("nonfinite", nonfinite, ("refuse", "drop"))
    _check_choice("missing", missing, ("refuse", "fill"))
    if taken(place(dest)) and not abandoned(place(dest)):
        raise DestinationExists(f"{dest} exists; choose another name or remove it")
    paths = [_source(src)] if isinstance(src, str | os.PathLike) else [_source(path) for path in src]
    if not paths:
        raise DataRefused("expected at least one source file, got none")
    files, key = _label_files(labels, paths)
    sources = [open_source(path, vectors=vectors, labels=key, missing=missing) for path in paths]
    _check_sources(sources, with_labels=not files)
    encode = LabelEncoder()
    rows = _Rows(sources, [open_labels(path) for path in files], limit, nonfinite)
    writer = DatasetWriter(
        dest,
        n_features=sources[0].n_features,
        dtype=np.result_type(*(source.dtype for source in sources)),
        chunk_rows=chunk_rows,
        with_labels=bool(files) or sources[0].has_labels,
    )
    try:
        for block, names in rows.blocks():
            writer.append(block, None if names is None else encode(names, str(rows.path)))
            if on_rows is not None:
                on_rows(rows.n_read)
        rows.check()
        writer.attrs |= rows.attributes()
        return writer.close(encode.names)
    except BaseException:
        writer.abort()
        raise


class LabelEncoder:
    """Turns labels into int64; strings are numbered in order of their first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._plain: bool | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names by number; empty for integer labels."""
        return tuple(self._numbers)

    def __call__(self, labels: np.ndarray, where: str) -> np.ndarray:
        """Return int64 labels; `DataRefused` for floats, mixtures and too many names."""
        plain = labels.dtype.kind in "biu"
        if not plain and labels.dtype.kind not in "USO":
            raise DataRefused(f"{where}: expected integer, bool or string labels, got {labels.dtype}")
        if self._plain not in (None, plain):
            raise DataRefused(f"{where}: integer and string labels are mixed")
        self._plain = plain
        if plain:
            if labels.dtype == np.uint64 and labels.size and labels.max() > np.iinfo(np.int64).max:
                raise DataRefused(f"{where}: label {labels.max()} does not fit int64")
            return labels.astype(np.int64)
        return np.fromiter((self._number(name, where) for name in labels.tolist()), np.int64, len(labels))

    def _number(self, name: Any, where: str) -> int:
        if isinstance(name, bytes):
            name = name.decode("utf-8", errors="replace")
        if not isinstance(name, str):
            raise DataRefused(f"{where}: expected string labels, got {name!r:.40}")
        if name == "":
            return -1
        number = self._numbers.setdefault(name, len(self._numbers))
        if number >= MAX_LABEL_NAMES:
            raise DataRefused(
                f"{where}: more than {MAX_LABEL_NAMES:,} different label names; give integers instead"
            )
        return number


@dataclass
class _Rows:
    """The accepted rows of all sources in order, and the account of those that were not."""

    sources: list[Source]
    label_files: list[Labels]
    limit: int | None
    nonfinite: str
    path: Path = field(init=False)
    n_read: int = 0
    n_bad: int = 0
    shown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path = self.sources[0].path
        self.dropped = DataDigest("dropped", np.int64)

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Yield vectors and labels; after a refused row only count on."""
        stream = _LabelStream(self.label_files) if self.label_files else None
        for source in self.sources:
            self.path = source.path
            begin = self.n_read
            for block, names in source.blocks(self._block_rows(source)):
                if self.limit is not None and self.n_read + len(block) > self.limit:
                    block = block[: self.limit - self.n_read]
                    names = None if names is None else names[: len(block)]
                if stream is not None:
                    names = stream.take(len(block))
                bad = nonfinite_rows(block)
                self._account(bad, begin)
                self.n_read += len(block)
                if bad.size:
                    block = np.delete(block, bad, axis=0)
                    names = None if names is None else np.delete(names, bad)
                if not (self.n_bad and self.nonfinite == "refuse"):
                    yield block, names
                if self.n_read == self.limit:
                    break
            if self.n_read == self.limit:
                return
        if stream is not None:
            stream.check_end(self.n_read)

    def check(self) -> None:
        """Raise `DataRefused` if rows were refused or none is left."""
        if self.n_bad and self.nonfinite == "refuse":
            shown = ", ".join(self.shown) + (", ..." if self.n_bad > len(self.shown) else "")
            raise DataRefused(
                f"{self.n_bad:,} of {self.n_read:,} rows hold NaN or infinite numbers: {shown}; mend them, "
                "or drop them with nonfinite='drop' (--nonfinite drop)"
            )
        if self.n_read == self.n_bad:
            raise DataRefused(
                f"{self.path}: expected at least one row, {self.n_bad} of {self.n_read} dropped"
            )

    def attributes(self) -> dict[str, Any]:
        """Return what is recorded with the dataset: names of files, formats, filled chunks, dropped rows."""
        attributes: dict[str, Any] = {
            "source": [source.path.name for source in self.sources],
            "source_format": sorted({detect_format(source.path) for source in self.sources}),
        }
        if filled := sum(source.notes.get("missing_chunks_filled", 0) for source in self.sources):
            attributes["missing_chunks_filled"] = filled
        if self.n_bad:
            attributes |= {"dropped_rows": self.n_bad, "dropped_rows_digest": self.dropped.hexdigest()}
        return attributes

    def _account(self, bad: np.ndarray, begin: int) -> None:
        self.n_bad += len(bad)
        self.dropped.update(bad + self.n_read)
        for row in bad[: _SHOWN - len(self.shown)]:
            self.shown.append(f"{self.path.name} row {self.n_read - begin + row}")

    def _block_rows(self, source: Source) -> int:
        rows = max(1, _BLOCK_BYTES // (source.n_features * source.dtype.itemsize))
        return rows if self.limit is None else max(1, min(rows, self.limit - self.n_read))


class _LabelStream:
    """Labels of several files one after the other, taken in any number."""

    def __init__(self, files: list[Labels]) -> None:
        self.files = files
        self.n_rows = sum(labels.n_rows for labels in files)
        self._pieces = (piece for labels in files for piece in labels.read(2**16))
        self._rest: np.ndarray | None = None

    def take(self, n: int) -> np.ndarray:
        """Return the next ``n`` labels."""
        taken: list[np.ndarray] = []
        while n > 0:
            piece = self._rest if self._rest is not None and len(self._rest) else next(self._pieces, None)
            if piece is None:
                raise DataRefused(f"{self._names()}: {self.n_rows} labels are fewer than the rows of vectors")
            taken.append(piece[:n])
            self._rest = piece[n:]
            n -= len(taken[-1])
        return np.concatenate(taken) if taken else np.empty(0, np.int64)

    def check_end(self, n_rows: int) -> None:
        """Raise `DataRefused` if there are more labels than rows."""
        if self.n_rows != n_rows:
            raise DataRefused(f"{self._names()}: expected {n_rows} labels, got {self.n_rows}")

    def _names(self) -> str:
        return ", ".join(str(labels.path) for labels in self.files)


def _source(path: PathLike) -> Any:
    """Return a source's path; Zarr is also read where it is in an object store."""
    return place(path) if is_remote(path) else Path(path)


def _label_files(
    labels: PathLike | Sequence[PathLike] | None, sources: list[Path]
) -> tuple[list[Path], str | None]:
    """Tell files of labels from the name of an array inside the sources."""
    if labels is None:
        return [], None
    if isinstance(labels, str) and _is_name(labels):
        return [], labels
    if isinstance(labels, str | os.PathLike):
        return [Path(labels)], None
    return [Path(path) for path in labels], None


def _is_name(labels: str) -> bool:
    """Tell whether a string names an array inside the sources rather than a file."""
    return not Path(labels).is_file() and not Path(labels).suffix


def _check_sources(sources: list[Source], *, with_labels: bool) -> None:
    first = sources[0]
    for source in sources[1:]:
        if source.n_features != first.n_features:
            raise DataRefused(
                f"{source.path}: expected vectors of {first.n_features} features as in {first.path}, "
                f"got {source.n_features}"
            )
        if with_labels and source.has_labels != first.has_labels:
            raise DataRefused(f"{source.path} and {first.path}: one has labels, the other has none")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"expected {name} to be one of {', '.join(choices)}, got {value!r}")
