"""All methods by name: ours, a line each, and entry points of the group ``bitfleet.methods``."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from .methods.bosl import BOSL
from .methods.fruitfly import FruitFly
from .methods.itq import ITQ
from .methods.lsh import LSH
from .methods.posh import POSH

if TYPE_CHECKING:
    from .protocols import Method

GROUP = "bitfleet.methods"

METHODS: dict[str, type[Method]] = {
    "lsh": LSH,
    "itq": ITQ,
    "fruit_fly": FruitFly,
    "posh": POSH,
    "bosl": BOSL,
}


def names() -> list[str]:
    """Return the names of all methods, ours first, then those of entry points."""
    return [*METHODS, *sorted({point.name for point in entry_points(group=GROUP)} - METHODS.keys())]


def get(name: str) -> type[Method]:
    """Return the method's class.

    Raises
    ------
    ValueError
        If there is no such method; the message lists the names and the nearest one.
    """
    if name in METHODS:
        return METHODS[name]
    for point in entry_points(group=GROUP, name=name):
        return point.load()
    close = difflib.get_close_matches(str(name).lower(), names(), n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown method {name!r}, expected one of {', '.join(names())}{hint}")
