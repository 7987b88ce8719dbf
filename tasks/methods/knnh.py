"""K-nearest-neighbour hashing (He, Wang and Cheng, 2019): ITQ learned from averages of neighbours.

Every training row is replaced by the mean of its ``n_neighbors`` nearest training rows, which draws it
towards the middle of its own kind; ITQ then rotates these averages to the corners of a cube. Rows are
encoded as they are: the averages serve training alone (POSH paper, section E.1).

The neighbours are exact, by Euclidean distance between the principal components that ITQ works on (all
features where there are at least as many bits), equal distances by row number; a row is not among its own
neighbours, its duplicates may be. Averages are all computed from the rows themselves: the original
program writes each over its row, so that later rows average averages.

Rounds: mean and components; gather the training rows' components; average, each task the neighbours of its
own rows among all those gathered; then ITQ's. With ``neighbors_from="all"`` the second step is two: every
leaf is searched for neighbours of the training rows, and then adds its share of the averages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..protocols import LeafPlan, RoundState
from ..random import stream
from .base import Front, data_info, front_of, integer
from .checks import check_choice, check_count
from .itq import ITQ, Correlation
from .knnh_sums import AddNeighbours, AverageNeighbours, FindNeighbours, GatherRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocols import Accumulator, Arrays, Block, BlockAddress, DataInfo, JSONScalar

NEIGHBORS_FROM = ("train", "all")
MAX_STATE = 2**25  # float64 numbers of training rows that a round's state may hold: 256 MiB
_LEAST_LEAVES = 8


@dataclass(frozen=True)
class KNNH(ITQ):
    """Signs of rotated principal components; the rotation is learned from averages of neighbours.

    Parameters
    ----------
    n_bits : int, default 64
    n_neighbors : int, default 20
        Rows that are averaged; all others where there are not so many.
    neighbors_from : {"train", "all"}, default "train"
        Among which rows neighbours are looked for, if ``n_train`` leaves some out.
    n_train : int, optional
        Learn from so many rows, drawn by the seed; None: from all.
    n_iter : int, default 50
        Rotations learned.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components, or the share of variance they must explain; at most, and by default,
        ``min(n_bits, d)``.

    Notes
    -----
    The search takes ``O(n_train · n)`` time.  The averages live in the state of the rounds after it: more
    than 2²⁵ numbers, ``n_train`` times the components, are refused.  The finished model is that of ITQ.
    A single row is its own average.
    """

    n_bits: int = 64
    n_neighbors: int = 20
    neighbors_from: str = "train"
    n_train: int | None = None
    n_iter: int = 50
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "knnh"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "n_neighbors")
        check_choice(self, "neighbors_from", NEIGHBORS_FROM)
        check_count(self, "n_train", optional=True)

    @property
    def min_leaves(self) -> int:
        """Pairwise work is worth sharing even where the data is small."""
        return _LEAST_LEAVES

    def check_data(self, info: DataInfo) -> None:
        """Refuse more averages than a state may hold."""
        wanted = self.wanted_components(info)
        width = wanted if isinstance(wanted, int) else self.most_components(info)
        if self._count(info) * width > MAX_STATE:
            raise ValueError(
                f"knnh keeps the averages of all training rows in its state, at most {MAX_STATE:,} numbers, "
                f"but {self._count(info):,} rows of {width} components are more; "
                f"take n_train={MAX_STATE // width} or less"
            )

    def train_blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return the leaves of the data, or of the training rows' numbers among themselves."""
        if self._step(state) in ("gather", "find", "add"):
            return plan.leaves()
        return LeafPlan(self._count(data_info(state)), plan.block_rows, plan.fan_in).leaves()

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Gather, search, average, or add up ITQ's correlation."""
        step, front, chosen = self._step(state), front_of(state), self._chosen(state)
        if step == "gather":
            return GatherRows(front, chosen)
        if step == "average":
            return AverageNeighbours(state.arrays["rows"], self.n_neighbors)
        if step == "find" and chosen is not None:
            return FindNeighbours(front, state.arrays["rows"], chosen, self.n_neighbors)
        if step == "add":
            return AddNeighbours(front, state.arrays["neighbors"])
        return AveragedCorrelation(state.arrays["averages"], state.arrays["weights"])

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Keep what was gathered, found or averaged; or learn the next rotation."""
        if self._step(state) == "rotate":
            return super().train_advance(state, summary)
        return dict(summary), {}

    def advance(self, state: RoundState, summary: Arrays) -> RoundState:
        """Return the next round's state, without the arrays that no later round needs."""
        new = super().advance(state, summary)
        needed = {"rows": ("average", "find"), "neighbors": ("add",), "averages": ("rotate",)}
        step = "" if self.done(new) else self._step(new)
        arrays = {key: a for key, a in new.arrays.items() if key not in needed or step in needed[key]}
        return RoundState(new.round, arrays, new.scalars)

    def trained(self, state: RoundState) -> bool:
        """Tell whether ``n_iter`` rotations have been learned."""
        steps = self._steps(data_info(state))
        return state.round - integer(state, "first_round") >= len(steps) + self.n_iter

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return the rounds before ITQ's and ``n_iter``."""
        return len(self._steps(data_info(state))) + self.n_iter

    def _count(self, info: DataInfo) -> int:
        return info.n_rows if self.n_train is None else min(self.n_train, info.n_rows)

    def _chosen(self, state: RoundState) -> np.ndarray | None:
        """Return the training rows' numbers, ascending; None for all."""
        info = data_info(state)
        count = self._count(info)
        if count == info.n_rows:
            return None
        rng = stream(integer(state, "seed"), "knnh.train")
        return np.sort(rng.choice(info.n_rows, count, replace=False)).astype(np.int64)

    def _steps(self, info: DataInfo) -> tuple[str, ...]:
        others = self.neighbors_from == "all" and self._count(info) < info.n_rows
        return ("gather", "find", "add") if others else ("gather", "average")

    def _step(self, state: RoundState) -> str:
        if state.scalars["phase"] == "moments":
            return "moments"
        steps, behind = self._steps(data_info(state)), state.round - integer(state, "first_round")
        return steps[behind] if behind < len(steps) else "rotate"


class AveragedCorrelation(Correlation):
    """ITQ's sums over averaged rows; a block says which by their places among the training rows."""

    def __init__(self, averages: np.ndarray, rotation: np.ndarray) -> None:
        super().__init__(Front(np.zeros(averages.shape[1])), rotation)
        self.averages = averages

    def coordinates(self, block: Block) -> np.ndarray:
        """Return the averages of a block's rows."""
        return self.averages[block.rows]
