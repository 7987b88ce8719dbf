"""The verbs of the command line on jobs that run elsewhere: submit, status, watch, cancel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from .cli_output import Output  # noqa: TC001  (read at run time)
from .cli_place import Insecure, address

Run = Annotated[Path, typer.Argument(help="The run directory.", metavar="RUN", parser=address)]


def submit(
    output: Output,
    job: Annotated[Path, typer.Argument(help="A job file (TOML).", metavar="JOB")],
    scheduler: Annotated[
        Optional[str],  # noqa: UP045  (typer reads the annotation at run time)
        typer.Option(help="The cluster's scheduler: tcp://… / tls://…", show_default="what the job says"),
    ] = None,
    insecure: Insecure = False,
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override the file; may be repeated."),
    ] = None,
    allow_environment_change: Annotated[
        bool,
        typer.Option("--allow-environment-change", help="Go on with other libraries or another processor."),
    ] = False,
) -> dict[str, Any]:
    """Hand a job over to a cluster and return; follow it with watch or status, end it with cancel.

    Example: `bitfleet submit job.toml --scheduler tls://head:8786`
    """
    from .config import parse_assignment
    from .job import submit as hand_over

    there = hand_over(
        job,
        scheduler=scheduler,
        insecure=insecure,
        settings=dict(parse_assignment(text) for text in settings or []),
        allow_environment_change=allow_environment_change,
    )
    output.note(f"submitted; follow it with: bitfleet watch {there.run}")
    return {"run": str(there.run)}


def status(output: Output, run: Run) -> dict[str, Any]:
    """Tell how a run is doing: running, finished, failed or interrupted, its round and latest metrics.

    Example: `bitfleet status runs/posh --json`
    """
    from .job import Job

    return _told(output, run, Job(run).status())


def watch(
    output: Output,
    run: Run,
    poll: Annotated[float, typer.Option(min=0.01, help="Seconds between two looks at the run.")] = 1.0,
) -> dict[str, Any]:
    """Follow a run until it ends, wherever it computes; Ctrl-C ends the watching, not the run.

    With --json every event is a line, and the last line is what `status` prints.

    Example: `bitfleet watch runs/posh`
    """
    from .job import Job
    from .progress import make_reporter
    from .recording import as_event

    job = Job(run)
    with make_reporter(quiet=output.quiet) as reporter:
        for event in job.follow(poll=poll):
            if output.json:
                print(json.dumps(event, allow_nan=False, sort_keys=True), flush=True)
            if (shown := as_event(event)) is not None:
                reporter(shown)
            elif event["kind"] == "stage":
                reporter.note(f"stage: {event.get('stage')}")
    found = job.status()
    output.code = job.exit_code(found)
    return _told(output, run, found)


def cancel(output: Output, run: Run) -> dict[str, Any]:
    """Ask a run's driver, wherever it is, to stop after the round at hand; the run can be resumed.

    Example: `bitfleet cancel runs/posh`
    """
    from .job import Job

    job = Job(run)
    asked = job.cancel()
    state = job.status()["state"]
    output.note(
        "asked to stop after the round at hand" if asked else f"no driver is at work: {run} is {state}"
    )
    return {"path": str(run), "asked": asked, "state": state}


VERBS = (submit, status, watch, cancel)


def _told(output: Output, run: Path, found: dict[str, Any]) -> dict[str, Any]:
    from .progress import followed

    result = {"path": str(run), **found, "metrics": followed(found["metrics"])}
    told = {k: v for k, v in result.items() if not isinstance(v, dict) and k != "rate"}
    output.table(told | {"rounds/s": result["rate"]} | result["metrics"])
    return result
