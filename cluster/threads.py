"""One BLAS thread where bits depend on it.

SVD, QR and eigh differ bitwise between one and two BLAS threads, so all that a round adds up or solves runs
under `one_blas_thread`.  The limit is a property of the process: it is counted, so that tasks running beside
each other in one worker lift it only when the last of them has ended.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import threadpoolctl

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit every BLAS of this process to one thread; re-entrant and safe between threads."""
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()


@cache
def controller() -> Any:
    """Return this process's threadpoolctl controller; finding the libraries takes milliseconds, once."""
    # NumPy and SciPy each bring a BLAS of their own; a controller knows only what is loaded when it is made
    import scipy.linalg  # noqa: F401

    return threadpoolctl.ThreadpoolController()


class _CountedLimit:
    """A process-wide limit that is set by the first user and lifted by the last.

    Where BLAS keeps the number of threads per calling thread (OpenMP builds), each user sets its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._first: Any = None

    def enter(self) -> None:
        with self._lock:
            _release_control()
            limiter = controller().limit(limits=1, user_api="blas")
            if self._users == 0:
                self._first = limiter
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                _release_control()
                self._first.restore_original_limits()
                self._first = None
                _release_control()


def _release_control() -> None:
    """Let this thread set limits; threadpoolctl 3.7 and newer silently ignores all threads but one."""
    release = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


_LIMIT = _CountedLimit()
