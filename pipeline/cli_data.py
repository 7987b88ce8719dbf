"""The verbs of the command line on data, codes, results and files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from .cli_distortion import distortion
from .cli_export import export
from .cli_methods import methods
from .cli_output import Output  # noqa: TC001  (read at run time)
from .cli_place import Insecure, Scheduler, Workers, address, place
from .cli_search import describe, index, search
from .cli_stream import stream
from .errors import CHECKPOINT

Model = Annotated[
    Path, typer.Argument(help="A finished run, or a model's path.", metavar="RUN", parser=address)
]


def ingest(
    output: Output,
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Source files (several are taken as one), then the new data set.",
            metavar="SRC… DEST",
            parser=address,
        ),
    ],
    vectors: Annotated[Optional[str], typer.Option(help="Name of the vectors inside the file.")] = None,  # noqa: UP045
    labels: Annotated[Optional[str], typer.Option(help="Name of the labels, or a file of them.")] = None,  # noqa: UP045
    nonfinite: Annotated[
        str, typer.Option(help='What to do with NaN and infinity: "refuse" or "drop".')
    ] = "refuse",
    missing: Annotated[
        str, typer.Option(help='Chunks absent from a Zarr source: "refuse" or "fill".')
    ] = "refuse",
    chunk_rows: Annotated[Optional[int], typer.Option(min=1, help="Rows of a stored chunk.")] = None,  # noqa: UP045
) -> dict[str, Any]:
    """Turn npy, npz, idx, fvecs/bvecs/ivecs, HDF5, Parquet or Zarr files into a data set.

    Example: `bitfleet ingest train-images.idx3-ubyte.gz digits.zarr --labels train-labels.idx1-ubyte.gz`
    """
    from . import api
    from .errors import ConfigError

    if len(paths) < 2:
        (source,) = paths
        raise ConfigError(
            f"expected SRC… DEST, got {source} alone: name the data set to be made behind it, as in "
            f"bitfleet ingest {source} NEW.zarr"
        )
    *sources, dest = paths
    dataset = api.ingest(
        sources if len(sources) > 1 else sources[0],
        dest,
        vectors=vectors,
        labels=labels,
        nonfinite=nonfinite,
        missing=missing,
        chunk_rows=chunk_rows,
    )
    result = _about_dataset(dataset)
    output.table(result)
    return result


def encode(
    output: Output,
    run: Model,
    data: Annotated[Path, typer.Argument(help="The data set to encode.", metavar="DATA", parser=address)],
    codes: Annotated[Path, typer.Argument(help="The new codes.", metavar="CODES", parser=address)],
    scheduler: Scheduler = "serial",
    workers: Workers = None,
    insecure: Insecure = False,
    active: Annotated[bool, typer.Option("--active", help="Also write index lists of the ones.")] = False,
) -> dict[str, Any]:
    """Encode a data set with a trained model.

    Example: `bitfleet encode runs/posh digits.zarr codes.zarr`
    """
    from . import api
    from .model import load

    where = place(scheduler, workers, insecure)
    output.warn_of_compiling()
    result = _about_codes(api.encode_into(load(run), data, codes, where, active=active))
    output.table(result)
    return result


def fit_decoder(
    output: Output,
    run: Model,
    data: Annotated[Path, typer.Argument(help="The data set to fit it to.", metavar="DATA", parser=address)],
    model: Annotated[
        Path, typer.Argument(help="The new model, decoder included.", metavar="MODEL", parser=address)
    ],
    ridge: Annotated[
        float, typer.Option(min=0, help="Added to the counts of common bits; 0: pseudo-inverse.")
    ] = 1.0,
    scheduler: Scheduler = "serial",
    workers: Workers = None,
    insecure: Insecure = False,
) -> dict[str, Any]:
    """Fit a linear decoder to a model's codes, which `evaluate --refine` and `Model.decode` need.

    Example: `bitfleet fit-decoder runs/posh digits.zarr decoded.zarr`
    """
    from . import refine
    from .inspection import about_model
    from .model import load

    where = place(scheduler, workers, insecure)
    output.warn_of_compiling()
    fitted = refine.fit_decoder(load(run), data, ridge=ridge, scheduler=None if where.in_process else where)
    fitted.save(model)
    result = about_model(load(model))
    output.table(result)
    return result


def evaluate(
    output: Output,
    run: Model,
    data: Annotated[
        Path, typer.Argument(help="The data set that is searched.", metavar="DATA", parser=address)
    ],
    queries: Annotated[
        Path, typer.Argument(help="The data set of queries.", metavar="QUERIES", parser=address)
    ],
    metrics: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="With commas between: map@N, map_min@N, precision@N, recallK@R, overlap_map@K, kendall@K, "
            "gap@K; by default of labels and neighbours, of neighbours alone where there are no labels."
        ),
    ] = None,
    codes: Annotated[
        Path | None, typer.Option(help="Codes of DATA, if they are made already.", parser=address)
    ] = None,
    scheduler: Scheduler = "serial",
    workers: Workers = None,
    insecure: Insecure = False,
    seed: Annotated[int, typer.Option(min=0, help="Orders equal distances.")] = 0,
    refine: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Refine so many times the items by a decoder (see fit-decoder)."),
    ] = None,
    asymmetric: Annotated[
        bool, typer.Option("--asymmetric", help="Keep the real numbers of the queries.")
    ] = False,
    rescore: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Order so many times the items by their vectors."),
    ] = None,
    distance: Annotated[
        str, typer.Option("--distance", "--metric", help='Of vectors: "euclidean" or "cosine".')
    ] = "euclidean",
) -> dict[str, Any]:
    """Measure how well codes retrieve labelled rows and true neighbours; a run keeps the result.

    Example: `bitfleet evaluate runs/posh digits.zarr queries.zarr --metrics map@1000,recall10@100 --json`
    """
    from .run_job import evaluate_run

    output.warn_of_compiling()
    result = evaluate_run(
        run,
        data,
        queries,
        None if metrics is None else tuple(metrics.split(",")),
        codes=codes,
        where=place(scheduler, workers, insecure),
        seed=seed,
        distance=distance,
        refine=refine,
        asymmetric=asymmetric,
        rescore=rescore,
    )
    output.table({entry["name"]: entry["value"] for entry in result["metrics"]})
    return result


def inspect(
    output: Output,
    path: Annotated[
        Path, typer.Argument(help="A run, model, data set or codes.", metavar="PATH", parser=address)
    ],
) -> dict[str, Any]:
    """Tell what a path holds: kind, sizes, digests, configuration.

    Example: `bitfleet inspect runs/posh`
    """
    from .inspection import inspect_path

    result = inspect_path(path)
    output.table(result)
    return result


def verify(
    output: Output,
    path: Annotated[
        Path, typer.Argument(help="A run, model, data set or codes.", metavar="PATH", parser=address)
    ],
) -> dict[str, Any]:
    """Read every byte of a run, model, data set or codes and compare digests; exit code 4 if any is wrong.

    Example: `bitfleet verify runs/posh`
    """
    from .inspection import verify_path

    problems = verify_path(path)
    for problem in problems:
        output.note(problem)
    output.note(f"{path}: " + (f"{len(problems)} problems" if problems else "clean"))
    output.code = CHECKPOINT if problems else output.code
    return {"path": str(path), "clean": not problems, "problems": problems}


def clean(
    output: Output,
    run: Annotated[Path, typer.Argument(help="The run directory.", metavar="RUN", parser=address)],
    grace: Annotated[float, typer.Option(min=0, help="Seconds that unfinished files must be old.")] = 3600.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be removed.")] = False,
) -> dict[str, Any]:
    """Remove what killed drivers left behind in a run; committed rounds are never touched.

    Example: `bitfleet clean runs/posh --dry-run`
    """
    from ..storage.clean import clean_run

    removed = clean_run(run, grace_seconds=grace, dry_run=dry_run)
    for name in removed:
        output.note(("would remove " if dry_run else "removed ") + name)
    output.note(f"{run}: {len(removed)} unfinished files and attempts")
    return {"path": str(run), "removed": removed, "dry_run": dry_run}


def report(
    output: Output,
    run: Annotated[Path, typer.Argument(help="The run directory.", metavar="RUN", parser=address)],
    beside: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(metavar="RUN", help="Another run on the same page; may be repeated.", parser=address),
    ] = None,
    dest: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The file to write.", show_default="report.html in the run", parser=address),
    ] = None,
) -> dict[str, Any]:
    """Write the run's report.html: metrics, learning curve, retrieved examples, provenance.

    Example: `bitfleet report runs/posh --beside runs/itq`
    """
    from .report import write_report

    result = {"run": str(run), "report": str(write_report(run, beside=beside or (), dest=dest))}
    output.table(result)
    return result


def demo(
    output: Output,
    dest: Annotated[Path, typer.Option(help="A new folder for everything that the demo makes.")] = Path(
        "demo-run"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier demo there.")] = False,
) -> dict[str, Any]:
    """Train, encode, evaluate and report on the digits that come with the package; takes a minute or two.

    Example: `bitfleet demo --dest demo-run`
    """
    from .demo_run import run_demo

    with output.following() as control:
        return {"report": str(run_demo(dest, force=force, control=control))}


VERBS = (
    encode, fit_decoder, index, search, describe, export, stream, evaluate, distortion, inspect, verify,
    clean, report, methods, demo,
)  # fmt: skip


def _about_dataset(dataset: Any) -> dict[str, Any]:
    from .inspection import about_dataset

    return about_dataset(dataset)


def _about_codes(codes: Any) -> dict[str, Any]:
    from .inspection import about_codes

    return about_codes(codes)
