"""Mean and covariance of other rows than the training rows (``preprocess_on``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..tasks.leaves import plan_leaves
from ..tasks.moments import Moments
from ..tasks.protocols import DataInfo, RoundState
from .model import HeldState

if TYPE_CHECKING:
    from ..tasks.protocols import Accumulator, Arrays, BlockReader, Executor, Method


@dataclass(frozen=True)
class MomentsOf:
    """The program that adds up mean and, if wanted, covariance of ``n_features`` columns."""

    n_features: int
    covariance: bool

    def accumulator(self, state: RoundState) -> Accumulator:
        """Build the accumulator; there is no state that it could need."""
        return Moments(self.n_features, covariance=self.covariance)


def moments_of(reader: BlockReader, executor: Executor, method: Method, *, fan_in: int) -> Arrays:
    """Return count, mean and, unless the method says that it needs none, covariance of all rows."""
    info = DataInfo(reader.n_rows, reader.n_features, reader.dtype)
    needs_covariance = getattr(method, "needs_covariance", None)
    program = MomentsOf(reader.n_features, needs_covariance is None or needs_covariance(info))
    plan = plan_leaves(reader.n_rows, reader.n_features, fan_in=fan_in)
    nothing = HeldState(RoundState(0), "no state")
    return executor.reduce(reader, plan.leaves(), program, nothing, fan_in=fan_in)
