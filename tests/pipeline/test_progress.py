"""What people see of a run."""

from __future__ import annotations

import io

import pytest
from bitfleet.pipeline.progress import (
    LineReporter,
    SilentReporter,
    TerminalReporter,
    broadcast,
    describe,
    followed,
    make_reporter,
)
from bitfleet.pipeline.train import Event, RoundCommitted, RunFinished, RunStarted

EVENTS: list[Event] = [
    RunStarted("itq", 60_000, 784, 8, None, 2),
    RoundCommitted(1, 2, {"loss": 12.25, "seed": 0}, 0.5),
    RoundCommitted(2, 2, {"loss": 11.0, "seed": 0}, 0.25),
    RunFinished(2, "ab" * 32),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines() -> None:
    stream = io.StringIO()
    with make_reporter(stream) as reporter:
        assert isinstance(reporter, LineReporter)
        for event in EVENTS:
            reporter(event)
        reporter.note("that is all")
    assert stream.getvalue().splitlines() == [
        "itq: 60,000 rows of 784 features in 8 blocks",
        "round 1/2  loss 12.25  0.50 s",
        "round 2/2  loss 11  0.25 s",
        "finished after round 2, model abababababab",
        "that is all",
    ]


def test_unknown_totals_and_resumed_runs() -> None:
    assert describe(RoundCommitted(7, None, {}, 1.0)) == "round 7  1.00 s"
    text = describe(RunStarted("lsh", 1, 2, 1, 5, None))
    assert text == "lsh: 1 row of 2 features in 1 block, going on after round 5"


def test_a_terminal_shows_a_bar_and_is_left_alone_afterwards() -> None:
    stream = Terminal()
    with make_reporter(stream) as reporter:
        assert isinstance(reporter, TerminalReporter)
        for event in EVENTS:
            reporter(event)
    text = stream.getvalue()
    assert "2/2" in text
    assert "loss 11" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is shown again


def test_a_bar_ends_where_a_stop_left_it() -> None:
    stream = Terminal()

    def stopped() -> None:
        with make_reporter(stream) as reporter:
            reporter(EVENTS[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert stream.getvalue().endswith("\x1b[?25h")


def test_quiet() -> None:
    stream = Terminal()
    with make_reporter(stream, quiet=True) as reporter:
        assert isinstance(reporter, SilentReporter)
        for event in EVENTS:
            reporter(event)
        reporter.note("x")
    assert stream.getvalue() == ""


def test_only_objectives_and_losses_are_followed() -> None:
    scalars = {"loss": 1, "loss_codes": 2.5, "objective": float("inf"), "seed": 3, "phase": "train"}
    assert followed(scalars) == {"loss": 1.0, "loss_codes": 2.5}


def test_broadcast_keeps_order() -> None:
    seen: list[tuple[int, Event]] = []
    emit = broadcast(lambda e: seen.append((1, e)), lambda e: seen.append((2, e)))
    for event in EVENTS[:2]:
        emit(event)
    assert seen == [(1, EVENTS[0]), (2, EVENTS[0]), (1, EVENTS[1]), (2, EVENTS[1])]
