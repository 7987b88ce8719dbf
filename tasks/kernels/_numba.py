"""The one door to numba: lazy import, cache on the local disk, fallback to NumPy with one warning.

Compiled code is cached below the machine's temporary folder: it is local to the node, never shared
between machines or users. numba itself keys it by source file, processor and its own version. Since a
cache holds code, the folder must belong to this user alone; otherwise nothing is cached.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

_F = TypeVar("_F", bound=Callable[..., Any])
_LOCK = threading.Lock()


def engine() -> str:
    """Return ``"numba"`` or ``"numpy"``: which kernels run in this process."""
    return "numpy" if loops() is None else "numba"


@functools.cache
def loops() -> ModuleType | None:
    """Import the compiled loops; None where numba is absent or broken."""
    try:
        return importlib.import_module(f"{__package__}.compiled")
    except ImportError as error:
        warnings.warn(
            f"numba cannot be imported ({error}); the slower NumPy kernels run, install numba for speed",
            RuntimeWarning,
            stacklevel=3,
        )
        return None


def compiled_before() -> bool:
    """Tell whether this user has any compiled kernels on this machine, so that not all must be made first."""
    from numba import config

    folder = config.CACHE_DIR or cache_folder()
    return folder is not None and next(Path(folder).rglob("*.nbi"), None) is not None


def jit(function: _F | None = None, *, uses: tuple[str, ...] = (), **options: Any) -> Any:
    """Compile with numba at the first call: no fastmath unless asked for, GIL released, cached if safe.

    numba keeps compiled code as long as the file of the function itself is the same.  ``uses`` names the
    other modules of this package that the code comes from, so that it is compiled afresh when they change.
    """
    if function is None:
        return functools.partial(jit, uses=uses, **options)
    import numba

    dispatcher = numba.njit(nogil=True, **options)(function)
    _enable_cache(dispatcher, uses)
    return dispatcher


def one_form(array: Any, dtype: Any = None) -> Any:
    """Return the array in C order and read-only, so that kernels are compiled for one form of each type."""
    array = np.ascontiguousarray(array, dtype).view()
    array.flags.writeable = False
    return array


def _enable_cache(dispatcher: Any, uses: tuple[str, ...]) -> None:
    """Let numba keep the compiled code in our folder, or in the one that its user has chosen."""
    from numba import config

    with _LOCK:
        chosen = config.CACHE_DIR
        folder = chosen or cache_folder()
        if folder and uses:
            folder = Path(folder, _digest_of(uses))
        if not folder or not hasattr(dispatcher, "enable_caching"):
            return
        try:
            config.CACHE_DIR = str(folder)
            dispatcher.enable_caching()
        except (OSError, RuntimeError):  # nothing writable, or a source without a file: compile each time
            pass
        finally:
            config.CACHE_DIR = chosen


@functools.cache
def _digest_of(modules: tuple[str, ...]) -> str:
    """Return a name for the content of some modules of this package."""
    digest = hashlib.sha256()
    for name in modules:
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def cache_folder() -> Path | None:
    """Return this user's private cache folder, created with mode 0700; None if it cannot be had safely."""
    if not hasattr(os, "getuid"):
        return None
    folder = Path(tempfile.gettempdir()) / f"bitfleet-kernels-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if private else None
