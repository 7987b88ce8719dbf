"""What the pipeline raises, and what each error of the package means to a shell.

::

    PipelineError
     ├─ ConfigError     the job, a flag or an argument cannot be used as it stands      exit code 2
     ├─ JobFailed       a submitted job has ended with an error                         that error's code
     └─ Interrupted     a stop was asked for and the run ended after a whole round      exit code 130

    OSError of a place (no space, not writable, name too long), StoreRefused            exit code 2
    DataRefused                                                                         exit code 3
    UnsafeObject, CorruptObject, ManifestConflict, IdentityMismatch                     exit code 4
    ClusterError and what derives from it, StoreUnavailable                             exit code 5

Errors of storage and cluster keep their own types; `exit_code` maps them all.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from ..cluster.errors import ClusterError
from ..storage.errors import (
    CorruptObject,
    DataRefused,
    DestinationExists,
    IdentityMismatch,
    ManifestConflict,
    StorageError,
    StoreRefused,
    StoreUnavailable,
    UnsafeObject,
)

if TYPE_CHECKING:
    from typing import TypeGuard

    from ..storage.places import Place

OK, UNEXPECTED, USAGE, DATA, CHECKPOINT, CLUSTER, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


class PipelineError(Exception):
    """Base of the errors that the pipeline itself raises."""


class ConfigError(PipelineError, ValueError):
    """The job, a flag or an argument cannot be used as it stands; the message names it and the remedy."""


class JobFailed(PipelineError):
    """A job that was submitted has ended with an error.

    Attributes
    ----------
    code : int
        The exit code of that error.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        self.code = code
        super().__init__(message)


class DistortionWarning(UserWarning):
    """A model that promises to keep distances cannot, or is worse at it than a constant."""


class Interrupted(PipelineError):
    """A stop was asked for; the run ended after a committed round and can be resumed.

    Parameters
    ----------
    round : int
    run : Path, optional
    cancelled : str, optional
        By whom and when, if the stop was asked for by `bitfleet cancel`.

    Attributes
    ----------
    round : int
        The last committed round.
    run : Path, ObjectPath or None
        The run directory, None where the rounds were kept in memory.
    """

    def __init__(self, round: int, run: Place | None = None, cancelled: str | None = None) -> None:
        self.round = round
        self.run = run
        remedy = "nothing was kept on disk" if run is None else f"go on with: bitfleet resume {run}"
        how = "stopped" if cancelled is None else f"cancelled ({cancelled})"
        super().__init__(f"{how} after round {round}; {remedy}")


def exit_code(error: BaseException) -> int:
    """Return the exit code that stands for ``error``; 1 is an error that nobody foresaw."""
    if isinstance(error, JobFailed):
        return error.code
    for types, code in _EXIT_CODES:
        if isinstance(error, types):
            return code
    return USAGE if _of_a_place(error) else UNEXPECTED


def one_line(error: BaseException) -> str:
    """Return the error's message as one readable line; unforeseen errors also name their type."""
    said = _about_place(error) if _of_a_place(error) else str(error)
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    text = "; ".join(lines).replace(":; ", ": ")
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted: {text}" if text else "interrupted"
    if not text:
        return type(error).__name__
    return text if exit_code(error) != UNEXPECTED else f"{type(error).__name__}: {text}"


def printable(text: str) -> str:
    """Return text in which nothing commands a terminal: what does is shown as ``\\x1b`` and the like.

    Names, errors and metrics of a run may be a stranger's.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def _of_a_place(error: BaseException) -> TypeGuard[OSError]:
    """Tell an error of where something is to be read or written, as the operating system names it."""
    return isinstance(error, OSError) and error.errno in _PLACES


def _about_place(error: OSError) -> str:
    reason = os.strerror(error.errno or 0)
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    advice = "free some space" if error.errno in _FULL else "choose another place, or mend this one"
    return f"{where}{reason[:1].lower()}{reason[1:]}; {advice}, and give the same command again"


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PLACES = _FULL | {
    errno.ENOENT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EIO,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EMFILE,
    errno.ENFILE,
}

# The first match decides, so special types stand before the general ones that they derive from.
_EXIT_CODES: tuple[tuple[tuple[type[BaseException], ...], int], ...] = (
    ((Interrupted, KeyboardInterrupt), INTERRUPTED),
    ((DataRefused,), DATA),
    ((DestinationExists, StoreRefused), USAGE),
    ((StoreUnavailable,), CLUSTER),
    ((UnsafeObject, CorruptObject, ManifestConflict, IdentityMismatch, StorageError), CHECKPOINT),
    ((ClusterError,), CLUSTER),
    ((ConfigError, FileNotFoundError, NotADirectoryError, ImportError, ValueError), USAGE),
)
