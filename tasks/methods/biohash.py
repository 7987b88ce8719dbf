"""BioHash: competitive Hebbian learning, then winner-take-all.

For a row x, seen from the mean, the unit with the largest ``w_jᵀ x`` learns (POSH paper, eq. 9, which is
the rule of Krotov and Hopfield, 2019, with p = 2 and Δ = 0; Ryali et al., 2020, hash with it)::

    Δw_j = x - (w_jᵀ x) w_j

Rows come in batches that share W. A batch's changes are added up, divided by the largest entry's absolute
value and taken times a rate that falls linearly from ``learning_rate`` in the first epoch towards 0, as in
the published rule. Winners' weights tend to length one, and the rule to a maximum of

    objective = Σ max_j w_jᵀ x_i / ‖w_j‖ / n

(slowly: `spherical_hash` maximises it directly). Learning is sequential: an epoch is one task and one
commit, whatever the number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..kernels.accumulate import add_rows
from ..random import stream
from .base import Front, LinearMethod, data_info, front_of, integer, sparse_components
from .checks import check_active, check_common, check_count, check_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..protocols import Arrays, Block, BlockAddress, DataInfo, JSONScalar, LeafPlan, RoundState

_LEAST = 1e-30  # what a batch's changes are divided by at least


@dataclass(frozen=True)
class BioHash(LinearMethod):
    """Winners among units that learned by competition.

    Parameters
    ----------
    n_bits : int, default 1024
        Number of units.
    n_active : int, default 32
        Ones per code.
    n_epochs : int, default 100
        Passes over the data.
    learning_rate : float, default 0.02
        Of the first epoch, in (0, 1]; the largest change of a weight in a batch.
    batch_size : int, default 100
        Rows that learn together.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components to work in, or the share of variance they must explain.  None: all features as
        they are while d <= n_bits, else ``n_active`` components.

    Notes
    -----
    Every epoch takes the leaves in another seeded order, and the rows of each in another; the rows that
    fill no batch at its end do not learn in it.  With fewer rows than a batch, all rows are one.  Records
    ``objective``, of each row under the weights of its time, and ``n_dead_units``, the units that won no
    row in the epoch: since weights begin long and winners' weights grow short, units of the random start
    may win much later or never; they do not learn, and take part in encoding as they are.  ``mean_length``,
    of the units after the epoch, tells how far that is: it begins near √d and tends to 1.  Float64
    throughout.
    """

    n_bits: int = 1024
    n_active: int = 32
    n_epochs: int = 100
    learning_rate: float = 0.02
    batch_size: int = 100
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "biohash"
    sparse: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_common(self)
        check_active(self)
        check_count(self, "n_epochs")
        check_share(self, "learning_rate")
        check_count(self, "batch_size")

    def wanted_components(self, info: DataInfo) -> int | float | None:
        """Return ``n_active`` by default where d > n_bits."""
        return sparse_components(self, info)

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw the weights, standard normal."""
        shape = (self.n_bits, front.n_outputs)
        return {"weights": stream(seed, "biohash.weights").standard_normal(shape)}

    def train_blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return all leaves in the epoch's order."""
        order = stream(integer(state, "seed"), "biohash.leaves", round=self._epoch(state))
        return [plan.leaf(i) for i in order.permutation(len(plan)).tolist()]

    def train_accumulator(self, state: RoundState) -> Competition:
        """Learn for an epoch."""
        seed, epoch = integer(state, "seed"), self._epoch(state)

        def order(block: Block) -> np.ndarray:
            rng = stream(seed, "biohash.rows", round=epoch, block=int(block.rows[0]))
            return rng.permutation(len(block.rows))

        return Competition(
            front_of(state),
            state.arrays["weights"],
            order,
            rate=self.learning_rate * (1 - epoch / self.n_epochs),
            batch_size=min(self.batch_size, data_info(state).n_rows),
        )

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Take over the weights."""
        scalars: dict[str, JSONScalar] = {
            "objective": float(summary["agreement"]) / int(summary["uses"].sum()),
            "n_dead_units": int(np.count_nonzero(summary["uses"] == 0)),
            "mean_length": float(np.sqrt(np.square(summary["weights"]).sum(axis=1)).mean()),
        }
        return {"weights": summary["weights"]}, scalars

    def trained(self, state: RoundState) -> bool:
        """Tell whether all epochs are over."""
        return self._epoch(state) >= self.n_epochs

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return ``n_epochs``."""
        return self.n_epochs

    def _epoch(self, state: RoundState) -> int:
        return state.round - integer(state, "first_round")


class Competition:
    """Sequential accumulator: the weights after one batch after another, wherever blocks begin and end.

    Parameters
    ----------
    front : Front
    weights : ndarray of float64, shape (b, r)
        Of the last epoch.
    order : callable
        Returns in which order a block's rows learn.
    rate : float
    batch_size : int
    """

    sequential: ClassVar[bool] = True

    def __init__(
        self,
        front: Front,
        weights: np.ndarray,
        order: Callable[[Block], np.ndarray],
        *,
        rate: float,
        batch_size: int,
    ) -> None:
        self.front = front
        self.weights = weights
        self.order = order
        self.rate = rate
        self.batch_size = batch_size

    def init(self) -> dict[str, np.ndarray]:
        """Return the weights of the last epoch, and no rows waiting for their batch to fill."""
        return {
            "weights": np.array(self.weights),
            "waiting": np.zeros((0, self.weights.shape[1])),
            "agreement": np.zeros(()),
            "uses": np.zeros(len(self.weights), np.int64),
        }

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Learn from the rows of one block, and from those that waited."""
        if not len(block.rows):
            return state
        waiting = state["waiting"]
        for tile in self.front.tiles(block.vectors[self.order(block)], np.float64):
            rows = np.concatenate([waiting, tile])
            full = len(rows) // self.batch_size * self.batch_size
            with np.errstate(over="ignore", invalid="ignore"):  # `finalize` refuses what comes of it
                for start in range(0, full, self.batch_size):
                    self._learn(state, rows[start : start + self.batch_size])
            waiting = rows[full:]
        state["waiting"] = waiting
        return state

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Refuse: what a row changes depends on the rows before it."""
        raise TypeError("BioHash learns sequentially: its states cannot be merged")

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the weights; refuse what is not finite."""
        if not (np.isfinite(state["weights"]).all() and np.isfinite(state["waiting"]).all()):
            raise ValueError("expected finite weights, but the vectors hold NaN, infinity or huge numbers")
        return state

    def _learn(self, state: dict[str, np.ndarray], rows: np.ndarray) -> None:
        """Change the weights of the units that win rows of one batch."""
        weights = state["weights"]
        scores = rows @ weights.T
        winners = scores.argmax(axis=1)
        won = np.take_along_axis(scores, winners[:, None], axis=1)[:, 0]
        units, places = np.unique(winners, return_inverse=True)
        old = weights[units]
        change = np.zeros_like(old)
        add_rows(change, places[:, None].astype(np.int32), rows)
        change -= np.bincount(places, weights=won)[:, None] * old
        weights[units] = old + self.rate * (change / max(np.abs(change).max(), _LEAST))
        lengths = np.sqrt(np.einsum("ij,ij->i", old, old))
        state["agreement"] += (won / np.where(lengths > 0, lengths, 1.0)[places]).sum()
        state["uses"] += np.bincount(winners, minlength=len(weights))
