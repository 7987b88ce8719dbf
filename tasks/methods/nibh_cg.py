"""Near-isometric hashing by column generation (NIBH-CG): all secants are searched, few are solved for.

Of the pairs of points only some bind the worst deviation of Hamming distances from distances.  A round

1. searches all pairs of blocks for violators, secants whose residual ``|λ v - c|`` comes near the largest of
   the active ones: half of the room for the worst of them, half for a uniform sample;
2. goes on with the solver on the active secants, those included, in one task;
3. drops secants that were far below the largest residual for some rounds.

The same search compares the sign codes of all pairs, so that the weights of the least distortion δ over all
pairs are what is kept.  The paper chooses violators by sign codes, drops idle secants at once and solves a
few times to the end.  That loses most of the gain: the conditions of optimality belong to the relaxed
problem, so residuals are those of the soft codes here, and stages are many and short (``violators="hard"``,
``max_age=1``, ``fix_scale=True``, ``start_share=0.8``, ``n_iter=12``, ``n_steps=50`` is the paper's way).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..protocols import BlockPair, RoundState
from ..random import stream
from .base import data_info, front_of, integer
from .checks import check_choice, check_common, check_count, check_number, check_share
from .nibh_base import NearIsometric
from .nibh_cg_search import Question, Search
from .nibh_cg_solve import Stage, reported, stage
from .nibh_cg_sums import GatherMeasured, GatherSecants
from .nibh_rounds import batch_steps
from .nibh_smooth import Loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocols import Accumulator, Arrays, BlockAddress, DataInfo, JSONScalar, LeafPlan

SOLVERS = ("smooth", "admm")
VIOLATORS = ("soft", "hard")
_MOST_SECANTS = 10_000
_MOST_KEPT = 2_000
_SAMPLE = 10_000
_NEARLY = 0.7  # share of δ from which the polish takes a pair into its pool
_SAMPLE_NUMBERS = 2**25
_MEASURED_ROWS = 2000
_BATCH = 1000  # points
_WARM_LENGTH = 0.1  # of the first step after steps on batches


@dataclass(frozen=True)
class NIBHCG(NearIsometric):
    """Signs of projections that keep distances, learned from the secants that are hard to keep.

    Parameters
    ----------
    n_bits : int, default 64
    solver : {"smooth", "admm"}, default "smooth"
    slope : float, default 8.0
        Of the sigmoids.
    n_iter : int, default 120
        Stages, each after a search of all pairs.
    n_steps : int, default 5
        Steps (turns of "admm") a stage.
    violators : {"soft", "hard"}, default "soft"
        Whose residuals say which secants bind: those of the soft codes, or of the sign codes.
    threshold : float, default 0.6
        Share of the largest residual above which a secant is a candidate, and stays active.
    max_age : int, default 3
        Stages below the threshold after which a secant is dropped.
    max_secants : int, optional
        Active secants at most; by default a quarter of all, at most 10,000.
    start_share : float, default 0.2
        How many secants, as a share of ``max_secants``, are drawn at random at the beginning.
    fix_scale : bool, default False
        Keep λ after the first stage, as the paper does.
    n_warm : int, default 0
        Steps on batches of 1000 points with all their pairs, as NIBH makes them, before the first search; for
        many rows, whose violators alone say too little.
    n_polish : int, default 0
        Rounds of the discrete polish of the sign codes that follow, see `nibh_cg_polish`.  It lowers δ of the
        training rows further, and has not been seen to lower that of others.
    n_moves : int, default 500
        Moves that each of these rounds tries.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components to work in, or the share of variance they must explain; by default 128 or
        ``n_bits``, whatever is more, and at most d.

    Notes
    -----
    Every round records ``distortion`` (δ of the best sign codes so far, exact, over all pairs),
    ``n_active``, ``most_active`` (solved for in any stage) and ``n_violators`` (inactive secants beyond the
    largest active residual, as far as they were kept).  The finished state holds what that of NIBH does:
    distortions over all pairs; calibration, bound and ``least_bits`` from those of 2000 rows, evenly spaced.
    ITQ starts from at most 10,000 rows, drawn by the seed.
    """

    n_bits: int = 64
    solver: str = "smooth"
    slope: float = 8.0
    n_iter: int = 120
    n_steps: int = 5
    violators: str = "soft"
    threshold: float = 0.6
    max_age: int = 3
    max_secants: int | None = None
    start_share: float = 0.2
    fix_scale: bool = False
    n_warm: int = 0
    n_polish: int = 0
    n_moves: int = 500
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "nibh_cg"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_common(self)
        check_choice(self, "solver", SOLVERS)
        check_choice(self, "violators", VIOLATORS)
        for field in ("n_iter", "n_steps", "max_age"):
            check_count(self, field)
        check_count(self, "max_secants", optional=True)
        check_count(self, "n_polish", at_least=0)
        check_count(self, "n_moves")
        check_number(self, "slope", above=True, optional=False)
        for field in ("threshold", "start_share"):
            check_share(self, field)
        check_count(self, "n_warm", at_least=0)
        if not isinstance(self.fix_scale, (bool, np.bool_)):
            raise ValueError(f"expected fix_scale to be True or False, got {self.fix_scale!r}")
        object.__setattr__(self, "fix_scale", bool(self.fix_scale))

    # what LinearMethod asks for ------------------------------------------------------------------------

    def check_data(self, info: DataInfo) -> None:
        """Refuse data whose pairs have no numbers."""
        if info.n_rows > 2**31:
            raise ValueError(f"nibh_cg takes at most {2**31:,} rows, got {info.n_rows:,}")

    def train_blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return all leaves for the first round and the last one, between them all pairs of leaves."""
        leaves = plan.leaves()
        if self.rounds_behind(state) in (0, self._n_rounds - 1):
            return leaves
        return [BlockPair(left, right) for i, left in enumerate(leaves) for right in leaves[i:]]

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Gather the first secants, or search all of them and go on with the solver; at the end measure."""
        arrays = state.arrays
        if self.rounds_behind(state) == 0:
            numbers = self._sample(state)
            chosen = None if len(numbers) == data_info(state).n_rows else numbers
            n_secants = max(1, round(self.start_share * self._most(state)))
            rng = stream(integer(state, "seed"), "nibh.secants")
            front, rotation = front_of(state), arrays["rotation"]
            warm = partial(
                batch_steps, loss=Loss(self.slope, None, batches=True), n_steps=self.n_warm,
                batch_size=_BATCH, seed=integer(state, "seed"),
            ) if self.n_warm else None  # fmt: skip
            gather = GatherSecants(front, chosen, rotation, numbers, n_secants, rng, warm)
            return _ThenSolve(gather, self._stage(state), data_info(state).dtype)
        scalars = self._numbers(state)
        if self.rounds_behind(state) == self._n_rounds - 1:
            n_rows = data_info(state).n_rows
            chosen = np.arange(0, n_rows, -(-n_rows // _MEASURED_ROWS))
            return GatherMeasured(front_of(state), chosen, arrays["best"])
        number = arrays["first"] * data_info(state).n_rows + arrays["second"]
        key = int(stream(integer(state, "seed"), "nibh.search", state.round).integers(2**63))
        most, polishing = self._most(state), self.rounds_behind(state) > self.n_iter
        question = Question(
            front_of(state), arrays["weights"], scalars["unit"], self.slope, scalars["scale"],
            scalars["largest_residual"], _NEARLY if polishing else self.threshold,
            polishing or self.violators == "hard", np.sort(number),
            data_info(state).n_rows, min(most, _MOST_KEPT), key,
        )  # fmt: skip
        return Search(question, partial(stage, arrays, scalars, self._stage(state)))

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Take over what the task found."""
        if self.rounds_behind(state) == self._n_rounds - 1:
            summary = reported(state.arrays, summary)
        arrays = {name: array for name, array in summary.items() if array.ndim}
        scalars: dict[str, JSONScalar] = {name: a.item() for name, a in summary.items() if not a.ndim}
        return arrays, scalars

    def trained(self, state: RoundState) -> bool:
        """Tell whether the best weights have been measured."""
        return self.rounds_behind(state) >= self._n_rounds

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return ``n_iter``, those of the polish, one for the last search and one to measure."""
        return self._n_rounds

    # private -------------------------------------------------------------------------------------------

    @property
    def _n_rounds(self) -> int:
        return 2 + self.n_iter + (self.n_polish + 1 if self.n_polish else 0)

    def _most(self, state: RoundState) -> int:
        n = data_info(state).n_rows
        return self.max_secants or min(_MOST_SECANTS, max(1, n * (n - 1) // 8))

    def _sample(self, state: RoundState) -> np.ndarray:
        """Return the numbers of the rows that ITQ and the first secants come from, ascending."""
        info = data_info(state)
        count = min(info.n_rows, _SAMPLE, max(2, _SAMPLE_NUMBERS // info.n_features))
        if count == info.n_rows:
            return np.arange(count)
        rng = stream(integer(state, "seed"), "nibh.train")
        return np.sort(rng.choice(info.n_rows, count, replace=False)).astype(np.int64)

    def _numbers(self, state: RoundState) -> dict[str, float]:
        names = ("unit", "scale", "curvature", "largest_residual", "best_distortion", "most_active")
        return {name: float(state.scalars[name] or 0.0) for name in names if name in state.scalars}

    def _stage(self, state: RoundState) -> Stage:
        behind = self.rounds_behind(state)
        polishing = max(0, behind - self.n_iter + 1) if self.n_polish else 0
        return Stage(
            self.solver, self.slope, behind * self.n_steps, self.n_steps, self.n_iter * self.n_steps,
            self.fix_scale, self.threshold, self.max_age, self._most(state), self.violators == "hard",
            last=behind == self._n_rounds - 2, polishing=polishing,
            n_moves=self.n_moves if behind > self.n_iter else 0, seed=integer(state, "seed"),
            length=_WARM_LENGTH if self.n_warm else 1.0,
        )  # fmt: skip


class _ThenSolve:
    """The accumulator of the first secants, with the first stage behind it."""

    sequential: ClassVar[bool] = False

    def __init__(self, gather: GatherSecants, how: Stage, dtype: str) -> None:
        self.gather, self.how, self.dtype = gather, how, dtype
        self.init, self.update, self.merge = gather.init, gather.update, gather.merge

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Draw the secants and solve for them."""
        found = self.gather.finalize(state)
        found["point_rows"] = found["point_rows"].astype(self.dtype)
        names = [name for name in ("unit", "scale") if name in found]
        begun: dict[str, float] = {name: float(found.pop(name)) for name in names}
        return {**stage(found, begun, self.how, None), "unit": np.array(begun["unit"])}
