"""Where a verb works and where things are: what most verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

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


def address(text: str) -> Any:
    """Return a path as given on the command line: `pathlib.Path`, or an address in an object store."""
    from ..storage.errors import StorageError
    from ..storage.places import is_remote
    from ..storage.places import place as at

    try:
        return at(text) if is_remote(text) else Path(text)
    except StorageError:  # told by the verb: an error of this function would be shown with the text
        return Path(text)


def place(scheduler: str, workers: int | None, insecure: bool = False) -> Where:
    """Return where to work; asking for workers asks for a local cluster."""
    from .executors import choose

    placed = "local" if workers is not None and scheduler == "serial" else scheduler
    return choose(placed, n_workers=workers, insecure=insecure or None)
