"""Iterative quantisation (Gong and Lazebnik, 2011): rotate principal components towards a cube's corners.

With V the rows' principal components (n, r) and R a rotation (r, b), minimise over codes and R

    loss = ‖B - V R‖² / n,   B in {-1, 1},   R Rᵀ = I,

by turns: ``B = sign(V R)``, then R from the Procrustes problem of ``M = Vᵀ B``. A round adds up M and
``‖V‖²`` over the data, which is all that the loss needs, because R preserves lengths::

    loss = b + (‖V‖² - 2 tr(Rᵀ M)) / n

Both half steps can only lower it. With more bits than components R has orthonormal rows and is wider
than high.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..kernels.signs import as_signs
from ..procrustes import orthogonal_factor, random_orthonormal
from ..random import stream
from ..sums import Sums, refuse_infinite
from .base import TILE_ROWS, Front, LinearMethod, front_of, integer
from .checks import check_common, check_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..protocols import Accumulator, Arrays, Block, DataInfo, JSONScalar, LeafPlan, RoundState


@dataclass(frozen=True)
class ITQ(LinearMethod):
    """Signs of rotated principal components.

    Parameters
    ----------
    n_bits : int, default 64
    n_iter : int, default 50
        Rotations learned, one pass over the data each.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components, or the share of variance they must explain; at most, and by default,
        ``min(n_bits, d)``.

    Notes ----- Every round records ``loss_codes`` (new codes, old rotation) and ``loss`` (same codes,
    new rotation). All training is in float64. Directions without variance (constant features, fewer
    rows than bits) get an arbitrary but reproducible rotation.
    """

    n_bits: int = 64
    n_iter: int = 50
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "itq"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_common(self)
        check_count(self, "n_iter")

    def wanted_components(self, info: DataInfo) -> int | float:
        """Return ``min(n_bits, d)`` unless told otherwise."""
        return self.most_components(info) if self.n_components is None else self.n_components

    def most_components(self, info: DataInfo) -> int:
        """Return ``min(n_bits, d)``: a rotation cannot make fewer bits than components."""
        return min(self.n_bits, info.n_features)

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw the first rotation."""
        rng = stream(seed, "itq.rotation")
        return {"weights": random_orthonormal(rng, front.n_outputs, self.n_bits)}

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Add up ``Vᵀ sign(V R)``."""
        return Projected(front_of(state), state.arrays["weights"])

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Solve the Procrustes problem of the summed correlation."""
        old, correlation = state.arrays["weights"], summary["correlation"]
        new = orthogonal_factor(correlation) if correlation.any() else old
        losses: dict[str, JSONScalar] = {
            "loss_codes": self._loss(summary, old),
            "loss": self._loss(summary, new),
        }
        return {"weights": new}, losses

    def trained(self, state: RoundState) -> bool:
        """Tell whether ``n_iter`` rotations have been learned."""
        return state.round - integer(state, "first_round") >= self.n_iter

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return ``n_iter``."""
        return self.n_iter

    def train_flop(self, state: RoundState) -> int:
        """Count the products with components and rotation, and the correlation."""
        return 2 * state.arrays["components"].size + 4 * state.arrays["weights"].size

    def _loss(self, summary: Arrays, rotation: np.ndarray) -> float:
        agreement = float(np.sum(rotation * summary["correlation"]))
        return self.n_bits + (float(summary["square"]) - 2 * agreement) / int(summary["count"])


class Correlation(Sums):
    """Accumulator of ``M = Vᵀ sign(V R)``, ``‖V‖²`` and the number of rows."""

    def __init__(self, front: Front, rotation: np.ndarray) -> None:
        self.front = front
        self.rotation = rotation

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        return {
            "correlation": np.zeros(self.rotation.shape),
            "square": np.zeros(()),
            "count": np.zeros((), np.int64),
        }

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        return self._add(state, self.front.tiles(self.coordinates(block), np.float64), len(block.rows))

    def _add(
        self, state: dict[str, np.ndarray], tiles: Iterable[np.ndarray], n: int
    ) -> dict[str, np.ndarray]:
        correlation, square = state["correlation"].copy(), float(state["square"])
        for rows in tiles:
            correlation += rows.T @ as_signs(rows @ self.rotation)
            square += float(np.einsum("ij,ij->", rows, rows))
        count = state["count"] + n
        return {
            "correlation": correlation,
            "square": np.array(square),
            "count": np.array(count, np.int64),
        }

    def coordinates(self, block: Block) -> np.ndarray:
        """Return what is rotated of a block, before it is seen from the mean and components."""
        return block.vectors

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums; refuse what is not finite."""
        refuse_infinite(state, "square")
        return state


class Projected(Correlation):
    """The same, of rows whose coordinates can be kept from round to round: the rotation alone changes."""

    @property
    def prepared_by(self) -> tuple[bytes, bytes]:
        """What the coordinates depend on beside the block."""
        components = self.front.components
        return self.front.mean.tobytes(), b"" if components is None else components.tobytes()

    def prepare(self, block: Block) -> np.ndarray:
        """Return the coordinates of a block, float64, shape (m, r)."""
        coordinates = np.empty((len(block.rows), self.front.n_outputs))
        start = 0
        for rows in self.front.tiles(block.vectors, np.float64):
            coordinates[start : start + len(rows)] = rows
            start += len(rows)
        return coordinates

    def add(self, state: dict[str, np.ndarray], prepared: np.ndarray) -> dict[str, np.ndarray]:
        """Add rows by their coordinates, in the tiles in which `update` adds them."""
        starts = range(0, len(prepared), TILE_ROWS)
        return self._add(state, (prepared[i : i + TILE_ROWS] for i in starts), len(prepared))
