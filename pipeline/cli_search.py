"""The verbs of the command line that look at codes: search, and what their bits are used for."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (read at run time)
from typing import Annotated, Any, Optional

import typer

from .cli_output import Output  # noqa: TC001  (read at run time)
from .cli_place import Insecure, Scheduler, Workers, address, place

_SHOWN, _QUERIES = 10, 20


def search(
    output: Output,
    codes: Annotated[
        Path,
        typer.Argument(
            help="The codes that are searched, a stream, or an index.", metavar="CODES", parser=address
        ),
    ],
    queries: Annotated[
        Path,
        typer.Argument(
            help="Codes; with --model, or of a stream, a data set to encode first.",
            metavar="QUERIES",
            parser=address,
        ),
    ],
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="How many to find for each query.")] = 10,
    model: Annotated[
        Path | None, typer.Option(help="The run or model that made the codes.", parser=address)
    ] = None,
    asymmetric: Annotated[
        bool, typer.Option("--asymmetric", help="Keep the real numbers of the queries; needs --model.")
    ] = False,
    rescore: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="The data set of the codes: order candidates by its vectors; needs --model.", parser=address
        ),
    ] = None,
    oversample: Annotated[int, typer.Option(min=1, help="Candidates for each result, if rescored.")] = 4,
    metric: Annotated[str, typer.Option(help='Of rescoring: "euclidean" or "cosine".')] = "euclidean",
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write arrays `distances` and `ids` to this npz file, which must not exist."),
    ] = None,
    scheduler: Scheduler = "serial",
    workers: Workers = None,
    insecure: Insecure = False,
) -> dict[str, Any]:
    """Find the nearest codes of every query.

    Example: `bitfleet search codes.zarr queries.zarr --k 10 --model runs/itq --out found.npz`
    """
    from .errors import ConfigError
    from .search import search as find

    if out is not None and out.exists():
        raise ConfigError(f"{out} exists; choose another name or remove it")
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"there is no folder {out.parent} for {out.name}; make it first")
    where = place(scheduler, workers, insecure)
    output.warn_of_compiling()
    distances, ids = find(
        codes,
        queries,
        k,
        model=model,
        asymmetric=asymmetric,
        rescore=rescore,
        oversample=oversample,
        metric=metric,
        scheduler=None if where.in_process else where,
    )
    result: dict[str, Any] = {"codes": str(codes), "queries": len(ids), "k": ids.shape[1]}
    if out is None:
        result |= {"ids": ids.tolist(), "distances": distances.tolist()}
        output.note("query  its nearest rows (their distances)")
        shown = zip(ids[:_QUERIES], distances[:_QUERIES], strict=True)
        output.table({f"{q:>5}": _line(*row) for q, row in enumerate(shown)})
        if len(ids) > _QUERIES:
            output.note(f"… {len(ids) - _QUERIES:,} more queries: --out FILE.npz or --json has all")
    else:
        _write(out, ids, distances)
        result["out"] = str(out)
        output.table(result)
    return result


def index(
    output: Output,
    run: Annotated[
        Path,
        typer.Argument(help="A run or model of sparse codes, with a decoder.", metavar="RUN", parser=address),
    ],
    data: Annotated[Path, typer.Argument(help="The data set to index.", metavar="DATA", parser=address)],
    dest: Annotated[Path, typer.Argument(help="The new index.", metavar="INDEX", parser=address)],
    metric: Annotated[str, typer.Option(help="euclidean or cosine.")] = "euclidean",
) -> dict[str, Any]:
    """Keep sparse codes in the fewest bytes, for `search` by real queries.

    Example: `bitfleet index runs/coder vectors.zarr index.zarr --metric cosine`
    """
    from .active_index import ActiveIndex
    from .model import load

    found = ActiveIndex(load(run), metric=metric).add(data)
    found.save(dest)
    result = {"index": str(dest), "rows": found.n_rows, "bytes_a_row": found.n_bytes, "metric": found.metric}
    output.table(result)
    return result


def describe(
    output: Output,
    codes: Annotated[
        Path, typer.Argument(help="Codes that are finished, or a stream.", metavar="CODES", parser=address)
    ],
    scheduler: Scheduler = "serial",
    workers: Workers = None,
    insecure: Insecure = False,
) -> dict[str, Any]:
    """Tell how well codes use their bits.

    Example: `bitfleet describe codes.zarr --json`
    """
    from .describe import describe_codes

    where = place(scheduler, workers, insecure)
    found = describe_codes(codes, scheduler=None if where.in_process else where)
    result = {"codes": str(codes)} | found.to_dict()
    output.table(result)
    return result


def _line(ids: Any, distances: Any) -> str:
    pairs = zip(ids[:_SHOWN].tolist(), distances[:_SHOWN].tolist(), strict=True)
    return "  ".join(f"{row} ({distance:g})" for row, distance in pairs) + (
        "  …" if len(ids) > _SHOWN else ""
    )


def _write(out: Path, ids: Any, distances: Any) -> None:
    import numpy as np

    with out.open("xb") as file:
        try:
            np.savez(file, ids=ids, distances=distances)
        except BaseException:  # no space, or interrupted: half a file is none
            out.unlink()
            raise
