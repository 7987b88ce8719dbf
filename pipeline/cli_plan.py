"""The verb that tells what a job will take: `bitfleet plan`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (read at run time)
from typing import Annotated, Any, Optional

import typer

from .cli_output import Output  # noqa: TC001  (read at run time)


def plan(
    output: Output,
    job: Annotated[Path, typer.Argument(help="A job file (TOML).", metavar="JOB")],
    rows: Annotated[
        Optional[int],  # noqa: UP045  (typer reads the annotation at run time)
        typer.Option(min=1, help="Plan for so many rows like the data's.", show_default="the data's"),
    ] = None,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--workers", min=0, help="Worker processes; 0: one process.", show_default="the job's"),
    ] = None,
    threads: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--threads", min=1, help="Threads of a worker.", show_default="the job's"),
    ] = None,
    memory_limit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--memory-limit", help='Of a worker, such as "4 GiB".', show_default="the job's"),
    ] = None,
    bandwidth: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help='A second, between workers, such as "1.25 GB".', show_default="1.25 GB"),
    ] = None,
    storage_bandwidth: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="A second, read by all workers together.", show_default="it keeps up"),
    ] = None,
    speed: Annotated[float, typer.Option(help="Of a core, beside this machine's.")] = 1.0,
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override the file; may be repeated."),
    ] = None,
) -> dict[str, Any]:
    """Tell what a job will take: rounds, bytes, memory and time, on this or other hardware.

    Goes through the first rounds with one block, for some seconds, and starts nothing.

    Example: `bitfleet plan job.toml --workers 100 --memory-limit "8 GiB"`
    """
    from .config import parse_assignment
    from .plan import plan as planned

    result = planned(
        job,
        rows=rows,
        workers=workers,
        threads=threads,
        memory_limit=memory_limit,
        bandwidth=_bytes(bandwidth),
        storage_bandwidth=_bytes(storage_bandwidth),
        speed=speed,
        settings=dict(parse_assignment(text) for text in settings or []),
    )
    output.table(result)
    return result


def _bytes(text: str | None) -> float | None:
    if text is None:
        return None
    from ..cluster.limits import n_bytes
    from .errors import ConfigError

    try:
        return float(n_bytes(text.removesuffix("/s").strip()))
    except ValueError:
        raise ConfigError(f'expected bytes a second, such as "1.25 GB", got {text!r}') from None
