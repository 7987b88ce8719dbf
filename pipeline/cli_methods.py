"""The verb that lists what can be trained: `bitfleet methods`."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from .cli_output import Output  # noqa: TC001  (read at run time)


def methods(
    output: Output,
    name: Annotated[
        Optional[str],  # noqa: UP045  (typer reads the annotation at run time)
        typer.Argument(help="The one to describe.", metavar="METHOD", show_default="all"),
    ] = None,
) -> dict[str, Any]:
    """List the methods, those of other packages too, with their parameters; or describe one.

    Example: `bitfleet methods posh`
    """
    from .methods_table import describe_method, list_methods

    if name is not None:
        found = describe_method(name)
        output.note(found["description"])
        output.table({"package": found["package"], **found["parameters"]})
        return found
    table = list_methods()
    shown = {row["name"]: f"{row['codes']:<6}  {row['about'] or row['error']}" for row in table}
    output.table(shown)
    return {"methods": table}
