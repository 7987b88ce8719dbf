"""Procrustean orthogonal sparse hashing: winners among the projections on orthonormal columns.

With rows x seen from their mean, minimise over codes h with ``n_active`` ones and over W (n_bits, r)

    objective = Σ ‖h_i - W x_i‖² / n,   Wᵀ W = I,

by turns: ``h = wta(W x)``, then W from the Procrustes problem of ``M = Σ h_i x_iᵀ``, ``W = U Vᵀ``.
Since W keeps lengths, the objective follows from what a round adds up anyway::

    objective = n_active + (Σ‖x_i‖² - 2 tr(Wᵀ M)) / n

Schedules differ in how many rows M sums before W follows, and in what M remembers:

``reset``
    A whole pass, nothing remembered: one merge tree and one Procrustes problem a pass.
``union``
    A seeded subset of the leaves; M keeps the share ``1 - forget`` of itself.
``paper``
    Algorithm 1 to the letter: stored row order, W follows after every 100 rows, M is never reset; one
    sequential task a pass.

In the first two ``10⁻³ · W``, times the rows' root mean square length, is added to M before the
Procrustes step: it decides where the data has no variance, and cannot raise the objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..moments import pca
from ..procrustes import polar
from ..random import stream
from .assign import check_assign, encoder_of
from .base import Front, LinearMethod, data_info, front_of, integer, sparse_components
from .checks import check_active, check_common, check_count, check_share
from .posh_sums import AlgorithmOne, Winners
from .steps import STEPS_PER_PASS, count_rows, counter, current, deal, rows_of_a_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocols import (
        Accumulator,
        Arrays,
        BlockAddress,
        DataInfo,
        Encoder,
        JSONScalar,
        LeafPlan,
        RoundState,
    )

SCHEDULES = ("auto", "reset", "union", "paper")
_EPOCHS = {"reset": 10, "union": 10, "paper": 50}
_PAPER_BATCH = 100
_RIDGE = 1e-3


@dataclass(frozen=True)
class POSH(LinearMethod):
    """Winners among the projections on learned orthonormal columns.

    Parameters
    ----------
    n_bits : int, default 1024
    n_active : int, default 32
        Ones per code.
    schedule : {"auto", "reset", "union", "paper"}, default "auto"
        See the module; "auto" is "reset".
    n_epochs : int, optional
        Passes over the data; by default 10, with "paper" 50.
    batch_size : int, optional
        Rows a step: "paper" exactly so many (100); "union" and "reset" whole leaves of together at
        least so many ("union": a fifth of the data, at least 1000 and n_bits; "reset": all).
    forget : float, default 0.5
        Share of M that "union" forgets at each step.
    assign : {"wta", "greedy"}, default "wta"
        How rows are encoded once W is learned; see `tasks.methods.assign`.
    beta : float, optional
        Of "greedy".
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components to work in, or the share of variance they must explain.  None: all features as
        they are while d <= n_bits, else ``n_active`` components.

    Notes
    -----
    Every round records ``objective_codes`` (new codes, old weights), ``objective`` (same codes, new
    weights; with "paper" a single ``objective``, of each row's code under the weights of its time) and
    ``live_bits``, the number of bits that any of the round's rows switched on; bits that none did are
    learned from nothing. ``effective_bits`` is ``(Σ u)² / Σ u²`` of the bits' uses u: so many bits, evenly
    used, would concentrate the ones as much.
    """

    n_bits: int = 1024
    n_active: int = 32
    schedule: str = "auto"
    n_epochs: int | None = None
    batch_size: int | None = None
    forget: float = 0.5
    assign: str = "wta"
    beta: float | None = None
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "posh"
    sparse: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_common(self)
        check_active(self)
        if self.schedule not in SCHEDULES:
            raise ValueError(f"expected schedule to be one of {', '.join(SCHEDULES)}, got {self.schedule!r}")
        check_count(self, "n_epochs", optional=True)
        check_count(self, "batch_size", optional=True)
        check_share(self, "forget", zero=True)
        check_assign(self)
        forget = {"reset": 1.0, "union": self.forget, "paper": 0.0}[self._schedule]
        if self.batch_size is not None and self.batch_size < forget * self.n_bits:
            raise ValueError(
                f"schedule {self._schedule!r} with batch_size={self.batch_size} would fit {self.n_bits} bits "
                f"to about {self.batch_size / forget:.0f} remembered rows, which destroys the codes; "
                f"take batch_size >= {math.ceil(forget * self.n_bits)}, or forget less with schedule='union'"
            )

    @property
    def min_leaves(self) -> int:
        """Steps need leaves to choose from."""
        return STEPS_PER_PASS if self._schedule == "union" or self.batch_size is not None else 1

    def check_data(self, info: DataInfo) -> None:
        """Refuse fewer rows than a batch of Algorithm 1, which would never learn."""
        if self._schedule == "paper" and info.n_rows < self._paper_batch:
            raise ValueError(
                f"schedule 'paper' learns after every {self._paper_batch} rows, but there are "
                f"{info.n_rows}; take a smaller batch_size or another schedule"
            )

    def wanted_components(self, info: DataInfo) -> int | float | None:
        """Return ``n_active`` by default where d > n_bits."""
        return sparse_components(self, info)

    def most_components(self, info: DataInfo) -> int:
        """Return ``min(n_bits, d)``: W's columns must be orthonormal."""
        return min(self.n_bits, info.n_features)

    def needs_covariance(self, info: DataInfo) -> bool:
        """Say yes: principal components are worked in, or order the Procrustes problem."""
        return True

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw orthonormal weights; without components in front keep all of them for the Procrustes step."""
        drawn = stream(seed, "posh.weights").standard_normal((self.n_bits, front.n_outputs))
        arrays = {"weights": polar(drawn)}
        if front.components is None and moments is not None:
            arrays["basis"] = pca(moments, front.n_outputs, center=self.center)[0]
        if self._schedule == "paper":
            arrays["memory"] = arrays["weights"]
        if self._schedule == "union":
            arrays["memory"] = np.zeros_like(arrays["weights"])
        return arrays

    def train_blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return the leaves of this step: all of them, or the next of the pass's seeded subsets."""
        if self._schedule == "paper":
            return plan.leaves()
        return current(state, plan, self._steps(state, plan, counter(state, "epoch")))

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Add up winners under fixed weights, or run Algorithm 1 over a pass."""
        front = front_of(state)
        dtype = np.float64 if data_info(state).dtype == "float64" else np.float32
        if self._schedule == "paper":
            return AlgorithmOne(
                front,
                state.arrays["weights"],
                state.arrays["memory"],
                state.arrays.get("basis"),
                n_active=self.n_active,
                batch_size=self._paper_batch,
                dtype=np.float64 if front.components is None else dtype,
            )
        return Winners(front, state.arrays["weights"], n_active=self.n_active, dtype=dtype)

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Take over Algorithm 1's weights, or solve the Procrustes problem of the summed winners."""
        scalars = count_rows(state, int(summary["count"]))
        uses = summary["uses"].astype(np.float64)
        scalars["live_bits"] = int(np.count_nonzero(uses))
        scalars["effective_bits"] = float(uses.sum() ** 2 / np.square(uses).sum())
        if self._schedule == "paper":
            scalars["objective"] = self._objective(summary, float(summary["agreement"]))
            return {"weights": summary["weights"], "memory": summary["memory"]}, scalars
        old, total = state.arrays["weights"], summary["total"]
        arrays, target = {}, total
        if self._schedule == "union":
            arrays["memory"] = target = (1 - self.forget) * state.arrays["memory"] + total
        length = math.sqrt(float(summary["square"]) / int(summary["count"])) or 1.0
        arrays["weights"] = polar(target + _RIDGE * length * old, state.arrays.get("basis"))
        scalars["objective_codes"] = self._objective(summary, float(np.sum(old * total)))
        scalars["objective"] = self._objective(summary, float(np.sum(arrays["weights"] * total)))
        return arrays, scalars

    def trained(self, state: RoundState) -> bool:
        """Tell whether all passes have been made."""
        return counter(state, "epoch") >= self._n_epochs

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return one round a pass or a step."""
        if self._schedule == "paper":
            return self._n_epochs
        return sum(len(self._steps(state, plan, epoch)) for epoch in range(self._n_epochs))

    def train_flop(self, state: RoundState) -> int:
        """Count the products with components and weights, and the sum of winners."""
        weights, components = state.arrays["weights"], state.arrays.get("components")
        reduced = 0 if components is None else 2 * components.size
        return int(reduced + 2 * weights.size + 2 * self.n_active * weights.shape[1])

    def encoder(self, state: RoundState) -> Encoder:
        """Return the encoder of a finished state."""
        return encoder_of(self, state, super().encoder(state))

    @property
    def _schedule(self) -> str:
        return "reset" if self.schedule == "auto" else self.schedule

    @property
    def _n_epochs(self) -> int:
        return _EPOCHS[self._schedule] if self.n_epochs is None else self.n_epochs

    @property
    def _paper_batch(self) -> int:
        return _PAPER_BATCH if self.batch_size is None else self.batch_size

    def _steps(self, state: RoundState, plan: LeafPlan, epoch: int) -> list[list[int]]:
        """Deal the leaves of one pass into steps of enough rows, in seeded order; ascending in a step."""
        rows = self.batch_size
        if rows is None and self._schedule == "union":
            rows = rows_of_a_step(plan, self.n_bits)
        if rows is None:
            return [list(range(len(plan)))]
        return deal(plan, rows, stream(integer(state, "seed"), "posh.order", round=epoch))

    def _objective(self, summary: Arrays, agreement: float) -> float:
        return self.n_active + (float(summary["square"]) - 2 * agreement) / int(summary["count"])
