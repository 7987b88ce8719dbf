"""Checks of hyper-parameters, called from ``__post_init__``; what passes is stored as plain Python values.

And the one that every encoder is made after: that training has ended.
"""

from __future__ import annotations

import math
from operator import index
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..protocols import RoundState
    from .base import LinearMethod
    from .sampled import SampledMethod


def check_common(method: LinearMethod, *, optional_bits: bool = False) -> None:
    """Check the fields that all linear methods have."""
    check_count(method, "n_bits", optional=optional_bits)
    if not isinstance(method.center, (bool, np.bool_)):
        raise ValueError(f"expected center to be True or False, got {method.center!r}")
    object.__setattr__(method, "center", bool(method.center))
    if isinstance(method.n_components, (float, np.floating)):
        check_share(method, "n_components")
    else:
        check_count(method, "n_components", optional=True)


def check_active(method: LinearMethod) -> None:
    """Check ``n_active`` of a sparse method against ``n_bits``."""
    check_count(method, "n_active")
    n_active = getattr(method, "n_active")  # noqa: B009
    if n_active >= method.n_bits:
        raise ValueError(f"expected n_active < n_bits = {method.n_bits}, got n_active={n_active}")


def check_finished(method: LinearMethod | SampledMethod, state: RoundState) -> None:
    """Refuse to make an encoder of a state whose training has not ended."""
    if not method.done(state):
        raise ValueError(
            f"{method.name} is not trained yet: round {state.round} is not its last; resume the run"
        )


def check_count(method: object, field: str, at_least: int = 1, *, optional: bool = False) -> None:
    """Check that a field is an integer (not a bool) of at least ``at_least`` and store it as plain int."""
    value = getattr(method, field)
    if optional and value is None:
        return
    try:
        number = index(value)
    except TypeError:
        number = at_least - 1
    if isinstance(value, bool) or number < at_least:
        raise ValueError(f"expected {field} to be an integer >= {at_least}, got {value!r}")
    object.__setattr__(method, field, number)


def check_choice(method: object, field: str, choices: tuple[str, ...]) -> None:
    """Check that a field is one of ``choices``."""
    value = getattr(method, field)
    if value not in choices:
        raise ValueError(f"expected {field} to be one of {', '.join(choices)}, got {value!r}")


def check_share(method: object, field: str, *, zero: bool = False) -> None:
    """Check that a field is a number in (0, 1] (or [0, 1] with ``zero``) and store it as plain float."""
    value = getattr(method, field)
    number = float(value) if isinstance(value, (int, float, np.number)) else math.nan
    if isinstance(value, bool) or not (0 < number <= 1 or (zero and number == 0)):
        raise ValueError(f"expected {field} to be in {'[' if zero else '('}0, 1], got {value!r}")
    object.__setattr__(method, field, number)


def check_number(method: object, field: str, *, above: bool, optional: bool = True) -> None:
    """Check that a field is a finite number, > 0 or >= 0 (or None), and store it as plain float."""
    value = getattr(method, field)
    if optional and value is None:
        return
    number = float(value) if isinstance(value, (int, float, np.number)) else -1.0
    if isinstance(value, bool) or not (0 <= number < np.inf) or (above and number == 0):
        raise ValueError(f"expected {field} to be a number {'>' if above else '>='} 0, got {value!r}")
    object.__setattr__(method, field, number)


def check_between(method: object, field: str, least: float, most: float) -> None:
    """Check that a field is a number in [least, most] and store it as plain float."""
    value = getattr(method, field)
    number = float(value) if isinstance(value, (int, float, np.number)) else math.nan
    if isinstance(value, bool) or not least <= number <= most:
        raise ValueError(f"expected {field} to be in [{least:g}, {most:g}], got {value!r}")
    object.__setattr__(method, field, number)
