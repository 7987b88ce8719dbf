"""How a sparse method switches on its bits once its directions are learned.

``"wta"``
    The largest scores: the published methods.
``"greedy"``
    One bit after another, each taking what it explains from the scores of the others (`tasks.pursuit`).
    Directions are brought to length one for that, since a bit's share is that of a unit atom; zero vectors,
    centres without rows, stay zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..pursuit import MOST_BETA, PursuitEncoder, usual_beta
from ..unit import unit_rows
from .base import front_of
from .checks import check_between, check_choice

if TYPE_CHECKING:
    from ..protocols import Encoder, RoundState
    from .posh import POSH
    from .spherical_hash import SphericalHash

ASSIGNMENTS = ("wta", "greedy")


def check_assign(method: POSH | SphericalHash) -> None:
    """Check the fields ``assign`` and ``beta``, which only "greedy" has a use for."""
    check_choice(method, "assign", ASSIGNMENTS)
    if method.beta is not None:
        if method.assign == "wta":
            raise ValueError(f"beta={method.beta} is of no use to assign='wta'; take assign='greedy'")
        check_between(method, "beta", 0.0, MOST_BETA)


def encoder_of(method: POSH | SphericalHash, state: RoundState, winners: Encoder) -> Encoder:
    """Return ``winners``, the encoder by winner-take-all, or one of the same directions by greedy pursuit."""
    if method.assign == "wta":
        return winners
    front, atoms = front_of(state), unit_rows(state.arrays["weights"])[0]
    beta = usual_beta(method.n_active) if method.beta is None else method.beta
    return PursuitEncoder(front.mean, front.components, atoms, method.n_active, beta)
