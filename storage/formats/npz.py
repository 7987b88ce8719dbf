"""NumPy's ``.npz``: each member is streamed out of the zip archive, never unpickled."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np

from ..errors import DataRefused
from .npy import read_header
from .source import LABEL_NAMES, VECTOR_NAMES, Labels, Piece, Source, choose_arrays, row_width, stream_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class _Member:
    name: str
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype


def open_source(path: Path, *, vectors: str | None = None, labels: str | None = None) -> Source:
    """Open the vectors, and the labels if there are any, in an ``.npz`` file."""
    members, refused = _members(path)
    wanted = {vectors, labels, *((*VECTOR_NAMES, *LABEL_NAMES) if labels is None or vectors is None else ())}
    for name in sorted(wanted.intersection(refused), key=str):
        raise DataRefused(f"{path}[{name}]: {refused[name]}; save it as an array of numbers or strings")
    shapes = {name: member.shape for name, member in members.items()}
    vectors, labels = choose_arrays(shapes, vectors, labels, str(path))
    member = members[vectors]
    width = row_width(member.shape, member.dtype, f"{path}[{vectors}]")
    label_member = None if labels is None else members[labels]

    def read(rows: int) -> Iterator[Piece]:
        names = itertools.repeat(None) if label_member is None else _stream(path, label_member, rows)
        for block, piece in zip(_stream(path, member, rows), names, strict=label_member is not None):
            yield block.reshape(len(block), width), None if piece is None else piece.reshape(-1)

    return Source(path, width, member.dtype, member.shape[0], labels is not None, read)


def open_labels(path: Path) -> Labels:
    """Open the labels in an ``.npz`` file: ``y`` or ``label(s)``, or its only 1-D array."""
    members, _ = _members(path)
    flat = [name for name, member in members.items() if len(member.shape) == 1]
    chosen = [name for name in ("y", "label", "labels") if name in flat] or flat
    if len(chosen) != 1:
        raise DataRefused(f"{path}: expected one array of labels, there are: {', '.join(flat) or 'none'}")
    member = members[chosen[0]]
    return Labels(path, member.shape[0], lambda rows: _stream(path, member, rows))


def _members(path: Path) -> tuple[dict[str, _Member], dict[str, str]]:
    """Return the arrays of an archive by name, from their headers alone, and why others are not read."""
    members, refused = {}, {}
    with _reading(path), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                continue
            name = info.filename.removesuffix(".npy")
            with archive.open(info) as stream:
                try:
                    shape, fortran, dtype = _header(cast("BinaryIO", stream))
                    members[name] = _Member(info.filename, shape, fortran, dtype)
                except ValueError as error:
                    refused[name] = str(error)
    return members, refused


def _stream(path: Path, member: _Member, rows: int) -> Iterator[np.ndarray]:
    with _reading(path), zipfile.ZipFile(path) as archive, archive.open(member.name) as opened:
        stream = cast("BinaryIO", opened)
        _header(stream)
        where = f"{path}[{member.name}]"
        if not member.fortran or len(member.shape) < 2:
            yield from stream_rows(stream, member.shape, member.dtype, rows, where)
            return
        # rows of a column-major array are spread over the whole member: map it from a temporary file
        with tempfile.TemporaryFile() as spooled:
            shutil.copyfileobj(stream, spooled, 2**20)
            spooled.flush()
            array = np.memmap(spooled, member.dtype, "r", shape=member.shape, order="F")
            for start in range(0, member.shape[0], rows):
                yield np.ascontiguousarray(array[start : start + rows])


def _header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    return read_header(stream, np.lib.format.read_magic(stream))


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except DataRefused:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise DataRefused(f"{path}: no readable .npz file ({error})") from error
