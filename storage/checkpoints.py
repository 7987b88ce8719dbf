"""Committing rounds so that a run can be interrupted at any instant and goes on to the same bits.

A commit writes immutable arrays under a fresh attempt, makes them durable, and then creates the round's
manifest, which fails if there is one.  There is no lock, no pointer and no renaming of folders: whoever
creates the manifest has committed the round, everyone else is told who it was.  Manifests are never deleted,
so that a driver that slept through any number of rounds cannot create an old one again.
"""

from __future__ import annotations

import errno
import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import CorruptObject, IdentityMismatch, ManifestConflict, StorageError, StoreUnavailable
from .faults import NO_FAULTS, Faults
from .identity import as_json, check_same_run
from .manifest import FOLDER, Manifest, manifest_key, manifest_rounds
from .memory import MemoryCheckpoints, MemoryReference
from .rounds import (
    StoredRound,
    array_records,
    check_state,
    history_row,
    load_round,
    read_chain,
    read_manifest,
    superseded,
    write_arrays,
)
from .s3_objects import objects_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .objects import ObjectRecord, ObjectStore
    from .rounds import State

__all__ = ["CheckpointReference", "Checkpoints", "MemoryCheckpoints", "MemoryReference", "StoredRound"]

logger = logging.getLogger("bitfleet.storage")

MIN_KEEP = 2
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class CheckpointReference:
    """Where a committed round can be read back from; small enough for every task.

    Attributes
    ----------
    path : str
        The run's folder, absolute, or its address.
    round : int
    key : str
        Digest of the round's manifest.
    """

    path: str
    round: int
    key: str

    def load(self) -> StoredRound:
        """Read the round back, verified again.

        Raises
        ------
        CorruptObject
            If anything is not what was committed when the reference was made.
        ManifestConflict
            If another driver has gone on and retired this round; names it.
        """
        store = objects_at(self.path)
        manifest = read_manifest(store, self.round)
        if manifest.digest != self.key:
            raise CorruptObject(
                f"{self.path}/{manifest_key(self.round)} is not the manifest that this task was sent for "
                f"(SHA-256 {manifest.digest} instead of {self.key})"
            )
        try:
            return load_round(store, manifest)
        except CorruptObject:
            newest = manifest_rounds(store.list(FOLDER))[-1]
            if newest >= self.round + manifest.keep:  # its arrays may be gone, and rightly so
                raise _overtaken(self.path, self.round + 1, read_manifest(store, self.round + 1)) from None
            raise


class Checkpoints:
    """The committed rounds of one run.

    Usually made by `RunDirectory.checkpoints`.

    Parameters
    ----------
    store : ObjectStore
        Where the run is kept.
    path : str
        The run's folder, absolute; goes into references.
    config_digest : str
        Digest of the run's configuration.
    identity : mapping
        JSON values that a resumed run must agree with, field by field.
    faults : Faults
        Told of every point of the commit.
    allow_environment_change : bool
        Whether the field ``environment`` of the identity may differ.
    keep : int
        How many of the newest rounds keep their arrays, at least 2: the newest may be damaged or its
        manifest deleted.  Manifests, and with them every round's scalars, are kept for good.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        config_digest: str,
        identity: Mapping[str, Any],
        *,
        faults: Faults = NO_FAULTS,
        allow_environment_change: bool = False,
        keep: int = MIN_KEEP,
    ) -> None:
        if keep < MIN_KEEP:
            raise ValueError(f"expected keep >= {MIN_KEEP}, so that one round can be lost; got {keep}")
        self._store = store
        self._path = path
        self._config_digest = config_digest
        self._identity = as_json(identity)
        self._faults = faults
        self._allow_environment_change = allow_environment_change
        self._keep = keep
        self._newest: Manifest | None = None

    def latest(self) -> StoredRound | None:
        """Return the newest committed round, or None if there is none yet.

        Raises
        ------
        IdentityMismatch
            If the run has another configuration or identity; names each field.
        CorruptObject
            If a manifest or a file of the newest round is missing or has changed; names it.
        """
        chain = read_chain(self._store)
        if not chain:
            self._newest = None
            return None
        newest = chain[-1]
        self._check_identity(newest)
        stored = load_round(self._store, newest)
        self._newest = newest
        return stored

    def commit(self, state: State) -> None:
        """Commit the round that follows the one last read or committed here.

        Raises
        ------
        ManifestConflict
            If another driver has committed this round; names it.
        StorageError
            If it cannot be written (no space, I/O error).  The rounds before are intact.
        """
        check_state(state)
        self._faults.reach("commit.before_list")
        self._check_place(state.round)
        attempt = f"{state.round:08d}-{uuid.uuid4().hex}"
        self._faults.reach("commit.before_objects")
        objects = self._write(attempt, state)
        manifest = self._manifest(attempt, state, objects)
        self._faults.reach("commit.before_manifest")
        self._check_attempt(manifest)
        self._publish(manifest)
        self._newest = manifest
        self._faults.reach("commit.before_retention")
        self._retire(manifest)
        self._faults.reach("commit.after_retention")

    def reference(self) -> CheckpointReference:
        """Return where the round last read or committed can be read back from."""
        if self._newest is None:
            raise ValueError("nothing has been committed or read yet: there is no round to refer to")
        return CheckpointReference(self._path, self._newest.round, self._newest.digest)

    def history(self) -> list[dict[str, Any]]:
        """Return the scalars of every committed round, with its number and the time of its commit."""
        return [history_row(m.round, m.scalars, m.committed_at) for m in read_chain(self._store)]

    def _check_identity(self, manifest: Manifest) -> None:
        if manifest.config_digest != self._config_digest:
            raise IdentityMismatch(
                f"{self._path}/config.json is not the configuration of the committed rounds "
                f"(SHA-256 {self._config_digest} instead of {manifest.config_digest}); restore that file"
            )
        check_same_run(
            self._path,
            manifest.identity,
            self._identity,
            allow_environment_change=self._allow_environment_change,
        )

    def _check_place(self, number: int) -> None:
        """Refuse a round that is committed already, or does not follow the one that this driver knows."""
        rounds = manifest_rounds(self._store.list(FOLDER))
        newest = rounds[-1] if rounds else -1
        if newest >= number:
            self._lost_to(read_manifest(self._store, number if number in rounds else newest), number)
        known = -1 if self._newest is None else self._newest.round
        if known != number - 1:
            raise ValueError(
                f"expected round {known + 1} after the one last read or committed, got {number}"
                + ("; call latest() first" if known < 0 <= newest else "")
            )
        if newest < known:
            raise CorruptObject(f"{manifest_key(known)} is missing: it was there when this driver read it")
        if self._newest is not None:
            found = read_manifest(self._store, known)
            if found.digest != self._newest.digest:
                self._lost_to(found, known)

    def _lost_to(self, winner: Manifest, number: int) -> NoReturn:
        raise _overtaken(self._path, number, winner)

    def _write(self, attempt: str, state: State) -> tuple[ObjectRecord, ...]:
        try:
            return write_arrays(self._store, attempt, state.arrays, self._faults)
        except OSError as error:
            self._discard(attempt)
            size = sum(array.nbytes for array in state.arrays.values())
            raise self._failure(error, state.round, size) from error
        except BaseException:
            self._discard(attempt)
            raise

    def _manifest(self, attempt: str, state: State, objects: tuple[ObjectRecord, ...]) -> Manifest:
        return Manifest(
            round=state.round,
            parent=None if self._newest is None else self._newest.digest,
            attempt=attempt,
            write_id=uuid.uuid4().hex,
            config_digest=self._config_digest,
            identity=self._identity,
            keep=self._keep,
            scalars=dict(state.scalars),
            arrays=array_records(state.arrays),
            objects=objects,
        )

    def _check_attempt(self, manifest: Manifest) -> None:
        """Refuse to name objects that `clean` removed while this driver slept longer than the grace time."""
        gone = [record.path for record in manifest.objects if not self._store.exists(record.path)]
        if gone:
            self._check_place(manifest.round)
            raise StorageError(
                f"{gone[0]} was removed before round {manifest.round} was committed, probably by `clean` "
                "while this driver was paused; resume the run"
            )

    def _publish(self, manifest: Manifest) -> None:
        """Create the manifest, and find out by reading it back whether it is ours."""
        key, data = manifest_key(manifest.round), manifest.to_bytes()
        try:
            try:
                self._store.create(key, data)
            except (TimeoutError, ConnectionError):
                # the answer was lost, perhaps not the write: whose it is shows when it is read back
                self._store.create(key, data)
        except OSError as error:
            if not self._store.exists(key):
                self._discard(manifest.attempt)
            raise self._failure(error, manifest.round, len(data)) from error
        self._faults.reach("commit.after_manifest")
        found = read_manifest(self._store, manifest.round)
        if found.write_id != manifest.write_id:
            self._discard(manifest.attempt)
            self._lost_to(found, manifest.round)

    def _retire(self, newest: Manifest) -> None:
        """Delete the arrays of superseded rounds; the commit stands whether that succeeds or not."""
        try:
            for attempt in superseded(self._store, newest):
                self._faults.reach("retention.before_delete")
                self._store.delete(f"objects/{attempt}")
        except (OSError, StorageError) as error:
            logger.warning("round %d is committed, but old rounds remain: %s", newest.round, error)

    def _discard(self, attempt: str) -> None:
        try:
            self._store.delete(f"objects/{attempt}")
        except OSError as error:
            logger.warning(
                "the unfinished objects/%s remains (bitfleet clean removes it): %s", attempt, error
            )

    def _failure(self, error: OSError, number: int, n_bytes: int) -> StorageError:
        message = f"round {number} of {self._path} could not be written: {error}"
        if error.errno in _NO_SPACE:
            message += f"; a round needs up to {n_bytes:,} bytes"
        kind = StoreUnavailable if isinstance(error, StoreUnavailable) else StorageError
        return kind(f"{message}. The rounds before it are intact; resume the run when this is mended")


def _overtaken(path: str, number: int, winner: Manifest) -> ManifestConflict:
    return ManifestConflict(
        f"round {number} of {path} is not ours to commit: round {winner.round} was committed by "
        f"{winner.winner}; this driver stops. Is a second one running?"
    )
