"""Spherical hashing (Heo, Lee, He, Chang and Yoon, 2012): is a row in the sphere around a pivot?

    bit j = 1 where ‖x - p_j‖ <= r_j

Pivots are moved until bits are balanced and independent over n training rows: r_j is such that half of them
lie in each sphere, o_j = n / 2, and every two spheres are to have o_ij = n / 4 rows in common. Pivots that
share more push each other away, those that share less draw each other near, by the mean over all j of

    f_(i<-j) = (1/2) (o_ij - n/4) / (n/4) (p_i - p_j),

until the mean of |o_ij - n/4| is at most 10 % of n/4 and the standard deviation of o_ij at most 15 % of it.
With these codes goes the spherical Hamming distance ``|a xor b| / |a and b|`` (`spherical_hamming`): rows
that lie in the same spheres are near; plain Hamming distance counts being outside of both as well.

Rounds: training rows are gathered; then tasks of ten moves each; at the end the radii, from exact distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..points import Points, middle
from ..protocols import RowRange
from ..random import stream
from ..sphere_encoder import SphereEncoder
from .base import integer
from .checks import check_count, check_share
from .nibh_rounds import Solve
from .sampled import SampledMethod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocols import Accumulator, Arrays, BlockAddress, DataInfo, JSONScalar, LeafPlan, RoundState

MAX_STATE = 2**25  # numbers of training rows that a round's state may hold
_AT_ONCE = 10  # moves a round
_FIRST = 10  # rows whose mean a pivot is at first


@dataclass(frozen=True)
class SHD(SampledMethod):
    """Spheres that hold half of the training rows, every two a quarter in common.

    Parameters
    ----------
    n_bits : int, default 64
    n_train : int, default 10000
        Rows drawn by the seed to learn from; all where there are not so many.
    n_iter : int, default 100
        Moves of all pivots at most.
    mean_tolerance, spread_tolerance : float
        When to stop: mean deviation and standard deviation of overlaps, as shares of n / 4; the paper's 10 %
        and 15 %.

    Notes
    -----
    A pivot begins as the mean of ten training rows, drawn for each bit.  The squared radius is half-way
    between the squared distances of the last row within and the next one; rows on a sphere are in it, so
    that more than half are where distances are equal.  How many rows are learned from, and how many moves are
    made at most, are choices of ours: overlaps of more bits than the rows have dimensions may stay above the
    tolerance, or circle; then the last pivots are taken.

    The state records ``overlap_mean`` and ``overlap_spread`` (as shares of n / 4) and ``n_moves``.  Training
    rows live in every round's state but the last: more than 2²⁵ numbers are refused.
    """

    n_bits: int = 64
    n_train: int = 10000
    n_iter: int = 100
    mean_tolerance: float = 0.1
    spread_tolerance: float = 0.15
    name: ClassVar[str] = "shd"
    sparse: ClassVar[bool] = False
    training_only: ClassVar[tuple[str, ...]] = ("rows",)

    def __post_init__(self) -> None:
        for field in ("n_bits", "n_train", "n_iter"):
            check_count(self, field)
        check_share(self, "mean_tolerance", zero=True)
        check_share(self, "spread_tolerance", zero=True)

    @property
    def sample_size(self) -> int:
        """As many rows as are learned from."""
        return self.n_train

    def check_data(self, info: DataInfo) -> None:
        """Refuse more rows than a state may hold."""
        if min(self.n_train, info.n_rows) * info.n_features > MAX_STATE:
            raise ValueError(
                f"shd keeps its training rows in its state, at most {MAX_STATE:,} numbers, but "
                f"{min(self.n_train, info.n_rows):,} rows of {info.n_features} features are more; "
                f"take n_train={max(MAX_STATE // info.n_features, 1)} or less"
            )

    def begin(
        self, state: RoundState, rows: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Place the pivots among the rows."""
        rng = stream(integer(state, "seed"), "shd.pivots")
        few = min(_FIRST, len(rows))
        pivots = [middle(rows[rng.choice(len(rows), few, replace=False)]) for _ in range(self.n_bits)]
        return {"rows": rows, "pivots": np.stack(pivots)}, {"phase": "move", "n_moves": 0}

    def train_blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return no rows: they are in the state."""
        return [RowRange(0, 0)]

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Move the pivots."""
        moves = min(_AT_ONCE, self.n_iter - _AT_ONCE * (state.round - 1))
        last = state.round == self._n_rounds
        tolerances = self.mean_tolerance, self.spread_tolerance
        return Solve(
            partial(move, state.arrays["rows"], state.arrays["pivots"], moves, tolerances, last=last)
        )

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Keep the pivots, and in the end the radii."""
        arrays = {key: summary[key] for key in ("pivots", "squares") if key in summary}
        scalars: dict[str, JSONScalar] = {
            "n_moves": integer(state, "n_moves") + int(summary["moves"]),
            "overlap_mean": float(summary["overlaps"][0]),
            "overlap_spread": float(summary["overlaps"][1]),
            "phase": "done" if "squares" in summary else "move",
        }
        return arrays, scalars

    def rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return how many rounds there are; those after the last move have nothing to do."""
        return 1 + self._n_rounds

    def encoder(self, state: RoundState) -> SphereEncoder:
        """Return the encoder of a finished state."""
        self.check_done(state)
        return SphereEncoder(state.arrays["pivots"], state.arrays["squares"])

    @property
    def _n_rounds(self) -> int:
        return -(-self.n_iter // _AT_ONCE)


def move(
    rows: np.ndarray, pivots: np.ndarray, moves: int, tolerances: tuple[float, float], *, last: bool
) -> dict[str, np.ndarray]:
    """Move pivots so often, or until the tolerances are kept; at last find the radii as well.

    Parameters
    ----------
    rows : ndarray, shape (n, d)
    pivots : ndarray of float64, shape (b, d)
    moves : int
    tolerances : pair of float
    last : bool

    Returns
    -------
    dict
        ``pivots``, ``moves`` made, ``overlaps`` (deviation from a quarter: mean and spread), maybe
        ``squares``, the squared radii.
    """
    made, n = 0, len(rows)
    common = overlaps(_half(Points(pivots).distances(rows)[0])[1])
    found = deviation(common, n)
    while made < moves and not (found[0] <= tolerances[0] and found[1] <= tolerances[1]):
        pivots = pivots + forces(pivots, common, n)
        common = overlaps(_half(Points(pivots).distances(rows)[0])[1])
        made, found = made + 1, deviation(common, n)
    summary: dict[str, Any] = {"pivots": pivots, "moves": np.array(made)}
    if last:
        numbers, places = (a.ravel() for a in np.indices((n, len(pivots))))
        exact = Points(pivots).exact(rows, numbers, places).reshape(n, -1)
        summary["squares"], inside = _half(exact)
        found = deviation(overlaps(inside), n)
    return {**summary, "overlaps": np.array(found)}


def overlaps(inside: np.ndarray) -> np.ndarray:
    """Return how many rows every two spheres have in common, shape (b, b)."""
    members = inside.astype(np.float64)
    return np.asarray(members.T @ members)


def forces(pivots: np.ndarray, common: np.ndarray, n_rows: int) -> np.ndarray:
    """Return the mean force on each pivot, shape (b, d), from the overlaps of all spheres."""
    shares = 0.5 * (common / (n_rows / 4) - 1) / len(pivots)
    seen = pivots - middle(pivots)
    return shares.sum(axis=1)[:, None] * seen - shares @ seen


def deviation(common: np.ndarray, n_rows: int) -> tuple[float, float]:
    """Return mean and spread of how far overlaps are from a quarter of the rows, as shares of that."""
    if len(common) < 2:
        return 0.0, 0.0
    pairs = common[np.triu_indices(len(common), 1)] / (n_rows / 4)
    return float(np.abs(pairs - 1).mean()), float(pairs.std())


def _half(distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return squared radii such that half of the rows, rounded up, are inside, and which rows are."""
    half, n = (len(distances) + 1) // 2, len(distances)
    ordered = np.partition(distances, [half - 1, min(half, n - 1)], axis=0)
    within, beyond = ordered[half - 1], ordered[min(half, n - 1)]
    squares = within + (beyond - within) / 2
    return squares, distances <= squares
