"""The verb that compares: `bitfleet sweep`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (read at run time)
from typing import Annotated, Any, Optional

import typer

from .cli_output import Output  # noqa: TC001  (read at run time)
from .errors import OK, UNEXPECTED


def sweep(
    output: Output,
    job: Annotated[Path, typer.Argument(help="A sweep file (TOML).", metavar="SWEEP")],
    scheduler: Annotated[
        Optional[str],  # noqa: UP045  (typer reads the annotation at run time)
        typer.Option(help='"serial", "local", an address or a launcher.', show_default="what the sweep says"),
    ] = None,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--workers", min=1, help="Workers of a cluster that is started."),
    ] = None,
) -> dict[str, Any]:
    """Compare methods, code lengths, seeds and data sets; the same command goes on after any interruption.

    Cells that cannot be computed are named and make the exit code 1; the others are done.

    Example: `bitfleet sweep sweep.toml --workers 2`
    """
    from .executors import choose
    from .sweep import sweep as compare

    chosen: Any = scheduler
    if workers is not None:
        chosen = choose("local" if scheduler is None else scheduler, n_workers=workers)
    with output.following() as control:
        table = compare(job, scheduler=chosen, note=output.note, should_stop=control.should_stop)
    output.code = UNEXPECTED if table.attrs["failed"] else OK
    advice = [str(text) for text in table.attrs["recommendations"]]
    for text in advice:
        output.note(text)
    return {
        "cells": int(table.attrs["n_cells"]),
        "done": int(table.attrs["n_done"]),
        "recommendations": advice,
        "failed": list(table.attrs["failed"]),
    }
