"""A new folder belongs to whoever makes it first, and of a writer that was killed it can be taken over.

The folder of unfinished data or codes holds a claim: machine and process of its writer.  A second writer is
refused as long as the first may be alive; what a dead process of this machine has left is removed, so that
the same command can simply be given again.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import socket
import uuid
from contextvars import ContextVar
from typing import TYPE_CHECKING

from .documents import read_json
from .errors import DestinationExists, StorageError
from .files import make_folder, remove
from .objects import TEMPORARY
from .paths import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLAIM = ".writer.json"
_OWNER: ContextVar[str | None] = ContextVar("owner of claims", default=None)


@contextlib.contextmanager
def owned_by(owner: str) -> Iterator[None]:
    """While entered, claim in the name of ``owner``, and take over what another process claimed in it.

    For a writer that is moved to another machine, from where nobody can tell that its first process is dead.
    Two that live at once, because the first is only cut off, must write the same.
    """
    token = _OWNER.set(owner)
    try:
        yield
    finally:
        _OWNER.reset(token)


def claim_folder(path: Path) -> None:
    """Make the folder of something to be written.

    Raises
    ------
    DestinationExists
        If anything is at ``path``, unless it is unfinished and its writer is known to be dead.
    """
    make_folder(path.parent)
    if os.path.lexists(path):
        _take_over(path)
    staging = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        staging.mkdir()
        mark(staging)
        staging.rename(path)  # fails if something with content has taken the name meanwhile
    except OSError as error:
        with contextlib.suppress(OSError):
            remove(staging)
        if os.path.lexists(path):
            raise _exists(path) from error
        raise


def mark(folder: Path) -> None:
    """Claim a folder that is this process's own, such as one for scratch files."""
    claim = {"where": _where(), "pid": os.getpid()}
    if (owner := _OWNER.get()) is not None:
        claim["owner"] = owner
    (folder / CLAIM).write_text(json.dumps(claim))


def remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove the claimed folders of dead processes directly below ``folder`` whose names begin so."""
    for child in sorted(folder.glob(f"{glob.escape(prefix)}*")):
        if child.is_dir() and not child.is_symlink() and abandoned(child):
            remove(child)


def release_folder(path: Path) -> None:
    """Take the claim off a folder that is complete but for its marker."""
    (path / CLAIM).unlink(missing_ok=True)
    sync_folder(path)


def abandoned(path: Path) -> bool:
    """Tell whether a folder is unfinished and its writer is no more: dead on this machine, or moved here."""
    if (path / "zarr.json").exists() or not (path / CLAIM).is_file():
        return False
    try:
        claim = read_json(path / CLAIM, max_bytes=4096)
    except (StorageError, OSError):
        return False
    pid = claim.get("pid")
    me = {"where": _where(), "pid": os.getpid()}
    if claim.get("owner") is not None and claim["owner"] == _OWNER.get():
        return {name: claim.get(name) for name in me} != me
    if claim.get("where") != _where() or type(pid) is not int or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _where() -> str:
    """Return what process numbers are unique in: host, and on Linux also its boot and their namespace."""
    known = [socket.gethostname()]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            known.append(file.read().strip())
        known.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return " ".join(known)


def _take_over(path: Path) -> None:
    """Remove what a dead writer has left; two that try it at once do not remove each other's folder."""
    if path.is_symlink() or not abandoned(path):
        raise _exists(path)
    aside = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        path.rename(aside)
    except OSError as error:
        raise _exists(path) from error
    if not abandoned(aside):  # another one was quicker, and this is what it is writing
        with contextlib.suppress(OSError):
            aside.rename(path)
        raise _exists(path)
    remove(aside)


def _exists(path: Path) -> DestinationExists:
    unfinished = path.is_dir() and not (path / "zarr.json").exists() and (path / CLAIM).exists()
    what = "is being written, or its writer was killed elsewhere" if unfinished else "exists"
    return DestinationExists(f"{path} {what}; choose another name or remove it")
