"""A new folder belongs to whoever makes it first, and of a writer that was killed it can be taken over.

The folder of unfinished data or codes holds a claim: machine and process of its writer.  A second writer is
refused as long as the first may be alive; what a dead process of this machine has left is removed, so that
the same command can simply be given again.

In an object store the claim is made by a conditional put.  There a claim may also say what is going to be
written; a second writer of just that joins the first one, dead or alive on whatever machine, since both write
the same bytes under the same names.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import uuid
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .documents import read_json
from .errors import DestinationExists, StorageError
from .files import TEMPORARY, make_folder
from .files import remove as remove_local
from .object_paths import ObjectPath
from .paths import sync_folder
from .places import remove, remove_tree, taken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .places import Place

CLAIM = ".writer.json"
_OWNER: ContextVar[dict[str, str] | None] = ContextVar("owner of claims", default=None)


@contextlib.contextmanager
def owned_by(owner: str, writer: str) -> Iterator[None]:
    """While entered, claim in the name of ``owner``, and take over what its other writers have claimed.

    For a writer that is moved to another machine, from where nobody can tell that its first process is dead.
    Two that live at once, because the first is only cut off or not told yet, must write the same.
    """
    token = _OWNER.set({"owner": owner, "writer": writer})
    try:
        yield
    finally:
        _OWNER.reset(token)


def claim_folder(path: Place, content: str | None = None) -> bool:
    """Make the folder of something to be written; return whether a writer of the same is joined.

    Parameters
    ----------
    path : Path or ObjectPath
    content : str, optional
        Digest of what decides every byte that will be written.

    Raises
    ------
    DestinationExists
        If anything is at ``path``, unless it is unfinished and its writer is known to be dead.
    """
    if isinstance(path, ObjectPath):
        return _claim_objects(path, content)
    make_folder(path.parent)
    if taken(path):
        _take_over(path)
    staging = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        staging.mkdir()
        mark(staging)
        staging.rename(path)  # fails if something with content has taken the name meanwhile
    except OSError as error:
        with contextlib.suppress(OSError):
            remove_local(staging)
        if taken(path):
            raise _exists(path) from error
        raise
    return False


def mark(folder: Place) -> None:
    """Claim a folder that is this process's own, such as one for scratch files."""
    if isinstance(folder, ObjectPath):
        (folder / CLAIM).put(_claim())
    else:
        (folder / CLAIM).write_bytes(_claim())


def remove_abandoned(folder: Place, prefix: str) -> None:
    """Remove the claimed folders of dead processes directly below ``folder`` whose names begin so."""
    children: list[Place] = [child for child in folder.iterdir() if child.name.startswith(prefix)]
    for child in children:
        if child.is_dir() and not child.is_symlink() and abandoned(child):
            remove(child)


def release_folder(path: Place) -> None:
    """Take the claim off a folder that has its marker; one without both would be nobody's for good."""
    (path / CLAIM).unlink(missing_ok=True)
    if not isinstance(path, ObjectPath):
        sync_folder(path)


def abandon(path: Place) -> None:
    """Remove what this process has begun to write, unless another one has taken it over."""
    claim = _read(path)
    if (claim and _writer(claim) != _writer(_me())) or (path / "zarr.json").exists():
        return
    if not isinstance(path, ObjectPath):  # a kill must not leave a part of it, unclaimed, under its name
        aside = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
        with contextlib.suppress(OSError):
            path = path.rename(aside)
    remove_tree(path)


def abandoned(path: Place) -> bool:
    """Tell whether a folder is unfinished and its writer is no more: dead on this machine, or moved here."""
    if (path / "zarr.json").exists() or not (path / CLAIM).is_file():
        return False
    claim = _read(path)
    pid, me = claim.get("pid"), _me()
    if claim.get("owner") is not None and claim["owner"] == me.get("owner"):
        return _writer(claim) != _writer(me)
    if claim.get("where") != _where() or type(pid) is not int or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _claim(content: str | None = None) -> bytes:
    return json.dumps(_me() | ({} if content is None else {"content": content})).encode()


def _me() -> dict[str, Any]:
    return {"where": _where(), "pid": os.getpid(), **(_OWNER.get() or {})}


def _writer(claim: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(claim.get(name) for name in ("where", "pid", "writer"))


def _read(path: Place) -> dict[str, Any]:
    """Return a folder's claim, empty if there is none that can be read."""
    try:
        return read_json(path / CLAIM, max_bytes=4096)
    except (StorageError, OSError):
        return {}


def _claim_objects(path: ObjectPath, content: str | None) -> bool:
    claim, ours = path / CLAIM, _claim(content)
    if not path.exists():
        if not claim.create(ours):
            raise _exists(path)
        if any(child.name != CLAIM for child in path.iterdir()):  # a writer has come and gone meanwhile
            claim.unlink()
            raise _exists(path)
        return False
    about, there = claim.about(), _read(path)
    if about is None or (path / "zarr.json").exists():
        raise _exists(path)
    joined = content is not None and there.get("content") == content
    if not joined and not abandoned(path):
        raise _exists(path)
    if not claim.replace_if(about["e_tag"], ours):  # another one was quicker
        raise _exists(path)
    if not joined:
        for item in path.walk():
            if item["path"] != CLAIM:
                (path / item["path"]).unlink()
    return joined


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
    remove_local(aside)


def _exists(path: Place) -> DestinationExists:
    unfinished = path.is_dir() and not (path / "zarr.json").exists() and (path / CLAIM).exists()
    what = "is being written, or its writer was killed elsewhere" if unfinished else "exists"
    return DestinationExists(f"{path} {what}; choose another name or remove it")
