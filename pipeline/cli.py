"""The command line: `bitfleet VERB …`.

Here are the verbs around training; those on data, codes and results are in `cli_data`, those on jobs that run
elsewhere in `cli_jobs`.  Modules that take
long to import are imported where they are used, so that ``--help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from . import cli_data, cli_jobs, cli_plan, cli_sweep
from .cli_output import Output, verb
from .cli_place import Insecure, address

if TYPE_CHECKING:
    from collections.abc import Callable

    from .executors import Where
    from .model import Model

app = typer.Typer(
    name="bitfleet",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Data = Annotated[
    Path, typer.Argument(help="A data set, as `bitfleet ingest` makes it.", metavar="DATA", parser=address)
]
Run = Annotated[Path, typer.Argument(help="The run directory.", metavar="RUN", parser=address)]
_WHERE = '"local" (workers on this machine), "serial" (this process), an address (tls://…), or a launcher'
Scheduler = Annotated[
    Optional[str],  # noqa: UP045  (typer reads the annotation at run time)
    typer.Option(help=_WHERE, show_default="local"),
]
SchedulerOfRun = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--scheduler", help=_WHERE, show_default="as the run was started"),
]
Workers = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--workers", min=1, help="Workers of a cluster that is started."),
]
Memory = Annotated[Optional[str], typer.Option(help='Of each worker, such as "2 GiB".')]  # noqa: UP045
Changed = Annotated[
    bool,
    typer.Option("--allow-environment-change", help="Go on with other libraries or another processor."),
]
Settings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Any parameter of the method, such as n_iter=20; may be repeated."
    ),
]


def train(
    output: Output,
    data: Data,
    run: Run,
    method: Annotated[str, typer.Option(help="Such as posh, itq, lsh; `bitfleet methods` lists all.")],
    n_bits: Annotated[Optional[int], typer.Option(help="Code length.")] = None,  # noqa: UP045
    n_active: Annotated[Optional[int], typer.Option(help="Ones per sparse code.")] = None,  # noqa: UP045
    settings: Settings = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same bits.")] = 0,
    scheduler: Scheduler = None,
    workers: Workers = None,
    memory_limit: Memory = None,
    insecure: Insecure = False,
    block_rows: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Rows of a block.", show_default="32 MiB of them"),
    ] = None,
    fan_in: Annotated[int, typer.Option(min=2, help="Sums merged at a time.")] = 8,
    preprocess_on: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Take mean and PCA from this data set.", parser=address),
    ] = None,
    allow_environment_change: Changed = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be done, and the memory that it takes.")
    ] = False,
) -> dict[str, Any]:
    """Train a method in a run directory; if the run is there already, go on with it.

    Example: `bitfleet train digits.zarr runs/posh --method posh --n-bits 1024 --n-active 64 --workers 2`
    """
    from . import runs
    from .config import build_method, parse_assignment
    from .opening import foresee

    params = dict(parse_assignment(text) for text in settings or [])
    params |= {k: v for k, v in {"n_bits": n_bits, "n_active": n_active}.items() if v is not None}
    built = build_method(method, params)
    where = _where("local" if scheduler is None else scheduler, workers, memory_limit, insecure)
    if dry_run:
        plan = foresee(data, built, seed=seed, block_rows=block_rows, fan_in=fan_in, where=where)
        output.table(plan)
        return plan
    with output.following() as control:
        model = runs.start(
            data,
            run,
            built,
            where=where,
            seed=seed,
            block_rows=block_rows,
            fan_in=fan_in,
            preprocess_on=preprocess_on,
            allow_environment_change=allow_environment_change,
            control=control,
        )
    return _trained(output, run, model)


def resume(
    output: Output,
    run: Run,
    scheduler: SchedulerOfRun = None,
    workers: Workers = None,
    memory_limit: Memory = None,
    insecure: Insecure = False,
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Where the data is, if it has moved.", parser=address),
    ] = None,
    allow_environment_change: Changed = False,
) -> dict[str, Any]:
    """Go on with an interrupted run, to the same bits; a finished run is left as it is.

    Example: `bitfleet resume runs/posh`
    """
    from . import runs

    given = scheduler is not None or workers is not None or memory_limit is not None
    where = (
        _where("local" if scheduler is None else scheduler, workers, memory_limit, insecure)
        if given
        else None
    )
    with output.following() as control:
        model = runs.resume(
            run,
            where=where,
            data=data,
            allow_environment_change=allow_environment_change,
            control=control,
        )
    return _trained(output, run, model)


def run_(
    output: Output,
    job: Annotated[Path, typer.Argument(help="A job file (TOML).", metavar="JOB")],
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override the file; may be repeated."),
    ] = None,
    allow_environment_change: Changed = False,
) -> dict[str, Any]:
    """Do all that a job file says: train, encode, evaluate, report.  What is done already is not done again.

    Example: `bitfleet run job.toml --set method.n_bits=256`
    """
    from .config import load_job, parse_assignment
    from .run_job import run_job

    content = load_job(job, dict(parse_assignment(text) for text in settings or []))
    with output.following() as control:
        result = run_job(content, control=control, allow_environment_change=allow_environment_change)
    output.table({k: v for k, v in result.items() if not isinstance(v, dict)} | result.get("metrics", {}))
    return result


def _where(scheduler: str, workers: int | None, memory_limit: str | None, insecure: bool) -> Where:
    from .executors import choose

    return choose(scheduler, n_workers=workers, memory_limit=memory_limit, insecure=insecure or None)


def _trained(output: Output, run: Path, model: Model) -> dict[str, Any]:
    result = {
        "run": str(run),
        "model": str(model.path),
        "digest": model.digest,
        "method": model.method.name,
        "n_bits": model.n_bits,
        "round": model.state.round,
    }
    output.table(result)
    return result


def _print_version(asked: bool) -> None:
    if asked:
        from .. import __version__

        print(f"bitfleet {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Learn compact binary codes for vectors, on one machine or many, and prove how good they are.

    Start with `bitfleet demo`, or: ingest, train, encode, evaluate, report.

    Exit codes: 0 done, 2 wrong usage, 3 data refused, 4 corrupt or another run's, 5 cluster or store lost,
    130 interrupted (go on with resume), 1 anything else.
    """


_VERBS: tuple[Callable[..., Any], ...] = (
    cli_data.ingest, train, resume, run_, cli_plan.plan, *cli_jobs.VERBS, cli_sweep.sweep, *cli_data.VERBS,
)  # fmt: skip
for _verb in _VERBS:
    verb(app, _verb)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
