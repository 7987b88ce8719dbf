"""Removing what drivers that died have left behind, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .events import INTERRUPTED_AFTER, heartbeat_age
from .manifest import FOLDER, attempt_round, manifest_rounds
from .parts import unnamed_parts
from .rounds import read_chain, read_manifest, superseded
from .run import STREAM_FORMAT, RunDirectory
from .s3_objects import objects_at

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from .objects import ObjectStore

GRACE_SECONDS = 3600.0


def clean_run(
    path: str | os.PathLike[str], *, grace_seconds: float = GRACE_SECONDS, dry_run: bool = False
) -> list[str]:
    """Remove a run's debris and return the removed paths, relative to the run.

    Debris are unfinished writes and attempts that no manifest names, both untouched for ``grace_seconds``
    (their driver may only be slow), and arrays of superseded rounds that a dying driver did not retire; of a
    stream also codes that its newest round does not name.

    Parameters
    ----------
    path : path
        The run's folder.
    grace_seconds : float
        How long something unfinished must have been left alone.  As long as a driver gives signs of life it
        is at least a minute.
    dry_run : bool
        Only tell what would be removed.

    Raises
    ------
    CorruptObject
        If the configuration or the chain of manifests is damaged: from such a run nothing is removed.
    """
    if grace_seconds < 0:
        raise ValueError(f"expected grace_seconds >= 0, got {grace_seconds}")
    run = RunDirectory.open(path)
    age = heartbeat_age(run.path)
    if age is not None and age < INTERRUPTED_AFTER:
        grace_seconds = max(grace_seconds, INTERRUPTED_AFTER)
    store = objects_at(run.path)
    parts = unnamed_parts(store, grace_seconds) if run.config.get("format") == STREAM_FORMAT else ()
    debris = sorted({*_unfinished(store, grace_seconds), *_superseded(store), *parts})
    if not dry_run:
        for key in debris:
            store.delete(key)
    return debris


def _unfinished(store: ObjectStore, grace_seconds: float) -> Iterator[str]:
    for folder in ("", FOLDER):
        for key in store.temporaries(folder):
            if store.age(key) >= grace_seconds:
                yield key
    attempts = store.list("objects")  # before the manifests: an attempt committed meanwhile is then seen
    committed = {manifest.attempt for manifest in read_chain(store)}
    for attempt in attempts:
        key = f"objects/{attempt}"
        ours = attempt_round(attempt) is not None
        if ours and attempt not in committed and store.age(key) >= grace_seconds:
            yield key


def _superseded(store: ObjectStore) -> Iterator[str]:
    rounds = manifest_rounds(store.list(FOLDER))
    if rounds:
        for attempt in superseded(store, read_manifest(store, rounds[-1])):
            yield f"objects/{attempt}"
