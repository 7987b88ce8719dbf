"""PursuitHash: sparse codes by greedy pursuit over a balanced dictionary.  Ours, not a published method.

Winner-take-all switches on bits that say the same: the directions nearest to a row are near to each other.
Here a bit that is switched on takes what it explains from the scores of all others (see `tasks.pursuit`), so
the next one says something new.  The dictionary is balanced spherical k-means: atoms begin as training rows,
and in every union step each row x', of length one, goes to the best atom ``s = argmax_j (E x' - b)_j``,

    M ← M / 2 + Σ s x'ᵀ,   E = rows of M over their lengths,
    b_j ← b_j + η sd(E x') log((u_j + t/10) / (1.1 t)),   u_j the share of rows, t = 1 / n_bits,

so that an atom which wins too often has to be better by more.  b belongs to training alone.  A step adds up
M (n_bits × r) and the winners' counts; there is no Procrustes problem and no decomposition.

Then whole passes with the codes h themselves, n_j of them with bit j.  A refinement moves every atom towards
what is left of its rows, and lowers ``Σ ‖x' - c Eᵀh‖²`` if few bits overlap::

    M_j = Σ h_j (x' - c Eᵀh) + c n_j E_j,   E = rows of M over their lengths

A balancing pass k moves a penalty p, which the encoder subtracts from the scores, by
``0.25 · 0.94^k · sd · log((u_j + t/10) / (1.1 t))``, now with ``t = n_active / n_bits`` and sd that of the
atoms' dots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..protocols import RowIndices
from ..pursuit import MOST_BETA, MOST_PENALTY, PursuitEncoder, usual_beta
from ..random import stream
from ..unit import unit_rows
from .base import LinearMethod, data_info, front_of, integer, sparse_components
from .checks import check_active, check_between, check_choice, check_common, check_count, check_finished
from .knnh_sums import GatherRows
from .pursuit_sums import AtomRows, BitUses, Unexplained
from .steps import STEPS_PER_PASS, count_rows, counter, current, deal, rows_of_a_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocols import (
        Accumulator,
        Arrays,
        BlockAddress,
        DataInfo,
        JSONScalar,
        LeafPlan,
        RoundState,
    )
    from .base import Front

DICTIONARIES = ("kmeans", "rows")
_FORGET = 0.5
_RATE, _BALANCING_RATE, _COOLING = 0.1, 0.25, 0.94
_FLOOR = 0.1  # of the fair share, added to every use
_MOST_OVERLAP = 1 / 16  # share of ones up to which a refinement helps


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
        more true neighbours; at most 2.8.  None: ``(n_active / 32)^0.45``, at most 1.8.
    n_rounds : int, optional
        In how many rounds bits are switched on; None: one by one.  8 come close to that.
    dictionary : {"kmeans", "rows"}, default "kmeans"
        "rows": training rows, drawn at random, as they are.
    n_epochs : int, default 5
        Passes over the data of "kmeans", each in steps of a fifth of the rows (at least 1000 and n_bits).
    n_refine : int, optional
        Passes after that which move atoms towards what codes leave unexplained.  None: one of "kmeans" with
        at most ``n_bits / 16`` ones, else none.  More than one seldom help; with many ones they harm.
    n_balance : int, default 0
        Passes after that which even out how often bits are used; 20 do.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components to work in, or the share of variance they must explain.  None: all features as
        they are while d <= n_bits, else ``n_active`` components.  Encoding costs as much as they are many.

    Notes
    -----
    Every round of "kmeans" records ``objective``, the mean cosine of rows and their atoms, and
    ``effective_atoms``, ``(Σ u)² / Σ u²`` of the atoms' uses; a refinement ``unexplained``, the mean
    ``‖x' - c Eᵀh‖²`` before it; both this and balancing the ``effective_bits`` of the codes before it.
    With fewer rows than bits the other atoms begin at random.  Rows equal to the mean have no direction: they
    belong to no atom.
    """

    n_bits: int = 1024
    n_active: int = 32
    beta: float | None = None
    n_rounds: int | None = None
    dictionary: str = "kmeans"
    n_epochs: int = 5
    n_refine: int | None = None
    n_balance: int = 0
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "pursuit_hash"
    sparse: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_common(self)
        check_active(self)
        check_choice(self, "dictionary", DICTIONARIES)
        check_count(self, "n_epochs")
        check_count(self, "n_refine", 0, optional=True)
        check_count(self, "n_balance", 0)
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
            "penalty": np.zeros(self.n_bits),
        }

    def train_blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return some rows to begin with, then the leaves of one step after the other, then all of them."""
        if _is_first(state):
            rng = stream(integer(state, "seed"), "pursuit_hash.rows")
            rows = rng.choice(plan.n_rows, min(plan.n_rows, self.n_bits), replace=False)
            return [RowIndices(tuple(np.sort(rows).tolist()))]
        if self._stage(state) == "kmeans":
            return current(state, plan, self._steps(state, plan, counter(state, "epoch")))
        return plan.leaves()

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Gather the first atoms, or add up each atom's rows, what is unexplained, or uses of bits."""
        front = front_of(state)
        if _is_first(state):
            return GatherRows(front, None)
        stage = self._stage(state)
        if stage == "refine":
            return Unexplained(front, self._encoder(state), self.n_active)
        if stage == "balance":
            return BitUses(self._encoder(state))
        dtype = np.float64 if data_info(state).dtype == "float64" else np.float32
        return AtomRows(front, state.arrays["weights"], state.arrays["bias"], dtype)

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Turn every atom to the sum of its rows, and make those that win too often pay for it."""
        if _is_first(state):
            weights = state.arrays["weights"].copy()
            rows, nonzero = unit_rows(summary["rows"])
            weights[: len(rows)][nonzero] = rows[nonzero]
            return {"weights": weights}, {"epoch": 0, "rows_in_epoch": 0}
        stage = self._stage(state)
        if stage == "refine":
            return self._refined(state, summary)
        if stage == "balance":
            return self._balanced(state, summary)
        memory = (1 - _FORGET) * state.arrays["memory"] + summary["total"]
        uses, count = summary["uses"].astype(np.float64), int(summary["count"])
        spread = _deviation(summary, uses.sum() * self.n_bits)
        bias = state.arrays["bias"] + _RATE * spread * _excess(uses, uses.sum(), 1 / self.n_bits)
        scalars = count_rows(state, count)
        scalars["objective"] = float(np.sum(state.arrays["weights"] * summary["total"])) / count
        scalars["effective_atoms"] = _effective(uses)
        return {"weights": _turned(state, memory), "memory": memory, "bias": bias}, scalars

    def trained(self, state: RoundState) -> bool:
        """Tell whether all passes have been made."""
        return not _is_first(state) and self._stage(state) == "done"

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return one round for the start, one a step, and one for each pass after them."""
        steps = sum(len(self._steps(state, plan, epoch)) for epoch in range(self._n_epochs))
        return 1 + steps + self._n_refine + self.n_balance

    def encoder(self, state: RoundState) -> PursuitEncoder:
        """Return the encoder of a finished state."""
        check_finished(self, state)
        return self._encoder(state)

    # private -------------------------------------------------------------------------------------------

    def _stage(self, state: RoundState) -> str:
        """Return what the next round after the first does: "kmeans", "refine", "balance", or it is "done"."""
        if counter(state, "epoch") < self._n_epochs:
            return "kmeans"
        if counter(state, "refined") < self._n_refine:
            return "refine"
        return "balance" if counter(state, "balanced") < self.n_balance else "done"

    def _encoder(self, state: RoundState) -> PursuitEncoder:
        front, arrays = front_of(state), state.arrays
        beta = usual_beta(self.n_active) if self.beta is None else self.beta
        parts = front.mean, front.components, arrays["weights"], self.n_active, beta, self.n_rounds
        return PursuitEncoder(*parts, arrays["penalty"])

    def _refined(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Move every atom towards the mean of what is left of its rows."""
        encoder, uses = self._encoder(state), summary["uses"].astype(np.float64)
        share = encoder.beta / self.n_active
        sums = summary["total"] + share * uses[:, None] * state.arrays["weights"]
        scalars: dict[str, JSONScalar] = {
            "refined": counter(state, "refined") + 1,
            "unexplained": float(summary["square"]) / int(summary["count"]),
            "effective_bits": _effective(uses),
        }
        return {"weights": _turned(state, sums)}, scalars

    def _balanced(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Make bits that are on too often pay for it."""
        passed, uses = counter(state, "balanced"), summary["uses"].astype(np.float64)
        rate = _BALANCING_RATE * _COOLING**passed * _spread(state.arrays["weights"])
        penalty = state.arrays["penalty"]
        penalty = penalty + rate * _excess(uses, int(summary["count"]), self.n_active / self.n_bits)
        penalty = np.clip(penalty, -MOST_PENALTY, MOST_PENALTY)
        return {"penalty": penalty}, {"balanced": passed + 1, "effective_bits": _effective(uses)}

    @property
    def _n_epochs(self) -> int:
        return self.n_epochs if self.dictionary == "kmeans" else 0

    @property
    def _n_refine(self) -> int:
        if self.n_refine is not None:
            return self.n_refine
        return int(self.dictionary == "kmeans" and self.n_active <= _MOST_OVERLAP * self.n_bits)

    def _steps(self, state: RoundState, plan: LeafPlan, epoch: int) -> list[list[int]]:
        rng = stream(integer(state, "seed"), "pursuit_hash.order", round=epoch)
        return deal(plan, rows_of_a_step(plan, self.n_bits), rng)


def _is_first(state: RoundState) -> bool:
    """Tell whether the atoms are still to be taken from the data."""
    return "epoch" not in state.scalars


def _turned(state: RoundState, sums: np.ndarray) -> np.ndarray:
    """Return the directions of the sums, and the atom as it was where there is none."""
    turned, nonzero = unit_rows(sums)
    return np.where(nonzero[:, None], turned, state.arrays["weights"])


def _excess(uses: np.ndarray, count: float, fair: float) -> np.ndarray:
    """Return the logarithm of how often each is used over the fair share, both a little raised."""
    excess: np.ndarray = np.log((uses / max(1.0, count) + _FLOOR * fair) / ((1 + _FLOOR) * fair))
    return excess


def _effective(uses: np.ndarray) -> float:
    return float(uses.sum() ** 2 / max(1.0, np.square(uses).sum()))


def _deviation(summary: Arrays, n_scores: float) -> float:
    """Return the standard deviation of the scores, 0 of none."""
    first, second = summary["scores"] / max(1.0, n_scores)
    return float(np.sqrt(max(0.0, second - first**2)))


def _spread(atoms: np.ndarray) -> float:
    """Return the standard deviation of all atoms' dots."""
    second = np.square(atoms.T @ atoms).sum() / len(atoms) ** 2
    first = np.square(atoms.sum(axis=0)).sum() / len(atoms) ** 2
    return float(np.sqrt(max(0.0, second - first**2)))
