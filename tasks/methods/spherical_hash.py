"""SphericalHash: spherical k-means with a centre for each bit, then winner-take-all among the centres.

With x' the rows, seen from their mean, over their lengths, maximise over centres w_j of length one

    objective = Σ max_j w_jᵀ x'_i / n

by turns: every row goes to its nearest centre, ``s = wta_1(W x')``, and each centre to the direction of
the sum of its rows (POSH paper, Algorithm 2). A pass adds up ``M = Σ s_i x'_iᵀ``, which is all that
both half steps of the objective need::

    objective_codes = tr(Wᵀ M) / n   (new assignment, old centres)
    objective       = Σ_j ‖M_j‖ / n  (same assignment, new centres)

Neither half step can lower it. Training switches on one bit a row, encoding ``n_active``: the codes are
best where that is few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..kernels.accumulate import add_rows
from ..random import stream
from ..sums import Sums, refuse_infinite
from ..unit import unit_rows
from .assign import check_assign, encoder_of
from .base import Front, LinearMethod, data_info, front_of, integer, sparse_components
from .checks import check_active, check_choice, check_common, check_count

if TYPE_CHECKING:
    from ..protocols import Arrays, Block, DataInfo, Encoder, JSONScalar, LeafPlan, RoundState

DEAD_UNITS = ("zero", "keep", "reseed")


@dataclass(frozen=True)
class SphericalHash(LinearMethod):
    """Winners among the centres of spherical k-means.

    Parameters
    ----------
    n_bits : int, default 1024
        Number of centres.
    n_active : int, default 32
        Ones per code.
    n_epochs : int, default 50
        Passes over the data.
    dead_units : {"zero", "keep", "reseed"}, default "zero"
        What becomes of a centre that no row is nearest to.  "zero": the zero vector, as in the paper's
        code; its score is 0, so it wins only where fewer than ``n_active`` centres lie within a right
        angle.  "keep": stays where it is.  "reseed": takes the direction of a training row, drawn anew
        for each pass and unit and gathered along with the sums; it does so one pass after it was found
        dead.
    assign : {"wta", "greedy"}, default "wta"
        How rows are encoded once the centres are learned; see `tasks.methods.assign`.
    beta : float, optional
        Of "greedy".
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components to work in, or the share of variance they must explain.  None: all features as
        they are while d <= n_bits, else ``n_active`` components.

    Notes
    -----
    Every round records ``objective_codes``, ``objective`` and ``n_dead_units``, the centres that no row
    was nearest to in that pass; with fewer rows than bits there are always some.  Rows equal to the mean
    have no direction: they belong to no centre and add nothing.  Scores are computed in the blocks' own
    precision, sums in float64.
    """

    n_bits: int = 1024
    n_active: int = 32
    n_epochs: int = 50
    dead_units: str = "zero"
    assign: str = "wta"
    beta: float | None = None
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "spherical_hash"
    sparse: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_common(self)
        check_active(self)
        check_count(self, "n_epochs")
        check_choice(self, "dead_units", DEAD_UNITS)
        check_assign(self)

    def wanted_components(self, info: DataInfo) -> int | float | None:
        """Return ``n_active`` by default where d > n_bits."""
        return sparse_components(self, info)

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw centres uniformly from the sphere."""
        drawn = stream(seed, "spherical_hash.weights").standard_normal((self.n_bits, front.n_outputs))
        arrays = {"weights": unit_rows(drawn)[0]}
        if self.dead_units == "reseed":
            arrays["dead"] = np.zeros(self.n_bits, np.bool_)
        return arrays

    def train_accumulator(self, state: RoundState) -> Clusters:
        """Add up the rows of each centre, and gather those that dead centres are to take."""
        info = data_info(state)
        dtype = np.float64 if info.dtype == "float64" else np.float32
        wanted = np.zeros(0, np.int64)
        if self.dead_units == "reseed":
            rng = stream(integer(state, "seed"), "spherical_hash.reseed", round=state.round)
            wanted = rng.integers(info.n_rows, size=self.n_bits)[state.arrays["dead"]]
        return Clusters(front_of(state), state.arrays["weights"], wanted, dtype=dtype)

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Turn every centre to the sum of its rows."""
        old, total = state.arrays["weights"], summary["total"]
        dead = summary["uses"] == 0
        new, nonzero = unit_rows(total)
        if self.dead_units != "zero":
            new[~nonzero] = old[~nonzero]
        arrays = {"weights": new}
        if self.dead_units == "reseed":
            arrays["dead"] = dead
            units = np.flatnonzero(state.arrays["dead"])
            taken = dead[units] & summary["gathered"].any(axis=1)
            new[units[taken]] = summary["gathered"][taken]
        count = int(summary["count"])
        scalars: dict[str, JSONScalar] = {
            "objective_codes": float(np.sum(old * total)) / count,
            "objective": float(np.sum(new * total)) / count,
            "n_dead_units": int(np.count_nonzero(dead)),
        }
        return arrays, scalars

    def trained(self, state: RoundState) -> bool:
        """Tell whether all passes have been made."""
        return state.round - integer(state, "first_round") >= self.n_epochs

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return ``n_epochs``."""
        return self.n_epochs

    def encoder(self, state: RoundState) -> Encoder:
        """Return the encoder of a finished state."""
        return encoder_of(self, state, super().encoder(state))


class Clusters(Sums):
    """Accumulator of ``M = Σ wta_1(W x') x'ᵀ``, the rows of each centre and of all; and some rows themselves.

    Parameters
    ----------
    front : Front
    weights : ndarray of float64, shape (b, r)
    wanted : ndarray of int64, shape (w,)
        Numbers of the rows to gather.
    dtype : type
        In which scores are computed.
    """

    def __init__(
        self, front: Front, weights: np.ndarray, wanted: np.ndarray, *, dtype: type[np.floating[Any]]
    ) -> None:
        self.front = front
        self.wanted = wanted
        self.shape = weights.shape
        self.dtype = dtype
        self.columns = np.ascontiguousarray(weights.T, dtype=dtype)

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        return {
            "total": np.zeros(self.shape),
            "uses": np.zeros(self.shape[0], np.int64),
            "gathered": np.zeros((len(self.wanted), self.shape[1])),
            "count": np.zeros((), np.int64),
        }

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        start = 0
        for tile in self.front.tiles(block.vectors, np.float64):
            rows, nonzero = unit_rows(tile)
            self._gather(state["gathered"], block.rows[start : start + len(rows)], rows)
            start += len(rows)
            rows = rows if nonzero.all() else rows[nonzero]
            nearest = (rows.astype(self.dtype, copy=False) @ self.columns).argmax(axis=1)
            add_rows(state["total"], nearest[:, None].astype(np.int32), rows)
            state["uses"] += np.bincount(nearest, minlength=self.shape[0])
        state["count"] += len(block.vectors)
        return state

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums; refuse what is not finite."""
        refuse_infinite(state, "total")
        return state

    def _gather(self, gathered: np.ndarray, numbers: np.ndarray, rows: np.ndarray) -> None:
        """Keep the wanted rows, a row of zeros where another block has it: gathered rows merge by adding."""
        if len(self.wanted) and len(numbers):
            here = np.flatnonzero((self.wanted >= numbers[0]) & (self.wanted <= numbers[-1]))
            gathered[here] += rows[self.wanted[here] - numbers[0]]
