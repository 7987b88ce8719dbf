"""What a finished model that promises to keep distances says of its own distortion, and of its doubts."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from ..tasks.distortion import doubts
from .errors import DistortionWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..tasks.protocols import Method


def facts(scalars: Mapping[str, Any], n_bits: int) -> dict[str, float]:
    """Return δ, δ of the best nondecreasing prediction, T, M* and the bound, as far as a state knows them.

    Parameters
    ----------
    scalars : mapping
        Of a finished state.
    n_bits : int
    """
    if "distortion_constant" not in scalars:
        return {}
    names = {
        "delta": "distortion", "delta_monotone": "distortion_monotone", "constant_T": "distortion_constant",
        "critical_bits": "least_bits", "lower_bound": "distortion_bound",
    }  # fmt: skip
    found = {told: float(scalars[name]) for told, name in names.items() if name in scalars}
    return found | {"n_bits": float(n_bits)}


def misgivings(scalars: Mapping[str, Any], n_bits: int) -> tuple[str, ...]:
    """Return in sentences what makes a model's distortion through the origin useless or unattainable."""
    found = facts(scalars, n_bits)
    if "delta" not in found:
        return ()
    critical, bound = found.get("critical_bits", math.inf), found.get("lower_bound", 0.0)
    return doubts(found["delta"], found["constant_T"], n_bits, critical, bound)


def tell_misgivings(
    method: Method, scalars: Mapping[str, Any], note: Callable[[str], None] | None = None
) -> tuple[str, ...]:
    """Tell a caller who asked for the least distortion through the origin what he has got.

    Parameters
    ----------
    method : Method
    scalars : mapping
        Of its finished state.
    note : callable, optional
        Tells people; a `DistortionWarning` if there is none.
    """
    if getattr(method, "preset", "paper") != "paper":  # calibrated models do not promise it
        return ()
    said = misgivings(scalars, getattr(method, "n_bits", 0))
    for sentence in said:
        if note is None:
            warnings.warn(f"{method.name}: {sentence}", DistortionWarning, stacklevel=5)
        else:
            note(f"warning: {sentence}")
    return said
