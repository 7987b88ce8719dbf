"""Nyström codes: rotated principal components of a kernel's features from sampled columns.

With anchors and affinities as `ssbc` has them and K the anchors' centred affinities to each other, the
Nyström features of row x are ``f(x) = (w(x) - μ) K^(-1/2)`` (Drineas and Mahoney, 2005: ``G ≈ C K⁺ Cᵀ``
with columns C): their inner products approximate those of the kernel. Their principal components over all
rows come from the same sum as SSBC's directions,

    S = Σ_x (w(x) - μ)ᵀ (w(x) - μ),     T = K^(-1/2),     (Tᵀ S T) p = λ p,

and ITQ rotates the ``n_bits`` leading ones, of rows drawn by the seed, to the corners of a cube.

Signs of Nyström features without the rotation, from the anchors' eigenvectors alone, are SSBC with
``sketch_rows="train"``: scaling a direction turns no sign.

Rounds: those of SSBC, one to gather coordinates of the drawn rows, and ``n_iter`` rotations of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.linalg

from ..procrustes import orthogonal_factor, random_orthonormal
from ..protocols import LeafPlan, RoundState
from ..random import stream
from .base import data_info, integer
from .checks import check_count
from .knnh import AveragedCorrelation
from .ssbc import SSBC, affinities_of, leading
from .ssbc_sums import check_finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..affinity import Affinities
    from ..gram import Sketch
    from ..protocols import Accumulator, Arrays, Block, BlockAddress, JSONScalar

_RIDGE = 1e-6  # of the anchors' largest eigenvalue: smaller ones are noise that K^(-1/2) would blow up
MAX_STATE = 2**25


@dataclass(frozen=True)
class Nystrom(SSBC):
    """Signs of rotated principal components of Nyström features.

    Parameters
    ----------
    n_bits : int, default 64
    n_anchors : int, default 1000
        Columns sampled.
    sketch_size : int, optional
        As of `SSBC`; by default ``n_anchors``: the sum is exact.
    sigma : float or "auto"
        "auto" is 4 times the mean distance of a row to its nearest anchor; wider than SSBC's, since a
        rotation wants components of many directions.
    center : bool, default True
        Subtract the mean affinities of a sample.
    drop_first : int, default 0
        Leading components left out.
    sketch_rows : {"all", "train"}
    sketch_dtype : {"float64", "float32"}
    n_train : int, default 10000
        Rows, drawn by the seed, from which the rotation is learned; all where there are not so many.
    n_iter : int, default 50
        Rotations learned.

    Notes
    -----
    Every round of the rotation records ``loss``, as ITQ does.
    """

    n_bits: int = 64
    n_anchors: int = 1000
    sketch_size: int | None = None
    sigma: float | str = "auto"
    center: bool = True
    sketch_rows: str = "all"
    drop_first: int = 0
    sketch_dtype: str = "float64"
    mode: ClassVar[str] = "streaming"  # type: ignore[misc]
    n_train: int = 10_000
    n_iter: int = 50
    auto: ClassVar[float] = 4.0
    name: ClassVar[str] = "nystrom"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "n_train")
        check_count(self, "n_iter")
        if self.n_train * self.n_bits > MAX_STATE:
            raise ValueError(
                f"n_train={self.n_train:,} rows of {self.n_bits} numbers are more than a state may hold, "
                f"{MAX_STATE:,}; take n_train={MAX_STATE // self.n_bits} or less"
            )

    def blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return the leaves of the data, of drawn rows alone, or of the gathered coordinates."""
        phase = state.scalars["phase"]
        if phase == "gather":
            return [plan.leaf(i) for i in np.unique(self._drawn(state) // plan.block_rows).tolist()]
        if phase == "rotate":
            return LeafPlan(len(state.arrays["coordinates"]), plan.block_rows, plan.fan_in).leaves()
        return super().blocks(state, plan)

    def accumulator(self, state: RoundState) -> Accumulator:
        """Do as SSBC; then gather, and correlate as ITQ does."""
        phase = state.scalars["phase"]
        if phase == "gather":
            return GatherCoordinates(affinities_of(state), state.arrays["directions"], self._drawn(state))
        if phase == "rotate":
            return AveragedCorrelation(state.arrays["coordinates"], state.arrays["rotation"])
        return super().accumulator(state)

    def advance(self, state: RoundState, summary: Arrays) -> RoundState:
        """Do as SSBC; then keep coordinates, or learn the next rotation."""
        phase = state.scalars["phase"]
        if phase == "gather":
            arrays = {**state.arrays, "coordinates": summary["coordinates"]}
            return RoundState(state.round + 1, arrays, {**state.scalars, "phase": "rotate"})
        if phase == "rotate":
            return self._rotated(state, summary)
        return super().advance(state, summary)

    def rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return the rounds of SSBC, one more, and ``n_iter``."""
        return super().rounds(state, plan) + 1 + self.n_iter

    def finished(self, state: RoundState, sketch: Sketch, round: int) -> RoundState:
        """Return the state from which the rotation begins."""
        values, vectors = sketch.spectrum()
        whiten = _inverse_root(affinities_of(state))
        half = (np.sqrt(values)[:, None] * vectors.T) @ whiten  # its Gram matrix is Tᵀ S T
        _, lengths, turned = scipy.linalg.svd(half, full_matrices=False, check_finite=False)
        seed = integer(state, "seed")
        components, n_directions = leading(lengths**2, turned.T, self.n_bits, self.drop_first, seed)
        rotation = random_orthonormal(stream(seed, "nystrom.rotation"), self.n_bits, self.n_bits)
        square = sketch.square_
        energy = float(np.square(half @ components).sum()) / max(sketch.n_samples_seen_, 1)
        directions = whiten @ components * np.sqrt(self.n_bits / energy if energy > 0 else 1.0)
        arrays = {**state.arrays, "directions": directions, "rotation": rotation}
        scalars: dict[str, JSONScalar] = {
            **state.scalars,
            "phase": "gather",
            "n_directions": n_directions,
            "square": square,
            "certificate": sketch.certificate_ / square if square else 0.0,
            "slack": sketch.slack_ / square if square else 0.0,
        }
        return RoundState(round, arrays, scalars)

    @property
    def _sketch_size(self) -> int:
        return self.n_anchors if self.sketch_size is None else self.sketch_size

    def _drawn(self, state: RoundState) -> np.ndarray:
        """Return the numbers of the rows that the rotation is learned from, ascending."""
        n = data_info(state).n_rows
        rng = stream(integer(state, "seed"), "nystrom.train")
        return np.sort(rng.choice(n, min(n, self.n_train), replace=False)).astype(np.int64)

    def _rotated(self, state: RoundState, summary: Arrays) -> RoundState:
        correlation, rotation = summary["correlation"], state.arrays["rotation"]
        if correlation.any():
            rotation = orthogonal_factor(correlation)
        agreement = float(np.sum(rotation * correlation))
        loss = self.n_bits + (float(summary["square"]) - 2 * agreement) / int(summary["count"])
        scalars: dict[str, JSONScalar] = {**state.scalars, "loss": loss}
        arrays = {**state.arrays, "rotation": rotation}
        first = self.rounds(state, LeafPlan(1, 1)) - self.n_iter
        if state.round + 1 - first >= self.n_iter:
            scalars["phase"] = "done"
            arrays["weights"] = arrays.pop("directions") @ arrays.pop("rotation")
            del arrays["coordinates"]
        return RoundState(state.round + 1, arrays, scalars)


class GatherCoordinates:
    """Accumulator of the coordinates of chosen rows, in their order.

    Parameters
    ----------
    affinities : Affinities
    directions : ndarray of float64, shape (m, k)
    chosen : ndarray of int64, shape (t,)
        Row numbers, ascending.
    """

    sequential: ClassVar[bool] = False

    def __init__(self, affinities: Affinities, directions: np.ndarray, chosen: np.ndarray) -> None:
        self.affinities, self.directions, self.chosen = affinities, directions, chosen

    def init(self) -> dict[str, np.ndarray]:
        """Return no coordinates."""
        return {"coordinates": np.zeros((0, self.directions.shape[1]))}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Append the coordinates of a block's chosen rows."""
        check_finite(block)
        rows = block.vectors[np.isin(block.rows, self.chosen)]
        tiles = [tile.astype(np.float64) @ self.directions for _, tile in self._tiles(rows)]
        return {"coordinates": np.concatenate([state["coordinates"], *tiles])}

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Join two lists."""
        return {"coordinates": np.concatenate([left["coordinates"], right["coordinates"]])}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the coordinates."""
        return state

    def _tiles(self, rows: np.ndarray) -> list[tuple[int, np.ndarray]]:
        return list(self.affinities.tiles(rows, rows.dtype))


def _inverse_root(affinities: Affinities) -> np.ndarray:
    """Return ``K^(-1/2)`` of the anchors' affinities, with rows and columns centred if rows' affinities are.

    Directions of next to no affinity are left out, and so is the constant one of a centred K.
    """
    w = np.concatenate([tile for _, tile in affinities.tiles(affinities.anchors, np.float64)])
    if affinities.mean.any():
        w = w - w.mean(axis=0)
        w = w - w.mean(axis=1, keepdims=True)
    values, vectors = scipy.linalg.eigh((w + w.T) / 2, driver="evd", check_finite=False)
    kept = values > _RIDGE * max(values[-1], 0.0)
    if not kept.any():
        return np.zeros_like(w)
    return (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T
