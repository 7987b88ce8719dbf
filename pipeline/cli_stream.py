"""The verb of the command line that codes a stream."""

from __future__ import annotations

import inspect
from pathlib import Path  # noqa: TC003  (read at run time)
from typing import Annotated, Any, Optional

import typer

from .cli_output import Output  # noqa: TC001  (read at run time)
from .cli_place import address


def stream(
    output: Output,
    source: Annotated[
        Path,
        typer.Argument(
            help="A Zarr array that is appended to, a folder that files are moved into, or s3://bucket/prefix.",
            metavar="SOURCE",
            parser=address,
        ),
    ],
    dest: Annotated[
        Path,
        typer.Argument(
            help="Where codes and state are kept, a folder or an address.", metavar="STREAM", parser=address
        ),
    ],
    n_bits: Annotated[Optional[int], typer.Option(help="Code length.")] = None,  # noqa: UP045
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any parameter of ssbc, such as n_anchors=2000; repeatable."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same rows and seed, same bits.")] = 0,
    vectors: Annotated[Optional[str], typer.Option(help="Name of the vectors inside the source.")] = None,  # noqa: UP045
    first_rows: Annotated[
        int, typer.Option(min=1, help="Rows to wait for; the anchors are among them.")
    ] = 4096,
    block_rows: Annotated[int, typer.Option(min=1, help="Most rows coded and committed at a time.")] = 8192,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more rows until interrupted.")] = False,
    poll: Annotated[float, typer.Option(min=0.01, help="Seconds between two looks at the source.")] = 1.0,
    ended: Annotated[
        bool, typer.Option("--ended", help="The source has ended: take a last chunk that is not full.")
    ] = False,
    rebase: Annotated[
        bool,
        typer.Option("--rebase", help="First code all rows again by the directions that are best now."),
    ] = False,
    allow_environment_change: Annotated[
        bool,
        typer.Option("--allow-environment-change", help="Go on with other libraries or another processor."),
    ] = False,
) -> dict[str, Any]:
    """Code rows that arrive over time; the same command goes on after any interruption.

    Example: `bitfleet stream incoming.zarr stream --n-bits 64 --follow`
    """
    from .config import parse_assignment
    from .errors import ConfigError
    from .interrupt import StopRequest
    from .stream import stream as code

    params = dict(parse_assignment(text) for text in settings or [])
    if n_bits is not None:
        params["n_bits"] = n_bits
    own = inspect.signature(code).parameters
    reserved = sorted(params.keys() & {"mode", *own})
    if reserved:
        raise ConfigError(f"{reserved[0]} is no parameter of a stream's method; see bitfleet stream --help")
    with StopRequest(output.note) as stop:
        streamed = code(
            source,
            dest,
            seed=seed,
            first_rows=first_rows,
            block_rows=block_rows,
            vectors=vectors,
            ended=ended,
            follow=follow,
            rebase=rebase,
            poll=poll,
            should_stop=stop,
            note=output.note,
            allow_environment_change=allow_environment_change,
            **params,
        )
    if streamed is None:
        result: dict[str, Any] = {"stream": str(dest), "rows": 0, "waiting_for": first_rows}
    else:
        result = {
            "stream": str(dest),
            "rows": streamed.n_rows,
            "provisional": streamed.n_provisional,
            "model": streamed.model.digest,
            **{f"monitor.{key}": value for key, value in streamed.monitor.items()},
        }
    output.table(result)
    return result
