"""What methods there are, as a table: ours, and those that installed packages offer."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

from ..tasks import registry
from .errors import ConfigError
from .validation import plain


def list_methods() -> list[dict[str, Any]]:
    """Return a row for each method.

    Returns
    -------
    list of dict
        ``name``, ``class``, ``codes`` ("dense" or "sparse"), ``package``, ``parameters`` (with defaults),
        ``about`` (a line), and ``error``: None, or why a package's method cannot be imported.
    """
    rows = []
    for name in registry.names():
        try:
            rows.append(_row(name) | {"error": None})
        except ValueError as error:
            empty = dict.fromkeys(("class", "codes", "package", "parameters", "about"), "")
            rows.append({"name": name, **empty, "error": str(error)})
    return rows


def describe_method(name: str) -> dict[str, Any]:
    """Return one row with the whole ``description``; `ConfigError` if there is no such method."""
    try:
        row = _row(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return row | {"description": inspect.getdoc(registry.get(name)) or ""}


def markdown_table() -> str:
    """Return the table as Markdown."""
    lines = ["| name | class | codes | parameters | |", "|---|---|---|---|---|"]
    for row in list_methods():
        parameters = ", ".join(f"`{key}={value!r}`" for key, value in dict(row["parameters"] or {}).items())
        about = row["about"] or row["error"]
        package = "" if row["package"] in ("", "bitfleet") else f" (package {row['package']})"
        lines.append(
            f"| `{row['name']}` | `{row['class']}` | {row['codes']} | {parameters} | {about}{package} |"
        )
    return "\n".join(lines) + "\n"


def _row(name: str) -> dict[str, Any]:
    cls: Any = registry.get(name)
    return {
        "name": name,
        "class": cls.__name__,
        "codes": "sparse" if cls.sparse else "dense",
        "package": cls.__module__.partition(".")[0],
        "parameters": {f.name: plain(f.default) for f in fields(cls) if f.init},
        "about": (inspect.getdoc(cls) or "").partition("\n")[0],
    }
