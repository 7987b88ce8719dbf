"""What every verb of the command line shares: options, output and exit codes.

A verb is a function that returns its result as JSON-able values.  People read standard error; with ``--json``
the result, or the error, is the one thing on standard output.
"""

from __future__ import annotations

import functools
import inspect
import json
import signal
import sys
import traceback
import typing
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import OK, UNEXPECTED, exit_code, one_line, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .runs import Control

_SHARED: dict[str, Any] = {
    "json_": Annotated[bool, typer.Option("--json", help="Print one JSON result on standard output.")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Tell people nothing but errors.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")],
}


@dataclass
class Output:
    """Where a verb writes to; handed to it as its first argument.

    Attributes
    ----------
    json, quiet, debug : bool
        The shared options.
    code : int
        Exit code of a verb that ended without an exception.
    """

    json: bool = False
    quiet: bool = False
    debug: bool = False
    code: int = OK
    _note: Callable[[str], None] | None = field(default=None, repr=False)

    def note(self, text: str) -> None:
        """Tell people one thing."""
        if self.quiet:
            return
        if self._note is not None:
            self._note(text)
        else:
            print(printable(text), file=sys.stderr, flush=True)

    def table(self, rows: Mapping[str, Any]) -> None:
        """Show names and values to people."""
        width = max((len(name) for name in rows), default=0)
        for name, value in rows.items():
            if value is not None:
                self.note(f"{name:<{width}}  {_shown(value)}")

    def warn_of_compiling(self) -> None:
        """Tell whoever computes here for the first time why some steps will wait."""
        from ..tasks.kernels._numba import compiled_before

        if not self.quiet and not compiled_before():
            self.note(
                "the first use on this machine: kernels are compiled when they are needed, "
                "which takes a minute or two in all, once"
            )

    @contextmanager
    def following(self) -> Iterator[Control]:
        """Show the rounds of a run, and turn the first Ctrl-C or SIGTERM into a stop after a round."""
        from .interrupt import StopRequest
        from .progress import make_reporter
        from .runs import Control

        with make_reporter(quiet=self.quiet) as reporter, StopRequest(reporter.note) as stop:
            self._note = reporter.note
            self.warn_of_compiling()
            try:
                yield Control(reporter, reporter.note, stop)
            finally:
                self._note = None

    def finish(self, result: Any) -> None:
        """Print the result if it was asked for."""
        if self.json:
            print(json.dumps(result, default=_plain, allow_nan=False, sort_keys=True))

    def fail(self, error: BaseException) -> int:
        """Show an error as one line and return its exit code."""
        code = exit_code(error)
        if self.debug:
            traceback.print_exception(error)
        hint = "" if self.debug or code != UNEXPECTED else " (--debug shows where)"
        print(f"bitfleet: {printable(one_line(error))}{hint}", file=sys.stderr, flush=True)
        if self.json:
            described = {"type": type(error).__name__, "message": str(error), "exit_code": code}
            print(json.dumps({"error": described}))
        return code


def verb(app: typer.Typer, function: Callable[..., Any]) -> Callable[..., Any]:
    """Register ``function(output, ...)`` as a verb of ``app`` with the shared options added."""
    hints = typing.get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in _SHARED.items()
    ]
    parameters = [p.replace(annotation=hints[p.name], kind=p.KEYWORD_ONLY) for p in own] + shared

    @functools.wraps(function)
    def run(**values: Any) -> None:
        output = Output(values.pop("json_"), values.pop("quiet"), values.pop("debug"))
        raise typer.Exit(_run(function, output, values))

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    help_ = inspect.cleandoc(function.__doc__ or "")
    app.command(function.__name__.rstrip("_").replace("_", "-"), help=help_)(run)
    return function


def _run(function: Callable[..., Any], output: Output, values: dict[str, Any]) -> int:
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        output.finish(function(output, **values))
    except (Exception, KeyboardInterrupt) as error:
        return output.fail(error)
    finally:
        signal.signal(signal.SIGTERM, previous)
    return output.code


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    return f"{value:,}"


def _plain(value: Any) -> Any:
    """Turn what JSON does not know into what it does."""
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value")
