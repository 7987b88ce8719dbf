"""PursuitHash: sparse codes by greedy pursuit over a balanced dictionary.  Ours, not a published method.

Winner-take-all switches on bits that say the same: the directions nearest to a row are near to each other.
Here a bit that is switched on takes what it explains from the scores of all others (see `tasks.pursuit`), so
the next one says something new.  The dictionary is balanced spherical k-means: atoms begin as training rows,
and in every union step each row x', of length one, goes to the best atom ``s = argmax_j (E x' - b)_j``,

    M ← M / 2 + Σ s x'ᵀ,   E = rows of M over their lengths,
    b_j ← b_j + η sd(E x') log((u_j + t/10) / (1.1 t)),   u_j the share of rows, t = 1 / n_bits,

so that an atom which wins too often has to be better by more.  b belongs to training alone.  A step adds up
M (n_bits × r) and the winners' counts; there is no Procrustes problem and no decomposition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..kernels.accumulate import add_rows
from ..protocols import RowIndices
from ..pursuit import MOST_BETA, PursuitEncoder
from ..random import stream
from ..sums import Sums, refuse_infinite
from ..unit import unit_rows
from .base import LinearMethod, data_info, front_of, integer, sparse_components
from .checks import check_active, check_between, check_common, check_count
from .knnh_sums import GatherRows
from .steps import STEPS_PER_PASS, count_rows, counter, current, deal, rows_of_a_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocols import (
        Accumulator,
        Arrays,
        Block,
        BlockAddress,
        DataInfo,
        JSONScalar,
        LeafPlan,
        RoundState,
    )
    from .base import Front

_FORGET = 0.5
_RATE = 0.1
_FLOOR = 0.1  # of the fair share, added to every use


@dataclass(frozen=True)
class PursuitHash(LinearMethod):
    """Greedy pursuit over a dictionary by balanced spherical k-means.

    Parameters
    ----------
    n_bits : int, default 1024
        Number of atoms.
    n_active : int, default 32
        Ones per code.
    beta : float, optional
        How much of what it explains a bit takes from the others: 0 is winner-take-all; less favours labels,
        more true neighbours; at most 2.8.  None: ``0.7 + 0.3 log2(n_active / 16)``, within .7 and 1.6.
    n_rounds : int, optional
        In how many rounds bits are switched on; None: one by one.  8 come close to that.
    n_epochs : int, default 5
        Passes over the data, each in steps of a fifth of the rows (at least 1000 and n_bits).
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components to work in, or the share of variance they must explain.  None: all features as
        they are while d <= n_bits, else ``n_active`` components.  Encoding costs as much as they are many.

    Notes
    -----
    Every round records ``objective``, the mean cosine of rows and their atoms, and ``effective_atoms``,
    ``(Σ u)² / Σ u²`` of the atoms' uses.  With fewer rows than bits the other atoms begin at random.
    Rows equal to the mean have no direction: they belong to no atom.
    """

    n_bits: int = 1024
    n_active: int = 32
    beta: float | None = None
    n_rounds: int | None = None
    n_epochs: int = 5
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "pursuit_hash"
    sparse: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_common(self)
        check_active(self)
        check_count(self, "n_epochs")
        check_count(self, "n_rounds", optional=True)
        if self.beta is not None:
            check_between(self, "beta", 0.0, MOST_BETA)

    def wanted_components(self, info: DataInfo) -> int | float | None:
        """Return ``n_active`` by default where d > n_bits."""
        return sparse_components(self, info)

    @property
    def min_leaves(self) -> int:
        """Steps need leaves to choose from."""
        return STEPS_PER_PASS

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw atoms at random; the first round puts training rows in their place."""
        drawn = stream(seed, "pursuit_hash.atoms").standard_normal((self.n_bits, front.n_outputs))
        return {
            "weights": unit_rows(drawn)[0],
            "memory": np.zeros(drawn.shape),
            "bias": np.zeros(self.n_bits),
        }

    def train_blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return some rows to begin with, then the leaves of one step after the other."""
        if _is_first(state):
            rng = stream(integer(state, "seed"), "pursuit_hash.rows")
            rows = rng.choice(plan.n_rows, min(plan.n_rows, self.n_bits), replace=False)
            return [RowIndices(tuple(np.sort(rows).tolist()))]
        return current(state, plan, self._steps(state, plan, counter(state, "epoch")))

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Gather the first atoms, or add up each atom's rows."""
        front = front_of(state)
        if _is_first(state):
            return GatherRows(front, None)
        dtype = np.float64 if data_info(state).dtype == "float64" else np.float32
        return AtomRows(front, state.arrays["weights"], state.arrays["bias"], dtype)

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Turn every atom to the sum of its rows, and make those that win too often pay for it."""
        weights = state.arrays["weights"].copy()
        if _is_first(state):
            rows, nonzero = unit_rows(summary["rows"])
            weights[: len(rows)][nonzero] = rows[nonzero]
            return {"weights": weights}, {"epoch": 0, "rows_in_epoch": 0}
        memory = (1 - _FORGET) * state.arrays["memory"] + summary["total"]
        turned, nonzero = unit_rows(memory)
        weights[nonzero] = turned[nonzero]
        uses, count = summary["uses"].astype(np.float64), int(summary["count"])
        fair = 1 / self.n_bits
        excess = np.log((uses / max(1.0, uses.sum()) + _FLOOR * fair) / ((1 + _FLOOR) * fair))
        bias = state.arrays["bias"] + _RATE * _deviation(summary, uses.sum() * self.n_bits) * excess
        scalars = count_rows(state, count)
        scalars["objective"] = float(np.sum(state.arrays["weights"] * summary["total"])) / count
        scalars["effective_atoms"] = float(uses.sum() ** 2 / max(1.0, np.square(uses).sum()))
        return {"weights": weights, "memory": memory, "bias": bias}, scalars

    def trained(self, state: RoundState) -> bool:
        """Tell whether all passes have been made."""
        return counter(state, "epoch") >= self.n_epochs

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return one round for the start and one a step."""
        return 1 + sum(len(self._steps(state, plan, epoch)) for epoch in range(self.n_epochs))

    def encoder(self, state: RoundState) -> PursuitEncoder:
        """Return the encoder of a finished state."""
        if not self.done(state):
            raise ValueError(f"{self.name} is not trained yet: round {state.round} is not its last")
        front = front_of(state)
        atoms = state.arrays["weights"]
        return PursuitEncoder(front.mean, front.components, atoms, self.n_active, self._beta, self.n_rounds)

    @property
    def _beta(self) -> float:
        if self.beta is not None:
            return self.beta
        return min(max(0.7, 0.7 + 0.3 * math.log2(self.n_active / 16)), 1.6)

    def _steps(self, state: RoundState, plan: LeafPlan, epoch: int) -> list[list[int]]:
        rng = stream(integer(state, "seed"), "pursuit_hash.order", round=epoch)
        return deal(plan, rows_of_a_step(plan, self.n_bits), rng)


class AtomRows(Sums):
    """Accumulator of each atom's rows, of length one, of their counts, and of the scores' moments.

    Parameters
    ----------
    front : Front
    atoms : ndarray of float64, shape (b, r)
    bias : ndarray of float64, shape (b,)
        Subtracted from the scores.
    dtype : type
        In which scores are computed.
    """

    def __init__(
        self, front: Front, atoms: np.ndarray, bias: np.ndarray, dtype: type[np.floating[Any]]
    ) -> None:
        self.front, self.dtype, self.shape = front, dtype, atoms.shape
        self.columns = np.ascontiguousarray(atoms.T, dtype=dtype)
        self.bias = bias.astype(dtype)

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        return {
            "total": np.zeros(self.shape),
            "uses": np.zeros(self.shape[0], np.int64),
            "scores": np.zeros(2),
            "count": np.zeros((), np.int64),
        }

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        for tile in self.front.tiles(block.vectors, np.float64):
            rows, nonzero = unit_rows(tile)
            rows = rows if nonzero.all() else rows[nonzero]
            scores = rows.astype(self.dtype, copy=False) @ self.columns
            state["scores"] += (scores.sum(dtype=np.float64), np.square(scores).sum(dtype=np.float64))
            scores -= self.bias
            best = scores.argmax(axis=1)
            add_rows(state["total"], best[:, None].astype(np.int32), rows)
            state["uses"] += np.bincount(best, minlength=self.shape[0])
        state["count"] += len(block.vectors)
        return state

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums; refuse what is not finite."""
        refuse_infinite(state, "total")
        return state


def _is_first(state: RoundState) -> bool:
    """Tell whether the atoms are still to be taken from the data."""
    return "epoch" not in state.scalars


def _deviation(summary: Arrays, n_scores: float) -> float:
    """Return the standard deviation of the scores, 0 of none."""
    first, second = summary["scores"] / max(1.0, n_scores)
    return float(np.sqrt(max(0.0, second - first**2)))
