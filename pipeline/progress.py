"""What people see while a run goes on: a live bar on a terminal, a line a round or a second in a log.

Everything is written to standard error, so that standard output stays free for results.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from .errors import printable
from .train import Event, RoundCommitted, RunFinished, RunStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from rich.progress import Progress, TaskID

#: Scalars whose names begin like this are what a person follows.
FOLLOWED = ("objective", "loss")
#: Seconds between the lines of a log; the first two rounds and the last always have one.
BETWEEN_LINES = 1.0


class Reporter(Protocol):
    """Shows events; a context manager, so that a terminal is left as it was found."""

    def __call__(self, event: Event) -> None:
        """Show one event."""
        ...

    def note(self, text: str) -> None:
        """Show a line of text."""
        ...

    def __enter__(self) -> Reporter: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def make_reporter(stream: TextIO | None = None, *, quiet: bool = False) -> Reporter:
    """Return the reporter that suits ``stream`` (standard error by default)."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        return SilentReporter()
    return TerminalReporter(stream) if stream.isatty() else LineReporter(stream)


def broadcast(*sinks: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return a function that hands each event to every sink, in order."""

    def emit(event: Event) -> None:
        for sink in sinks:
            sink(event)

    return emit


def describe(event: Event) -> str:
    """Return the event as one line of text."""
    match event:
        case RunStarted():
            where = "" if event.resumed_from is None else f", going on after round {event.resumed_from}"
            rows, features = counted(event.n_rows, "row"), counted(event.n_features, "feature")
            size = f"{rows} of {features} in {counted(event.n_leaves, 'block')}"
            return f"{event.method}: {size}{where}"
        case RoundCommitted():
            of = "" if event.rounds is None else f"/{event.rounds}"
            return "  ".join([f"round {event.round}{of}", *_shown(event.scalars), f"{event.seconds:.2f} s"])
        case RunFinished():
            return f"finished after round {event.round}, model {event.model[:12]}"


def followed(scalars: Mapping[str, Any]) -> dict[str, float]:
    """Return the scalars that a person follows: objectives and losses."""
    return {
        name: float(value)
        for name, value in scalars.items()
        if name.startswith(FOLLOWED) and isinstance(value, int | float) and abs(value) <= sys.float_info.max
    }


def counted(number: int, noun: str) -> str:
    """Return how many there are of something, such as ``1 block``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def number(value: float) -> str:
    """Return six figures or more, without an exponent where it would hide what changes."""
    return f"{value:,.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:,.6g}"


class SilentReporter:
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        """Drop the event."""

    def note(self, text: str) -> None:
        """Drop the text."""

    def __enter__(self) -> SilentReporter:
        return self

    def __exit__(self, *exception: object) -> None:
        return None


class LineReporter(SilentReporter):
    """Writes a line an event, leaving out rounds that follow too fast; what a log or a batch job wants."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._rounds = 0  # lines of rounds since the run began
        self._next = 0.0  # when the next round may have its line

    def __call__(self, event: Event) -> None:
        """Write the event as one line."""
        if isinstance(event, RoundCommitted):
            if self._rounds >= 2 and event.round != event.rounds and self._clock() < self._next:
                return
            self._rounds += 1
            self._next = self._clock() + BETWEEN_LINES
        else:
            self._rounds = 0
        self.note(describe(event))

    def note(self, text: str) -> None:
        """Write the text."""
        print(printable(text), file=self._stream, flush=True)


class TerminalReporter(SilentReporter):
    """Shows a live bar of rounds with the latest metrics."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress: Progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[metrics]}", markup=False),
            console=Console(file=stream, highlight=False),
        )
        self._bar: TaskID | None = None

    def __call__(self, event: Event) -> None:
        """Move the bar."""
        match event:
            case RunStarted():
                self.note(describe(event))
                self._bar = self._progress.add_task(
                    printable(event.method), total=event.rounds, completed=event.resumed_from or 0, metrics=""
                )
            case RoundCommitted():
                if self._bar is not None:
                    self._progress.update(
                        self._bar,
                        total=event.rounds,
                        completed=event.round,
                        metrics="  ".join(_shown(event.scalars)),
                    )
            case RunFinished():
                self.note(describe(event))

    def note(self, text: str) -> None:
        """Print the text above the bar."""
        self._progress.console.print(printable(text), markup=False)

    def __enter__(self) -> TerminalReporter:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()


def _shown(scalars: Mapping[str, Any]) -> list[str]:
    """Return what is told of a round: objective or loss, without the parts such as ``loss_codes``."""
    return [f"{name} {number(value)}" for name, value in followed(scalars).items() if name in FOLLOWED]
