"""Where a verb works: the options that most verbs share, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from .executors import Where

Scheduler = Annotated[
    str,
    typer.Option(
        help='"serial" (this process), "local" (a cluster on this machine), an address (tls://…), or '
        "a launcher that Dask's configuration knows, such as slurm"
    ),
]
Workers = Annotated[
    Optional[int],  # noqa: UP045  (typer reads the annotation at run time)
    typer.Option("--workers", min=1, help="Start this many local workers."),
]

Insecure = Annotated[
    bool,
    typer.Option("--insecure-cluster", help="Trust a scheduler beyond this machine that is not encrypted."),
]


def place(scheduler: str, workers: int | None, insecure: bool = False) -> Where:
    """Return where to work; asking for workers asks for a local cluster."""
    from .executors import choose

    placed = "local" if workers is not None and scheduler == "serial" else scheduler
    return choose(placed, n_workers=workers, insecure=insecure or None)
