"""All methods by name: ours, a line each, and entry points of the group ``bitfleet.methods``."""

from __future__ import annotations

import difflib
from dataclasses import is_dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .protocols import Method

GROUP = "bitfleet.methods"

METHODS = {  # name: module:class, imported when it is asked for
    "sign": "sign:Sign",
    "lsh": "lsh:LSH",
    "itq": "itq:ITQ",
    "knnh": "knnh:KNNH",
    "ssbc": "ssbc:SSBC",
    "nystrom": "nystrom:Nystrom",
    "isohash": "isohash:IsoHash",
    "spectral_hashing": "spectral_hashing:SpectralHashing",
    "mdsh": "mdsh:MDSH",
    "eigenfunction_ssh": "eigenfunction_ssh:EigenfunctionSSH",
    "cbe": "cbe:CBE",
    "sklsh": "sklsh:SKLSH",
    "agh": "agh:AGH",
    "klsh": "klsh:KLSH",
    "shd": "shd:SHD",
    "bre": "bre:BRE",
    "nibh": "nibh:NIBH",
    "nibh_cg": "nibh_cg:NIBHCG",
    "fruit_fly": "fruitfly:FruitFly",
    "biohash": "biohash:BioHash",
    "spherical_hash": "spherical_hash:SphericalHash",
    "posh": "posh:POSH",
    "pursuit_hash": "pursuit_hash:PursuitHash",
    "sparse_coding": "sparse_coding:SparseCoding",
    "bosl": "bosl:BOSL",
}


def names() -> list[str]:
    """Return the names of all methods, ours first, then those of entry points."""
    return [*METHODS, *sorted({point.name for point in entry_points(group=GROUP)} - METHODS.keys())]


def get(name: str) -> type[Method]:
    """Return the method's class.

    Raises
    ------
    ValueError
        If there is no such method (the message lists the names and the nearest one), or what another
        package offers under this name is none or cannot be imported.
    """
    if name in METHODS:
        module, _, cls = METHODS[name].partition(":")
        method: type[Method] = getattr(import_module(f".methods.{module}", __package__), cls)
        return method
    for point in entry_points(group=GROUP, name=name):
        return _loaded(point)
    close = difflib.get_close_matches(str(name).lower(), names(), n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown method {name!r}, expected one of {', '.join(names())}{hint}")


def _loaded(point: EntryPoint) -> type[Method]:
    try:
        cls: Any = point.load()
    except Exception as error:
        raise ValueError(f"the method {point.name!r} of {point.value} cannot be imported: {error}") from error
    fits = isinstance(cls, type) and is_dataclass(cls) and hasattr(cls, "accumulator")
    if not fits:
        raise ValueError(f"{point.value}, offered as the method {point.name!r}, is no dataclass of a method")
    method: type[Method] = cls
    return method
