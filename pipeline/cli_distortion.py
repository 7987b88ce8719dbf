"""The verb of the command line that certifies distortion."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (read at run time)
from typing import Annotated, Any, Optional

import typer

from .cli_output import Output  # noqa: TC001  (read at run time)
from .cli_place import Insecure, Scheduler, Workers, address, place

_SHOWN = (
    "fit", "delta", "scale", "offset", "n_pairs", "certified", "coverage", "constant_T", "critical_bits",
    "lower_bound",
)  # fmt: skip


def distortion(
    output: Output,
    codes: Annotated[Path, typer.Argument(help="The codes.", metavar="CODES", parser=address)],
    data: Annotated[
        Path, typer.Argument(help="The data set that they were made of.", metavar="DATA", parser=address)
    ],
    fit: Annotated[
        str, typer.Option(help='How distances are predicted: "scale" (λh), "affine" or "monotone".')
    ] = "scale",
    target: Annotated[str, typer.Option(help='Of distances, "euclidean", or "sqeuclidean".')] = "euclidean",
    pairs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Look at so many pairs drawn at random instead of all."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the pairs drawn.")] = 0,
    checkpoint: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="A folder in which the pass is kept, to go on after an interruption."),
    ] = None,
    scheduler: Scheduler = "serial",
    workers: Workers = None,
    insecure: Insecure = False,
) -> dict[str, Any]:
    """Tell how far Hamming distances are from true ones at worst, exactly, over all pairs of rows.

    Example: `bitfleet distortion codes.zarr digits.zarr --fit affine --checkpoint runs/pass`
    """
    from .distortion import max_distortion

    where = place(scheduler, workers, insecure)
    output.warn_of_compiling()
    found = max_distortion(
        codes,
        data,
        fit,
        target=target,
        pairs=pairs,
        seed=seed,
        checkpoint=checkpoint,
        scheduler=None if where.in_process else where,
    )
    result = found.summary()
    output.table({name: result[name] for name in _SHOWN if result[name] is not None})
    for warning in found.warnings:
        output.note(f"warning: {warning}")
    return result
