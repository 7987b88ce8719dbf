"""Which process wrote something, and whether it has ended: as far as this machine can tell.

A number alone may be another process's by now, or one of another machine or container. So a process is named
by the boot of the machine, the process numbers that it lives among, its own number and when it started. Where
the system does not tell these (it does on Linux, in ``/proc``), nothing is claimed.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_STATE, _STARTED = 0, 19  # places in /proc/PID/stat behind the name
_ENDED = frozenset("ZXx")  # a zombie has ended, too


def this_process() -> str | None:
    """Return the name of this process, None if the system does not tell."""
    where, facts = _here(), _facts(os.getpid())
    if where is None or facts is None:
        return None
    return f"{where}/{os.getpid()}/{facts[_STARTED]}"


def has_ended(name: object) -> bool:
    """Tell whether a named process lived here and is no more; False where that cannot be known."""
    if not isinstance(name, str) or name.count("/") != 3:
        return False
    boot, numbers, pid, started = name.split("/")
    if not pid.isdigit() or f"{boot}/{numbers}" != _here():
        return False
    facts = _facts(int(pid))
    if facts is None:
        return not _exists(int(pid))
    return facts[_STATE] in _ENDED or facts[_STARTED] != started


def _exists(pid: int) -> bool:
    """Tell whether there is such a process, though its facts may be hidden from this user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _here() -> str | None:
    """Return what numbers of processes are numbers of."""
    try:
        boot = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text("ascii").strip()
        return f"{boot}/{(_PROC / 'self' / 'ns' / 'pid').stat().st_ino}"
    except (OSError, ValueError):
        return None


def _facts(pid: int) -> list[str] | None:
    """Return what the system says of a process, behind its name; None if there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    facts = text.rpartition(")")[2].split()
    return facts if len(facts) > _STARTED else None
