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
    number,
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


def test_rounds_that_follow_fast_share_a_line() -> None:
    stream = io.StringIO()
    now = 0.0
    reporter = LineReporter(stream, clock=lambda: now)
    reporter(RunStarted("itq", 5, 2, 1, None, 8))
    for round, now in enumerate([0.0, 0.1, 0.5, 1.0, 1.2, 2.0, 2.1, 2.15], 1):  # noqa: B007
        reporter(RoundCommitted(round, 8, {}, 0.0))
    told = [line.split()[1] for line in stream.getvalue().splitlines()[1:]]
    assert told == ["1/8", "2/8", "5/8", "8/8"]


def test_large_numbers_show_what_changes() -> None:
    text = describe(RoundCommitted(1, 2, {"objective": 3413467.3, "objective_codes": 3413600.0}, 1.0))
    assert text == "round 1/2  objective 3,413,467  1.00 s"
    assert [number(x) for x in (0.000123456, 12.5, 123456.7, 2.5e20, -4e6)] == [
        "0.000123456",
        "12.5",
        "123,457",
        "2.5e+20",
        "-4,000,000",
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
