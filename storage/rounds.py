"""The arrays of one committed round as objects: written under a fresh attempt, read back verified, retired.

Nothing here decides whether a round is committed; that is the manifest's business (see `checkpoints`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .errors import CorruptObject
from .manifest import (
    FOLDER,
    MAX_MANIFEST_BYTES,
    ArrayRecord,
    Manifest,
    attempt_round,
    check_array_name,
    manifest_key,
    manifest_rounds,
)
from .metadata import ALLOWED
from .safe import read_array, write_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .faults import Faults
    from .objects import ObjectRecord, ObjectStore
    from .places import Place

RESERVED_SCALARS = frozenset({"round", "time"})  # columns of the history


class State(Protocol):
    """What is committed: anything with a round, arrays and scalars."""

    @property
    def round(self) -> int:
        """Number of the round, 0 for the start."""
        ...

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """Arrays by name, C-contiguous."""
        ...

    @property
    def scalars(self) -> Mapping[str, Any]:
        """JSON scalars by name."""
        ...


@dataclass(frozen=True)
class StoredRound:
    """A committed round as read back; its arrays are read-only.

    Attributes
    ----------
    round : int
    arrays : dict of str to ndarray
    scalars : dict of str to bool, int, float, str or None
    digest : str
        Digest of the round's manifest, which names all of its content.
    committed_at : str
        UTC time in ISO 8601.
    """

    round: int
    arrays: Mapping[str, np.ndarray]
    scalars: Mapping[str, Any]
    digest: str
    committed_at: str


def check_state(state: State) -> None:
    """Refuse a state that would not be read back exactly as it is.

    Raises
    ------
    TypeError
        If a scalar is none of JSON's or of NumPy's making (which would calculate otherwise than the plain
        number that a resumed run reads), or an array's dtype cannot be stored.
    ValueError
        If a float is not finite, an array is not C-contiguous (BLAS gives other bits for other layouts), or
        a name is not acceptable.
    """
    for name, value in state.scalars.items():
        _check_scalar(name, value)
    for name, array in state.arrays.items():
        check_array_name(name)
        if not isinstance(array, np.ndarray) or array.dtype.name not in ALLOWED or not array.dtype.isnative:
            found = f"dtype {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
            raise TypeError(f"array {name!r}: expected a native NumPy array of bool or numbers, got {found}")
        if not array.flags.c_contiguous:
            raise ValueError(
                f"array {name!r} is not C-contiguous, but would be after a resume, and BLAS gives other bits "
                "for other layouts; pass np.ascontiguousarray(...)"
            )


def write_arrays(
    store: ObjectStore, attempt: str, arrays: Mapping[str, np.ndarray], faults: Faults
) -> tuple[ObjectRecord, ...]:
    """Write arrays under an attempt, make them durable, and return the records of all files."""
    prefix = f"objects/{attempt}"
    if not arrays:
        return ()
    folder = store.stage(prefix)
    for position, (name, array) in enumerate(sorted(arrays.items())):
        if position:
            faults.reach("commit.between_objects")
        write_array(folder / f"{name}.zarr", array)
    faults.reach("commit.before_fsync")
    return store.seal(prefix)


def array_records(arrays: Mapping[str, np.ndarray]) -> dict[str, ArrayRecord]:
    """Return what a manifest says of arrays."""
    return {name: ArrayRecord(array.dtype.name, array.shape) for name, array in arrays.items()}


def read_manifest(store: ObjectStore, number: int) -> Manifest:
    """Return the manifest of a round, checked against its own digest and its name.

    Raises
    ------
    CorruptObject
        If it is missing or has changed.
    """
    key = manifest_key(number)
    return Manifest.from_bytes(store.read(key, MAX_MANIFEST_BYTES), str(store.path(key)), number)


def read_chain(store: ObjectStore) -> list[Manifest]:
    """Return all manifests from round 0 on, each checked to name its predecessor as its parent.

    Raises
    ------
    CorruptObject
        If one is missing, has changed, or follows another one than its predecessor.
    """
    chain: list[Manifest] = []
    rounds = manifest_rounds(store.list(FOLDER))
    for expected, number in enumerate(rounds):
        if number != expected:
            raise CorruptObject(f"{manifest_key(expected)} is missing, but that of round {number} is there")
    keys = [manifest_key(number) for number in rounds]
    for number, key, data in zip(rounds, keys, store.read_all(keys, MAX_MANIFEST_BYTES), strict=True):
        manifest = Manifest.from_bytes(data, str(store.path(key)), number)
        if chain and manifest.parent != chain[-1].digest:
            raise CorruptObject(
                f"{manifest_key(number)} follows a round {number - 1} that is not the one in "
                f"{manifest_key(number - 1)}: one of the two was replaced"
            )
        chain.append(manifest)
    return chain


def load_round(store: ObjectStore, manifest: Manifest) -> StoredRound:
    """Return a round after checking size and digest of each of its files.

    Raises
    ------
    CorruptObject
        If a file is missing or not what was written; names it.
    UnsafeObject
        If an array is stored in a way that is not accepted.
    """
    folder = store.fetch(f"objects/{manifest.attempt}", manifest.objects)
    arrays = {name: _read(folder, manifest, name) for name in sorted(manifest.arrays)}
    return StoredRound(manifest.round, arrays, dict(manifest.scalars), manifest.digest, manifest.committed_at)


def superseded(store: ObjectStore, newest: Manifest) -> list[str]:
    """Return the attempts of committed rounds older than the newest ``keep``, as far as they are there.

    Attempts that no manifest names belong to drivers that died or are still writing; they are not returned.
    """
    last = newest.round - newest.keep
    numbered = [(attempt_round(attempt), attempt) for attempt in store.list("objects")]
    return [
        attempt
        for number, attempt in numbered
        if number is not None and number <= last and read_manifest(store, number).attempt == attempt
    ]


def history_row(number: int, scalars: Mapping[str, Any], time: str) -> dict[str, Any]:
    """Return one row of a run's history."""
    return {"round": number, **scalars, "time": time}


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _read(folder: Place, manifest: Manifest, name: str) -> np.ndarray:
    record = manifest.arrays[name]
    path = folder / f"{name}.zarr"
    expected = math.prod(record.shape) * np.dtype(record.dtype).itemsize
    array = read_array(path, dtypes=frozenset({record.dtype}), max_bytes=expected)
    if array.shape != record.shape or array.dtype.name != record.dtype:
        raise CorruptObject(
            f"{path} holds {array.dtype} of shape {array.shape}; "
            f"its manifest says {record.dtype} of shape {record.shape}"
        )
    return read_only(np.asarray(array, order="C"))


def _check_scalar(name: str, value: Any) -> None:
    if not isinstance(name, str) or name in RESERVED_SCALARS:
        raise ValueError(f"expected a scalar's name other than {sorted(RESERVED_SCALARS)}, got {name!r}")
    if type(value) not in (bool, int, float, str, type(None)):
        raise TypeError(
            f"scalar {name!r}: expected bool, int, float, str or None, got {type(value).__name__}; "
            "convert it, for example by float(...)"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"scalar {name!r} is {value}: only finite numbers are kept")
