"""Spectral hashing (Weiss, Torralba and Fergus, 2008): eigenfunctions on a box of principal components.

If rows were spread evenly over a box with sides R_j along the principal components, the functions that
change least between near rows would be

    Φ_jq(x) = cos(ω (v_j - min_j)),     ω = q π / R_j,     q = 1, 2, …

with v_j the j-th component, by rising ω. Bit by bit the code is ``Φ >= 0`` of the b lowest ω (equal ones by
component). The sides come from one more pass over the data, for the least and the largest of each
component.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..arc_encoder import ArcEncoder
from ..kernels.exact import fixed_product
from .base import Front, LinearMethod, front_of, integer
from .checks import check_common, check_finished

if TYPE_CHECKING:
    from ..protocols import Accumulator, Arrays, Block, DataInfo, JSONScalar, LeafPlan, RoundState


@dataclass(frozen=True)
class SpectralHashing(LinearMethod):
    """Signs of the lowest eigenfunctions of a box around the data.

    Parameters
    ----------
    n_bits : int, default 64
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components, or the share of variance they must explain; at most, and by default,
        ``min(n_bits, d)``.
    """

    n_bits: int = 64
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "spectral_hashing"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_common(self)

    def wanted_components(self, info: DataInfo) -> int | float:
        """Return ``min(n_bits, d)`` unless told otherwise."""
        return self.most_components(info) if self.n_components is None else self.n_components

    def most_components(self, info: DataInfo) -> int:
        """Return ``min(n_bits, d)``: of more components no eigenfunction would be taken."""
        return min(self.n_bits, info.n_features)

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Begin without eigenfunctions."""
        return {}

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Find the box."""
        return Box(front_of(state))

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Take the lowest eigenfunctions of the box."""
        components, modes = lowest_modes(summary["largest"] - summary["least"], self.n_bits)
        weights = np.zeros((front_of(state).n_outputs, self.n_bits))
        frequencies = np.zeros(self.n_bits)  # in turns
        sides = (summary["largest"] - summary["least"])[components]
        np.divide(modes, 2 * sides, out=frequencies, where=sides > 0)
        weights[components, np.arange(self.n_bits)] = frequencies
        offset = -frequencies * summary["least"][components]
        return {"weights": weights, "offset": offset}, {}

    def trained(self, state: RoundState) -> bool:
        """Tell whether the box is known."""
        return state.round - integer(state, "first_round") >= 1

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return one."""
        return 1

    def encoder(self, state: RoundState) -> ArcEncoder:  # type: ignore[override]
        """Return the encoder of a finished state."""
        check_finished(self, state)
        front, weights = front_of(state), state.arrays["weights"]
        assert front.components is not None
        projection = fixed_product(np.ascontiguousarray(front.components), weights)
        return ArcEncoder(front.mean, projection, state.arrays["offset"], np.full(self.n_bits, 0.25))


def lowest_modes(sides: np.ndarray, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return component and mode number q of the ``n_bits`` lowest ``q / side``; equal ones by component.

    Components without extent have no eigenfunctions; where none has any, the first stands for all.
    """
    there = np.flatnonzero(sides > 0)
    if not len(there):
        return np.zeros(n_bits, np.int64), np.ones(n_bits)
    modes = np.arange(1, n_bits + 1)
    values = (modes[:, None] / sides[there]).ravel()
    components = np.tile(there, n_bits)
    numbers = np.repeat(modes, len(there))
    order = np.lexsort((components, values))[:n_bits]
    return components[order], numbers[order].astype(np.float64)


class Box:
    """Accumulator of the least and the largest of each coordinate."""

    sequential: ClassVar[bool] = False

    def __init__(self, front: Front) -> None:
        self.front = front

    def init(self) -> dict[str, np.ndarray]:
        """Return the bounds of no rows."""
        width = self.front.n_outputs
        return {"least": np.full(width, np.inf), "largest": np.full(width, -np.inf)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block; NaN stays."""
        for rows in self.front.tiles(block.vectors, np.float64):
            found = {"least": rows.min(axis=0), "largest": rows.max(axis=0)}
            state = self.merge(state, found)
        return state

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Take the outer bounds."""
        return {
            "least": np.minimum(left["least"], right["least"]),
            "largest": np.maximum(left["largest"], right["largest"]),
        }

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the bounds; refuse what is not finite."""
        if not all(np.isfinite(array).all() for array in state.values()):
            raise ValueError("expected finite vectors, but some hold NaN, infinity or huge numbers")
        return state
