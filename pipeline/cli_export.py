"""The verb that writes files for other programs: `bitfleet export`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (read at run time)
from typing import Annotated, Any, Optional

import typer

from .cli_output import Output  # noqa: TC001  (read at run time)
from .cli_place import address


def export(
    output: Output,
    path: Annotated[
        Path, typer.Argument(help="Codes, a stream, a model or a run.", metavar="PATH", parser=address)
    ],
    dest: Annotated[Path, typer.Argument(help="The new file.", metavar="FILE")],
    format: Annotated[
        Optional[str],  # noqa: UP045  (typer reads the annotation at run time)
        typer.Option(
            help="numpy (.npy), parquet (.parquet), faiss (.faiss) or pgvector (.csv) of codes; "
            "encoder (.npz), card (.md) or card-json (.json) of models.",
            show_default="what the end of FILE says",
        ),
    ] = None,
    ids: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Names of the codes: an npy file of integers or texts.", show_default="0, 1, …"),
    ] = None,
) -> dict[str, Any]:
    """Write codes or a model as a file for others: Faiss, PostgreSQL, Parquet, NumPy; or a model card.

    Example: `bitfleet export codes.zarr codes.parquet`

    Example: `bitfleet export runs/posh card.md`
    """
    from .export import export as write

    names = None if ids is None else _read_ids(ids)
    result = {"from": str(path), "file": str(write(path, dest, format, ids=names))}
    result["bytes"] = dest.stat().st_size  # type: ignore[assignment]
    output.table(result)
    return result


def _read_ids(path: Path) -> Any:
    import numpy as np

    from .errors import ConfigError

    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ConfigError(f"{path} is no npy file of integers or texts: {error}") from None
