"""What near-isometric hashing and its column generation share: how they begin, and what they end with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..procrustes import random_orthonormal
from ..protocols import RoundState
from ..random import stream
from .base import Front, LinearMethod, integer

if TYPE_CHECKING:
    from ..protocols import Arrays, DataInfo

_COMPONENTS = 128
_KEPT = ("mean", "components", "weights", "calibration")


class NearIsometric(LinearMethod):
    """Base of methods that begin with ITQ on the leading components, and end with a calibration."""

    def wanted_components(self, info: DataInfo) -> int | float:
        """Return 128 or ``n_bits``, at most d, unless told otherwise."""
        if self.n_components is not None:
            return self.n_components
        return min(info.n_features, max(self.n_bits, _COMPONENTS))

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw the rotation from which ITQ begins."""
        width = min(self.n_bits, front.n_outputs)
        return {"rotation": random_orthonormal(stream(seed, "nibh.rotation"), width, self.n_bits)}

    def advance(self, state: RoundState, summary: Arrays) -> RoundState:
        """Return the next round's state; at the end without points, secants and the solver's own arrays."""
        following = super().advance(state, summary)
        if not self.done(following):
            return following
        kept = {name: array for name, array in following.arrays.items() if name in _KEPT}
        return RoundState(following.round, kept, following.scalars)

    def rounds_behind(self, state: RoundState) -> int:
        """Return how many of the method's own rounds have been made."""
        return state.round - integer(state, "first_round")
