"""Telling what is wrong with a run or a model, all of it, without raising at the first fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .checkpoints import MIN_KEEP
from .errors import StorageError
from .identity import differences
from .manifest import FOLDER, Manifest, manifest_key, manifest_rounds
from .models import load_model
from .places import place
from .rounds import load_round, read_manifest
from .run import CONFIG, RunDirectory
from .s3_objects import objects_at

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from .objects import ObjectStore


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes
    ----------
    path : str
        Relative to what was verified.
    kind : str
        Name of the error that reading it raises, such as ``"CorruptObject"``.
    message : str
        What was expected and what was found.
    """

    path: str
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message} [{self.kind}]"


def verify_run(path: str | os.PathLike[str]) -> list[Problem]:
    """Return everything that is wrong with a run; an empty list if nothing is.

    Checked are the configuration, every manifest and the chain of them, every file of the newest two rounds,
    and what is left of older ones.  Of the newest two, the older may be absent as a whole: so looks a run
    that has lost its newest manifest.  Unfinished attempts of drivers that died are no problem either;
    `clean_run` removes them.
    """
    folder = place(path)
    store = objects_at(folder)
    problems = []
    config_digest = None
    try:
        config_digest = RunDirectory.open(folder).config_digest
    except (OSError, StorageError) as error:
        problems.append(_problem(CONFIG, error))
    manifests = _manifests(store, problems)
    problems += _chain_problems(manifests, config_digest)
    for number, manifest in manifests.items():
        behind = max(manifests) - number
        retired = behind > 0 and not store.exists(f"objects/{manifest.attempt}")
        if behind < MIN_KEEP and not retired:
            problems += _whole_problems(store, manifest)
        else:
            problems += _remaining_problems(store, manifest)
    return problems


def verify_model(path: str | os.PathLike[str]) -> list[Problem]:
    """Return what is wrong with a saved model; an empty list if nothing is."""
    try:
        load_model(path)
    except (OSError, StorageError) as error:
        return [_problem(place(path).name, error)]
    return []


def _manifests(store: ObjectStore, problems: list[Problem]) -> dict[int, Manifest]:
    """Return the manifests that can be believed; append what is wrong with the others."""
    rounds = manifest_rounds(store.list(FOLDER))
    found = {}
    for number in range(rounds[-1] + 1 if rounds else 0):
        try:
            found[number] = read_manifest(store, number)
        except (OSError, StorageError) as error:
            problems.append(_problem(manifest_key(number), error))
    return found


def _chain_problems(manifests: dict[int, Manifest], config_digest: str | None) -> Iterator[Problem]:
    for number, manifest in manifests.items():
        key = manifest_key(number)
        if config_digest is not None and manifest.config_digest != config_digest:
            yield Problem(key, "IdentityMismatch", f"belongs to another configuration than {CONFIG}")
        before = manifests.get(number - 1)
        if before is None:
            continue
        if manifest.parent != before.digest:
            yield Problem(key, "CorruptObject", f"does not follow {manifest_key(number - 1)} as it is")
        for name, left, right in differences(before.identity, manifest.identity):
            if name.split(".")[0] != "environment":
                yield Problem(key, "IdentityMismatch", f"{name} is {right!r}; the round before has {left!r}")


def _whole_problems(store: ObjectStore, manifest: Manifest) -> Iterator[Problem]:
    """Check every file, and that together they can be read."""
    damaged = False
    for record in manifest.objects:
        try:
            store.check(record)
        except (OSError, StorageError) as error:
            damaged = True
            yield _problem(record.path, error)
    if damaged:
        return
    try:
        load_round(store, manifest)
    except (OSError, StorageError) as error:
        yield _problem(f"objects/{manifest.attempt}", error)


def _remaining_problems(store: ObjectStore, manifest: Manifest) -> Iterator[Problem]:
    """Check what is left: retention may have deleted a superseded round wholly or in part."""
    for record in manifest.objects:
        try:
            if store.exists(record.path):
                store.check(record)
        except (OSError, StorageError) as error:
            yield _problem(record.path, error)


def _problem(path: str, error: Exception) -> Problem:
    return Problem(path, type(error).__name__, str(error))
