"""All methods by name: ours, a line each, and entry points of the group ``bitfleet.methods``."""

from __future__ import annotations

import difflib
from dataclasses import is_dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from .methods.agh import AGH
from .methods.biohash import BioHash
from .methods.bosl import BOSL
from .methods.bre import BRE
from .methods.cbe import CBE
from .methods.eigenfunction_ssh import EigenfunctionSSH
from .methods.fruitfly import FruitFly
from .methods.isohash import IsoHash
from .methods.itq import ITQ
from .methods.klsh import KLSH
from .methods.knnh import KNNH
from .methods.lsh import LSH
from .methods.mdsh import MDSH
from .methods.nibh import NIBH
from .methods.nibh_cg import NIBHCG
from .methods.nystrom import Nystrom
from .methods.posh import POSH
from .methods.pursuit_hash import PursuitHash
from .methods.shd import SHD
from .methods.sign import Sign
from .methods.sklsh import SKLSH
from .methods.sparse_coding import SparseCoding
from .methods.spectral_hashing import SpectralHashing
from .methods.spherical_hash import SphericalHash
from .methods.ssbc import SSBC

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .protocols import Method

GROUP = "bitfleet.methods"

METHODS: dict[str, type[Method]] = {
    "sign": Sign,
    "lsh": LSH,
    "itq": ITQ,
    "knnh": KNNH,
    "ssbc": SSBC,
    "nystrom": Nystrom,
    "isohash": IsoHash,
    "spectral_hashing": SpectralHashing,
    "mdsh": MDSH,
    "eigenfunction_ssh": EigenfunctionSSH,
    "cbe": CBE,
    "sklsh": SKLSH,
    "agh": AGH,
    "klsh": KLSH,
    "shd": SHD,
    "bre": BRE,
    "nibh": NIBH,
    "nibh_cg": NIBHCG,
    "fruit_fly": FruitFly,
    "biohash": BioHash,
    "spherical_hash": SphericalHash,
    "posh": POSH,
    "pursuit_hash": PursuitHash,
    "sparse_coding": SparseCoding,
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
        If there is no such method (the message lists the names and the nearest one), or what another
        package offers under this name is none or cannot be imported.
    """
    if name in METHODS:
        return METHODS[name]
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
