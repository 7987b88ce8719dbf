"""What methods share that begin with some rows of the data: anchors, or all that they learn from.

The first round (phase ``"sample"``) reads the leaves that hold rows drawn by the seed and gathers those. What
comes then is the method's own, until its phase is ``"done"``. Mean and PCA of other rows have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..protocols import RoundState
from ..random import check_seed, stream
from .base import data_info, integer
from .checks import check_finished
from .ssbc_sums import GatherSample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocols import Accumulator, Arrays, BlockAddress, DataInfo, JSONScalar, LeafPlan


class SampledMethod:
    """Base of methods that begin with a sample of rows."""

    name: ClassVar[str]
    sparse: ClassVar[bool]
    training_only: ClassVar[tuple[str, ...]] = ()  # arrays that a finished state does without

    # what a subclass says ------------------------------------------------------------------------------

    def check_data(self, info: DataInfo) -> None:
        """Refuse data that the method cannot work on."""

    @property
    def sample_size(self) -> int:
        """How many rows are drawn; all where there are not so many."""
        raise NotImplementedError

    def begin(
        self, state: RoundState, rows: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Return arrays and scalars, the next phase among them, that the sampled rows give."""
        raise NotImplementedError

    def train_blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return the addresses of a round after the first."""
        return plan.leaves()

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Build the accumulator of a round after the first."""
        raise NotImplementedError

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Return what changes in the state's arrays and scalars."""
        raise NotImplementedError

    # the protocol --------------------------------------------------------------------------------------

    @property
    def min_leaves(self) -> int:
        """One leaf will do."""
        return 1

    def needs_covariance(self, info: DataInfo) -> bool:
        """Say no."""
        return False

    def start(self, info: DataInfo, seed: int, moments: Arrays | None = None) -> RoundState:
        """Return round 0; ``moments`` have no effect.

        Raises
        ------
        ValueError
            If there are no rows or no features.
        """
        if info.n_rows < 1 or info.n_features < 1:
            raise ValueError(
                f"{self.name} expects at least one row of at least one feature, "
                f"got {info.n_rows} rows of {info.n_features} features"
            )
        self.check_data(info)
        scalars: dict[str, JSONScalar] = {
            "phase": "sample",
            "seed": check_seed(seed),
            "n_rows": int(info.n_rows),
            "n_features": int(info.n_features),
            "dtype": info.dtype,
        }
        return RoundState(0, {}, scalars)

    def blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return the leaves that hold sampled rows, then what the method reads."""
        if state.scalars["phase"] != "sample":
            return self.train_blocks(state, plan)
        chosen = np.unique(self.sampled(state) // plan.block_rows)
        return [plan.leaf(i) for i in chosen.tolist()]

    def accumulator(self, state: RoundState) -> Accumulator:
        """Gather the sampled rows, or add up what the method wants."""
        if state.scalars["phase"] != "sample":
            return self.train_accumulator(state)
        info = data_info(state)
        return GatherSample(self.sampled(state), info.n_features, info.dtype)

    def advance(self, state: RoundState, summary: Arrays) -> RoundState:
        """Return the next round's state."""
        if state.scalars["phase"] == "sample":
            arrays, scalars = self.begin(state, summary["rows"])
        else:
            arrays, scalars = self.train_advance(state, summary)
        kept = {**state.arrays, **arrays}
        if scalars["phase"] == "done":
            kept = {key: array for key, array in kept.items() if key not in self.training_only}
        return RoundState(state.round + 1, kept, {**state.scalars, **scalars})

    def done(self, state: RoundState) -> bool:
        """Tell whether training has ended."""
        return state.scalars["phase"] == "done"

    def sampled(self, state: RoundState) -> np.ndarray:
        """Return the numbers of the sampled rows, ascending."""
        n = data_info(state).n_rows
        rng = stream(integer(state, "seed"), f"{self.name}.sample")
        return np.sort(rng.choice(n, min(n, self.sample_size), replace=False)).astype(np.int64)

    def check_done(self, state: RoundState) -> None:
        """Raise ValueError unless the state is a finished one."""
        check_finished(self, state)
