"""One module per source format; `open_source` finds it by a file's name, then by its first bytes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from ..errors import DataRefused
from ..places import is_remote
from . import hdf5, idx, npy, npz, parquet, vecs, zarr
from .source import Labels, Source

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "HEAD_BYTES",
    "Labels",
    "Source",
    "detect_format",
    "format_of_content",
    "format_of_name",
    "open_labels",
    "open_source",
]

_SUFFIXES = {
    ".npy": "npy",
    ".npz": "npz",
    ".fvecs": "vecs",
    ".bvecs": "vecs",
    ".ivecs": "vecs",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".idx": "idx",
    ".zarr": "zarr",
}
HEAD_BYTES = 4096  # of a file, enough to tell its format
_GZIP = 31  # what zlib calls it
_MAGIC = {b"\x93NUMPY": "npy", b"PK\x03\x04": "npz", b"\x89HDF": "hdf5", b"PAR1": "parquet"}


def open_source(
    path: Path, *, vectors: str | None = None, labels: str | None = None, missing: str = "refuse"
) -> Source:
    """Open a file (a folder for Zarr) of vectors.

    Parameters
    ----------
    path : Path
    vectors, labels : str, optional
        Names inside the file, for formats that hold several arrays or columns.
    missing : {"refuse", "fill"}
        What to do with chunks that were never written (Zarr, HDF5).

    Raises
    ------
    DataRefused
        If it is absent, of no known format, or not readable as that.
    """
    kind = detect_format(path)
    if kind == "npz":
        return npz.open_source(path, vectors=vectors, labels=labels)
    if kind == "parquet":
        return parquet.open_source(path, vectors=vectors, labels=labels)
    if kind == "hdf5":
        return hdf5.open_source(path, vectors=vectors, labels=labels, missing=missing)
    if kind == "zarr":
        return zarr.open_source(path, vectors=vectors, labels=labels, missing=missing)
    if vectors is not None or labels is not None:
        raise DataRefused(
            f"{path}: a file of this format holds one array, there is no {vectors or labels!r} in it"
        )
    if kind == "npy":
        return npy.open_source(path)
    return idx.open_source(path) if kind == "idx" else vecs.open_source(path)


def open_labels(path: Path) -> Labels:
    """Open a file that holds nothing but labels: npy, npz or IDX."""
    kind = detect_format(path)
    if kind == "npy":
        return npy.open_labels(path)
    if kind == "npz":
        return npz.open_labels(path)
    if kind == "idx":
        return idx.open_labels(path)
    raise DataRefused(f"{path}: labels in a file of their own are read from npy, npz or IDX, not from {kind}")


def detect_format(path: Path) -> str:
    """Return the name of a file's format; `DataRefused` if it is absent or unknown."""
    if path.is_dir():
        if any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
            return "zarr"
        raise DataRefused(f"{path}: is a folder without Zarr metadata; give its files instead")
    if not path.is_file():
        raise DataRefused(f"{path}: there is no such file")
    if is_remote(path):
        raise DataRefused(
            f"{path}: of object stores only Zarr is read; copy this file here and ingest the copy"
        )
    kind = format_of_name(path.suffix)
    if kind is not None:
        return kind
    with path.open("rb") as stream:
        return format_of_content(stream.read(HEAD_BYTES), str(path))


def format_of_name(suffix: str) -> str | None:
    """Return the name of the format that files of this ending have, None if the ending does not tell."""
    kind = _SUFFIXES.get(suffix.lower())
    return None if kind == "zarr" else kind


def format_of_content(head: bytes, where: str) -> str:
    """Return the name of the format of a file with these first bytes; `DataRefused` if it is unknown."""
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(_GZIP).decompress(head, 4)
        except zlib.error as error:
            raise DataRefused(f"{where}: damaged gzip data ({error})") from error
        if not idx.is_idx(head):
            raise DataRefused(f"{where}: gzip is read around IDX only; unpack it first")
        return "idx"
    if idx.is_idx(head):
        return "idx"
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    known = ", ".join(sorted(_SUFFIXES))
    raise DataRefused(
        f"{where}: of no known format; known are {known}, and IDX with or without gzip; "
        "text such as CSV is read by numpy.loadtxt and saved by numpy.save first"
    )
