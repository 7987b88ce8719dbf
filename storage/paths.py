"""Names that stay inside their folder, and folders whose entries are on the disk."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any

from .errors import UnsafeObject


def check_relative(name: str) -> str:
    """Return a relative POSIX path if it stays below where it starts; else `UnsafeObject`."""
    plain = isinstance(name, str) and 0 < len(name) <= 1024 and not set(name) & set("\\\0:")
    if not plain or name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
        raise UnsafeObject(f"expected a relative path without '..', got {name!r}")
    return str(PurePosixPath(name))


def resolve_inside(root: Any, name: str) -> Any:
    """Return ``root / name``; `UnsafeObject` if the name leaves ``root``, also by a symbolic link.

    ``root`` is a path or an `ObjectPath`, and so is what is returned.
    """
    path = Path(root) if isinstance(root, str) else root
    for part in check_relative(name).split("/"):
        path = path / part
        if path.is_symlink():
            raise UnsafeObject(f"{path}: a symbolic link is refused here")
    return path


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: str | os.PathLike[str]) -> None:
    """Flush all files and folders below a path, and the path's own entry, to disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(folder)
    sync_folder(Path(path).absolute().parent)
