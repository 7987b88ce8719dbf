"""The codes of a stream, in parts: each is written once, under a name of its own, and named by a round.

::

    codes/part-….zarr         the codes of a block of rows
    affinities/part-….zarr    until there are codes: what they will be made of, float32

The table of all parts is among the arrays of every committed round. A part that the newest one does not name
is one of a driver that was killed before its commit, or was superseded when its rows were coded again.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .codes import create_codes, finish_codes, open_codes
from .dataset import Dataset, open_dataset
from .dataset_writer import DatasetWriter
from .growing_objects import SOURCE_OBJECTS
from .manifest import FOLDER, manifest_rounds
from .rounds import load_round, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .codes import Codes
    from .objects import ObjectStore
    from .places import Place

CODES, AFFINITIES = "codes", "affinities"
_ARRAYS = ("parts", "part_names", SOURCE_OBJECTS)


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts that a round names, in the order of their rows.

    Attributes
    ----------
    table : ndarray of int64, shape (p, 3)
        First row, row after the last, and whether the codes are provisional.
    names : tuple of str
    """

    table: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def none(cls) -> Parts:
        """Return no parts."""
        return cls(np.zeros((0, 3), np.int64), ())

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Parts:
        """Return the parts that a round's arrays hold."""
        return cls(arrays["parts"], tuple(bytes(row).decode() for row in arrays["part_names"]))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what `of` reads."""
        width = -1 if self.names else 0
        letters = np.frombuffer("".join(self.names).encode(), np.uint8).reshape(len(self.names), width)
        return {"parts": self.table, "part_names": letters}

    @property
    def n_rows(self) -> int:
        """Rows of all parts."""
        return int(self.table[-1, 1]) if len(self.table) else 0

    @property
    def n_provisional(self) -> int:
        """Rows whose codes are provisional."""
        return int((self.table[:, 1] - self.table[:, 0])[self.table[:, 2] > 0].sum())

    def provisional(self) -> Iterator[tuple[int, int, int]]:
        """Yield number, first row and row after the last of each part whose codes are provisional."""
        for place in np.flatnonzero(self.table[:, 2]).tolist():
            yield place, int(self.table[place, 0]), int(self.table[place, 1])

    def settled(self, names: Mapping[int, str], *, provisional: bool = False) -> Parts:
        """Return the same rows with final codes, or all provisional, under new names where coded again."""
        table = self.table.copy()
        table[:, 2] = provisional
        return Parts(table, tuple(names.get(place, name) for place, name in enumerate(self.names)))

    def followed_by(self, start: int, stop: int, name: str, *, provisional: bool) -> Parts:
        """Return these and one more."""
        row = np.array([[start, stop, provisional]], np.int64)
        return Parts(np.concatenate([self.table, row]), (*self.names, name))

    def open(self, folder: Place) -> list[Codes]:
        """Open all parts of the stream in ``folder``."""
        return [open_codes(folder / CODES / name) for name in self.names]


def without_parts(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a round's arrays without those of its parts and of where their rows came from."""
    return {key: array for key, array in arrays.items() if key not in _ARRAYS}


def write_part(folder: Place, number: int, codes: np.ndarray, n_bits: int, model_digest: str) -> str:
    """Write a part of the stream in ``folder`` under a name that nobody else has, and return the name."""
    name = _fresh_name(number)
    path = folder / CODES / name
    writer = create_codes(
        path,
        n_rows=len(codes),
        n_bits=n_bits,
        n_active=None,
        chunk_rows=max(len(codes), 1),
        model_digest=model_digest,
        source_digest="",
    )
    finish_codes(path, [writer.write(0, codes)])
    return name


def write_affinities(
    folder: Place, number: int, tiles: Iterable[np.ndarray], n_anchors: int, chunk_rows: int
) -> str:
    """Write a part of affinities, tile by tile, under a name that nobody else has, and return the name."""
    name = _fresh_name(number)
    path = folder / AFFINITIES / name
    with DatasetWriter(path, n_features=n_anchors, dtype="float32", chunk_rows=chunk_rows) as writer:
        for tile in tiles:
            writer.append(tile)
    return name


def open_affinities(folder: Place, name: str) -> Dataset:
    """Open a part of affinities."""
    return open_dataset(folder / AFFINITIES / name)


def unnamed_parts(store: ObjectStore, grace_seconds: float) -> Iterator[str]:
    """Yield the keys of parts that the newest round does not name, untouched for so long."""
    # before the round: a part that is committed meanwhile is then named
    there = [(kind, name) for kind in (CODES, AFFINITIES) for name in store.list(kind)]
    rounds = manifest_rounds(store.list(FOLDER))
    named = (
        set(Parts.of(load_round(store, read_manifest(store, rounds[-1])).arrays).names) if rounds else set()
    )
    for kind, name in there:
        key = f"{kind}/{name}"
        if name.startswith("part-") and name not in named and store.age(key) >= grace_seconds:
            yield key


def _fresh_name(number: int) -> str:
    return f"part-{number:010d}-{uuid.uuid4().hex}.zarr"
