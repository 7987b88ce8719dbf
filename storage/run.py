"""A run's folder: its configuration, its committed rounds, and what can be said of it from outside.

::

    config.json       what the run is; written once, before anything else
    manifests/        one file per committed round, kept for good
    objects/          the arrays of the newest rounds
    events.jsonl      what happened, for people; heartbeat.json says that a driver is alive
                      (in an object store each event is an object of its own below events/)
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from . import events as kinds
from .checkpoints import MIN_KEEP, Checkpoints
from .digest import json_digest
from .errors import CorruptObject, DestinationExists, IdentityMismatch, StorageError
from .events import INTERRUPTED_AFTER, driver_has_ended, heartbeat_age, open_events
from .faults import NO_FAULTS, Faults
from .identity import as_json, describe, differences
from .manifest import FOLDER, Manifest, manifest_rounds
from .places import make_folder, place
from .rounds import read_manifest
from .s3_objects import objects_at, require_conditions
from .safe import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .events import Events
    from .objects import ObjectStore
    from .places import Place

CONFIG = "config.json"
STREAM_FORMAT = "bitfleet-stream"  # what the configuration of a stream's folder says it is
FORMAT_VERSION = 1
_MAX_CONFIG_BYTES = 2**20
_STARTS = {kinds.RUN_STARTED: "run", kinds.JOB_SUBMITTED: "job", kinds.JOB_STARTED: "job"}
_ENDS = {
    kinds.RUN_FINISHED: ("run", "finished"),
    kinds.RUN_FAILED: ("run", "failed"),
    kinds.RUN_INTERRUPTED: ("run", "interrupted"),
    kinds.JOB_FINISHED: ("job", "finished"),
    kinds.JOB_FAILED: ("job", "failed"),
    kinds.JOB_INTERRUPTED: ("job", "interrupted"),
}


@dataclass(frozen=True)
class RunDirectory:
    """A run's folder with its configuration read.

    Attributes
    ----------
    path : Path or ObjectPath
        Absolute.
    config : dict
        The run's configuration, JSON values.
    config_digest : str
        SHA-256 of its canonical JSON.
    """

    path: Place
    config: Mapping[str, Any]
    config_digest: str

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: Mapping[str, Any]) -> RunDirectory:
        """Make a run with this configuration, or open the one that has just this configuration.

        Raises
        ------
        IdentityMismatch
            If a run with another configuration is there; names each field that differs.
        DestinationExists
            If ``path`` is a file.
        CorruptObject
            If a ``config.json`` is there that cannot be believed.
        """
        folder = place(path)
        if folder.exists() and not folder.is_dir():
            raise DestinationExists(f"{folder} is a file; a run needs a folder of its own")
        wanted = as_json(config)
        make_folder(folder)
        if not cls.exists(folder):
            require_conditions(folder)
        if objects_at(folder).create(CONFIG, _text(wanted)):
            return cls(folder, wanted, json_digest(wanted))
        there = cls.open(folder)
        found = list(differences(there.config, wanted))
        if found:
            raise IdentityMismatch(
                f"{folder} is a run with another configuration:\n{describe(found)}\n"
                "choose another run directory, or resume with the stored configuration"
            )
        return there

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Open the run at ``path``.

        Raises
        ------
        CorruptObject
            If its ``config.json`` is missing or has changed.
        """
        folder = place(path)
        if not (folder / CONFIG).exists():
            raise CorruptObject(
                f"{folder / CONFIG} is missing: there is no run there, or it is damaged; start one with: "
                f"bitfleet train DATA {folder}, or restore that file"
            )
        data = objects_at(folder).read(CONFIG, _MAX_CONFIG_BYTES)
        where = str(folder / CONFIG)
        document = parse_json(data, where)
        config = document.get("config")
        if not isinstance(config, dict) or data != _text(config, document.get("format_version")):
            raise CorruptObject(f"{where} has changed since it was written: its own digest does not fit")
        if document["format_version"] != FORMAT_VERSION:
            raise StorageError(
                f"{where} has format version {document['format_version']!r}, this bitfleet reads "
                f"{FORMAT_VERSION}; use the version that wrote it or a newer one"
            )
        return cls(folder, config, json_digest(config))

    @staticmethod
    def exists(path: str | os.PathLike[str]) -> bool:
        """Tell whether there is a run at ``path``, whole or damaged: a configuration or committed rounds."""
        folder = place(path)
        return (folder / CONFIG).exists() or (folder / FOLDER).is_dir()

    def checkpoints(
        self,
        identity: Mapping[str, Any],
        *,
        faults: Faults = NO_FAULTS,
        allow_environment_change: bool = False,
        keep: int = MIN_KEEP,
    ) -> Checkpoints:
        """Return the run's committed rounds; parameters as `Checkpoints`."""
        return Checkpoints(
            objects_at(self.path, faults),
            str(self.path),
            self.config_digest,
            identity,
            faults=faults,
            allow_environment_change=allow_environment_change,
            keep=keep,
        )

    def events(self) -> Events:
        """Return the run's event log."""
        return open_events(self.path)


def newest_manifest(path: str | os.PathLike[str]) -> Manifest | None:
    """Return the manifest of a run's newest round, checked by itself; None if nothing is committed."""
    store = objects_at(path)
    rounds = manifest_rounds(store.list(FOLDER))
    return read_manifest(store, rounds[-1]) if rounds else None


def is_stream(path: Any) -> bool:
    """Tell whether ``path`` names a stream's folder."""
    if not isinstance(path, str | os.PathLike) or not RunDirectory.exists(path):
        return False
    try:
        return RunDirectory.open(path).config.get("format") == STREAM_FORMAT
    except StorageError:
        return False


def status(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what can be told of a run from outside; never raises for damage.

    Returns
    -------
    dict
        ``state``: "finished", "failed" or "interrupted" as the last event says, "running" as long as a
        driver that has not said so gives a sign of life (and is not known to be gone from this machine,
        unless the job was submitted: then the cluster starts another driver);
        ``round``: newest committed round or None;
        ``rounds``: their total if an event told it; ``rate``: rounds per second between the newest two;
        ``metrics``: numbers among the newest round's scalars; ``stage``: what a whole job is at or ended in;
        ``error``: of a failed run; ``reason``: of an interrupted one, if its driver could tell;
        ``heartbeat_age``: seconds or None.  A run that is part of a job has ended when the job has.
    """
    folder = place(path)
    events = open_events(folder).read()
    age = heartbeat_age(folder)
    end, submitted = _last_end(events)
    state = _ENDS[end["kind"]][1] if end else _alive(folder, age, submitted=submitted)
    newest = _newest_manifests(objects_at(folder))
    totals = [event["rounds"] for event in events if isinstance(event.get("rounds"), int)]
    return {
        "state": state,
        "round": newest[-1].round if newest else None,
        "rounds": totals[-1] if totals else None,
        "rate": _rate(newest),
        "metrics": _numbers(newest[-1].scalars) if newest else {},
        "stage": next((event["stage"] for event in reversed(events) if "stage" in event), None),
        "error": end.get("error") if end and state == "failed" else None,
        "reason": end.get("reason") if end and state == "interrupted" else None,
        "heartbeat_age": age,
    }


def _text(config: Mapping[str, Any], version: Any = FORMAT_VERSION) -> bytes:
    content = {"format_version": version, "config": config}
    document = {**content, "sha256": json_digest(content)}
    return (json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n").encode("utf-8")


def _last_end(events: list[dict[str, Any]]) -> tuple[dict[str, Any] | None, bool]:
    """Return the event that says how the last driver ended, None if it has not, and if it was submitted."""
    life, end, submitted = "run", None, False
    for event in events:
        kind = event["kind"]
        if kind in _STARTS and not (life == "job" and event.get("of_job")):
            life, end, submitted = _STARTS[kind], None, "submission" in event
        elif kind in _ENDS and _ENDS[kind][0] == life:
            end = event
    return end, submitted


def _alive(folder: str | os.PathLike[str], age: float | None, *, submitted: bool) -> str:
    alive = age is not None and age < INTERRUPTED_AFTER and (submitted or not driver_has_ended(folder))
    return "running" if alive else "interrupted"


def _newest_manifests(store: ObjectStore) -> list[Manifest]:
    """Return the newest two manifests as far as they can be read."""
    found = []
    for number in manifest_rounds(store.list(FOLDER))[-2:]:
        try:
            found.append(read_manifest(store, number))
        except StorageError:
            continue
    return found


def _rate(newest: list[Manifest]) -> float | None:
    if len(newest) < 2:
        return None
    try:
        before, after = (datetime.fromisoformat(manifest.committed_at) for manifest in newest)
    except ValueError:
        return None
    seconds = (after - before).total_seconds()
    return 1.0 / seconds if seconds > 0 else None


def _numbers(scalars: Mapping[str, Any]) -> dict[str, int | float]:
    return {
        name: value
        for name, value in scalars.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
