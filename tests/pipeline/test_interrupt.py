"""The first signal asks, the second ends at once, and the caller's handlers come back."""

from __future__ import annotations

import os
import signal

import pytest
from bitfleet.pipeline.interrupt import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_asks_second_raises(number: signal.Signals) -> None:
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    said: list[str] = []
    with StopRequest(said.append) as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        assert len(said) == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)} == before
