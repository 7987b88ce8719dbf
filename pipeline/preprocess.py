"""Mean and covariance of other rows than the training rows (``preprocess_on``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..tasks.leaves import plan_leaves
from ..tasks.moments import Moments
from ..tasks.protocols import RoundState
from .model import HeldState

if TYPE_CHECKING:
    from ..tasks.protocols import Accumulator, Arrays, BlockReader, Executor


@dataclass(frozen=True)
class MomentsOf:
    """The program that adds up mean and covariance of ``n_features`` columns."""

    n_features: int

    def accumulator(self, state: RoundState) -> Accumulator:
        """Build the accumulator; there is no state that it could need."""
        return Moments(self.n_features, covariance=True)


def moments_of(reader: BlockReader, executor: Executor, *, fan_in: int) -> Arrays:
    """Return count, mean and covariance of all rows."""
    plan = plan_leaves(reader.n_rows, reader.n_features, fan_in=fan_in)
    nothing = HeldState(RoundState(0), "no state")
    return executor.reduce(reader, plan.leaves(), MomentsOf(reader.n_features), nothing, fan_in=fan_in)
