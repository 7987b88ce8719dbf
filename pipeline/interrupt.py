"""A first Ctrl-C (or SIGTERM) asks for a stop, a second one ends at once.

Only the command line installs this: a library does not touch its caller's signals.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """While entered, remembers the first signal and raises KeyboardInterrupt on the second.

    Calling the object tells whether a stop was asked for.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._asked = False
        self._previous: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        """Tell whether a stop was asked for."""
        return self._asked

    def __enter__(self) -> StopRequest:
        self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: object) -> None:
        if self._asked:
            raise KeyboardInterrupt("stopped at once; the rounds committed before are kept, see resume")
        self._asked = True
        self._announce("stopping after the current round; once more stops at once")
