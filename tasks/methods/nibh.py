"""Near-isometric binary hashing (NIBH): Hamming distances that follow the distances of the vectors.

Of weights W and a scale λ > 0 the paper asks for the least distortion over all pairs of points::

    δ = max |λ h(x, x') - ‖x - x'‖|,   h the Hamming distance of sign(W x) and sign(W x')

Signs are relaxed to sigmoids.  Two solvers are offered: gradient steps on a smooth maximum (``smooth``),
and the paper's alternating directions (``admm``); presets say what is minimised:

``paper``
    δ itself, sigmoids of slope 8, ``‖s - s'‖²`` as soft distance.
``calibrated``
    ``Σ |g(h) - c|^p`` with a nondecreasing g learned along with W, sigmoids of slope 4, and as a share w of
    the forces the squared error through the origin.  With few bits no code can be near isometric through
    the origin (``least_bits`` says how many it takes), and asking for it costs retrieval; this does not.
``isometric``
    The same with w = ½.

All start from ITQ on the same points.  While all pairs fit into one step (``batch_size`` points), their
distances are exact, and of a hundred iterates the one whose sign codes have the least δ is taken (preset
``paper``); larger sets are learned in batches of points, and the last iterate counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..protocols import RoundState, RowRange
from ..random import stream
from .base import data_info, front_of, integer
from .checks import check_choice, check_common, check_count, check_number
from .nibh_base import NearIsometric
from .nibh_rounds import Best, Solve, Steps, admm_round, smooth_round
from .nibh_smooth import Loss
from .nibh_sums import GatherPoints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocols import Accumulator, Arrays, BlockAddress, DataInfo, JSONScalar, LeafPlan

PRESETS = ("paper", "isometric", "calibrated")
SOLVERS = ("smooth", "admm")
TARGETS = ("euclidean", "sqeuclidean")
MAX_STATE = 2**25  # numbers of training points that a round's state may hold
_SHARES = {"isometric": 0.5, "calibrated": 0.25}
_STEPS = {"smooth": 60, "admm": 10}
_CANDIDATES = 100


@dataclass(frozen=True)
class NIBH(NearIsometric):
    """Signs of projections that keep distances.

    Parameters
    ----------
    n_bits : int, default 64
    preset : {"paper", "isometric", "calibrated"}, default "paper"
        What is minimised, see the module.
    solver : {"smooth", "admm"}, default "smooth"
        "admm" solves the paper's problem for at most ``batch_size`` points.
    target : {"euclidean", "sqeuclidean"}, default "euclidean"
        Which distance h follows; the distortion that is reported is always of the first.
    slope : float, optional
        Of the sigmoids; by default 8, with the calibrated presets 4.
    p : int, optional
        An even power; by default 8, with "paper" the maximum itself.
    w : float, optional
        Share of squared error through the origin in the calibrated presets; by default ¼ and ½.
    n_iter : int, default 10
        Rounds.
    n_steps : int, optional
        Steps a round; by default 60, or 10 turns of "admm".
    batch_size : int, default 1000
        Points whose pairs make one step.
    n_train : int, optional
        Learn from so many rows, drawn by the seed; by default 10,000.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components to work in, or the share of variance they must explain; by default 128 or
        ``n_bits``, whatever is more, and at most d.

    Notes
    -----
    Every round records ``distortion``, δ of the sign codes over all pairs of training points, or of 2000 of
    them. The finished state has the array ``calibration``, g(h) for h = 0 … n_bits, fitted to the final
    codes, and the scalars ``distortion_scale`` (λ), ``distortion_monotone`` (of the best nondecreasing g),
    ``distortion_constant`` (T, of a constant: a δ above it is worse than none), ``distortion_bound`` (below
    which no codes get through the origin) and ``least_bits`` (M*, what that takes at least).  Distances
    of a batch come from the components and the rows' lengths; what other components contribute to an inner
    product is left out.
    """

    n_bits: int = 64
    preset: str = "paper"
    solver: str = "smooth"
    target: str = "euclidean"
    slope: float | None = None
    p: int | None = None
    w: float | None = None
    n_iter: int = 10
    n_steps: int | None = None
    batch_size: int = 1000
    n_train: int | None = None
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "nibh"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_common(self)
        check_choice(self, "preset", PRESETS)
        check_choice(self, "solver", SOLVERS)
        check_choice(self, "target", TARGETS)
        check_count(self, "n_iter")
        for field in ("n_steps", "n_train"):
            check_count(self, field, optional=True)
        check_count(self, "batch_size", at_least=2)
        check_count(self, "p", at_least=2, optional=True)
        if self.p is not None and self.p % 2:
            raise ValueError(f"expected p to be even, got {self.p}")
        check_number(self, "slope", above=True)
        check_number(self, "w", above=False)
        if self.w is not None and self.preset == "paper":
            raise ValueError("w is a share within the calibrated presets; preset 'paper' has none")
        if self.solver == "admm" and (self.preset != "paper" or self.p is not None):
            raise ValueError("solver 'admm' solves preset 'paper' with its own norm; take solver='smooth'")

    # what LinearMethod asks for ------------------------------------------------------------------------

    def check_data(self, info: DataInfo) -> None:
        """Refuse more points than a state may hold."""
        wanted = self.wanted_components(info)
        width = wanted if isinstance(wanted, int) else info.n_features
        if self._count(info) * width > MAX_STATE:
            raise ValueError(
                f"{self.name} keeps its training points in its state, at most {MAX_STATE:,} numbers, "
                f"but {self._count(info):,} of {width} components are more; "
                f"take n_train={MAX_STATE // width} or less"
            )

    def train_blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return all leaves for the first round; the others need no rows."""
        return plan.leaves() if self.rounds_behind(state) == 0 else [RowRange(0, 0)]

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Gather the points, or go on with the solver."""
        info = data_info(state)
        if self.rounds_behind(state) == 0:
            whole = self._count(info) <= self.batch_size
            chosen, rotation = self._chosen(state), state.arrays["rotation"]
            return GatherPoints(front_of(state), chosen, rotation, info.dtype, whole=whole)
        scalars, steps = state.scalars, self._steps(state)
        best = Best.of(state.arrays, scalars) if self._selects(info) else None
        if self.solver == "admm":
            assert best is not None
            return Solve(partial(admm_round, state.arrays, scalars, best, self._slope, steps))
        scale = float(scalars.get("scale") or 0.0)
        loss = self._loss(batches=self._count(info) > self.batch_size)
        return Solve(partial(smooth_round, state.arrays, scale, best, loss, steps))

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Take over what the task found."""
        arrays = {name: array for name, array in summary.items() if array.ndim}
        scalars: dict[str, JSONScalar] = {name: float(a) for name, a in summary.items() if not a.ndim}
        return arrays, scalars

    def trained(self, state: RoundState) -> bool:
        """Tell whether ``n_iter`` rounds of steps have been made."""
        return self.rounds_behind(state) >= 1 + self.n_iter

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return one for the points and ``n_iter``."""
        return 1 + self.n_iter

    # private -------------------------------------------------------------------------------------------

    @property
    def _slope(self) -> float:
        return self.slope if self.slope is not None else 8.0 if self.preset == "paper" else 4.0

    def _loss(self, *, batches: bool) -> Loss:
        if self.preset == "paper":
            return Loss(self._slope, self.p, batches=batches)
        share = _SHARES[self.preset] if self.w is None else self.w
        return Loss(self._slope, self.p or 8, calibrated=True, share=share)

    def _count(self, info: DataInfo) -> int:
        most = self.batch_size if self.solver == "admm" else MAX_STATE
        return min(info.n_rows, most, self.n_train or 10_000)

    def _chosen(self, state: RoundState) -> np.ndarray | None:
        """Return the training points' row numbers, ascending; None for all."""
        info = data_info(state)
        count = self._count(info)
        if count == info.n_rows:
            return None
        rng = stream(integer(state, "seed"), "nibh.train")
        return np.sort(rng.choice(info.n_rows, count, replace=False)).astype(np.int64)

    def _selects(self, info: DataInfo) -> bool:
        return self.preset == "paper" and self._count(info) <= self.batch_size

    def _steps(self, state: RoundState) -> Steps:
        size = self.n_steps or _STEPS[self.solver]
        first, total = (self.rounds_behind(state) - 1) * size, self.n_iter * size
        return Steps(
            first, first + size, total, max(1, total // _CANDIDATES), integer(state, "seed"),
            self.batch_size, self.target, float(state.scalars["unit"] or 1.0),
        )  # fmt: skip
