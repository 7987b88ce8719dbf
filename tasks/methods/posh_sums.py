"""What POSH adds up: winners under fixed weights, or a whole pass of the paper's Algorithm 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..kernels.accumulate import add_rows
from ..kernels.wta import top_active
from ..procrustes import polar
from ..sums import Sums, refuse_infinite

if TYPE_CHECKING:
    from ..protocols import Block
    from .base import Front


class Winners(Sums):
    """Accumulator of ``M = Σ wta(W x) xᵀ``, ``Σ ‖x‖²``, the uses of each bit and the number of rows.

    Scores are computed in the blocks' own precision, sums in float64.
    """

    def __init__(
        self, front: Front, weights: np.ndarray, *, n_active: int, dtype: type[np.floating[Any]]
    ) -> None:
        self.front = front
        self.n_active = n_active
        self.dtype = dtype
        self.shape = weights.shape
        self.columns = np.ascontiguousarray(weights.T, dtype=dtype)

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        return {
            "total": np.zeros(self.shape),
            "square": np.zeros(()),
            "uses": np.zeros(self.shape[0], np.int64),
            "count": np.zeros((), np.int64),
        }

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        for rows in self.front.tiles(block.vectors, self.dtype):
            active = top_active(rows @ self.columns, self.n_active)
            add_rows(state["total"], active, rows)
            state["uses"] += np.bincount(active.ravel(), minlength=self.shape[0])
            state["square"] += np.einsum("ij,ij->", rows, rows, dtype=np.float64)
        state["count"] += len(block.vectors)
        return state

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums; refuse what is not finite."""
        refuse_infinite(state, "square", "total")
        return state


class AlgorithmOne:
    """One epoch of Algorithm 1, row after row, as a sequential accumulator.

    Rows of one batch share W, so they are scored together; M grows row by row in stored order, and W
    follows after every ``batch_size`` rows counted from the start of the epoch, wherever blocks begin
    and end. Rows after the last full batch enter M and wait there for the next epoch. All in float64, except
    that principal components of float32 rows, and scores of these, are ``dtype``.

    With a basis (principal components of the data) rows, M and W are turned to it for the epoch: there the
    Procrustes problem is accurate, and nothing need be turned at each of its steps. `finalize` turns back.
    """

    sequential: ClassVar[bool] = True

    def __init__(
        self,
        front: Front,
        weights: np.ndarray,
        memory: np.ndarray,
        basis: np.ndarray | None,
        *,
        n_active: int,
        batch_size: int,
        dtype: type[np.floating[Any]] = np.float64,
    ) -> None:
        self.front = front
        self.weights = weights
        self.memory = memory
        self.basis = basis
        self.n_active = n_active
        self.batch_size = batch_size
        self.dtype = dtype

    def init(self) -> dict[str, np.ndarray]:
        """Return the weights and the memory of the last epoch, and sums over no rows."""
        return {
            "weights": self._turned(np.array(self.weights)),
            "memory": self._turned(np.array(self.memory)),
            "agreement": np.zeros(()),
            "square": np.zeros(()),
            "uses": np.zeros(len(self.weights), np.int64),
            "count": np.zeros((), np.int64),
        }

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Learn from the rows of one block."""
        for tile in self.front.tiles(block.vectors, self.dtype):
            rows, start = self._turned(tile), 0
            while start < len(rows):
                room = self.batch_size - int(state["count"]) % self.batch_size
                self._learn(state, rows[start : start + room])
                start += room
        return state

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Refuse: every row is coded with what was learned from the rows before it."""
        raise TypeError("Algorithm 1 is sequential: its states cannot be merged")

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the state in the coordinates that weights and memory came in."""
        if self.basis is None:
            return state
        turned = {key: np.ascontiguousarray(state[key] @ self.basis.T) for key in ("weights", "memory")}
        return {**state, **turned}

    def _turned(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.basis is None else rows @ self.basis

    def _learn(self, state: dict[str, np.ndarray], rows: np.ndarray) -> None:
        """Add rows of one batch; at its end solve the Procrustes problem."""
        scores = rows @ state["weights"].T.astype(self.dtype, copy=False)
        active = top_active(scores, self.n_active)
        add_rows(state["memory"], active, rows)
        state["agreement"] += np.take_along_axis(scores, active, axis=1).sum(dtype=np.float64)
        state["square"] += np.einsum("ij,ij->", rows, rows, dtype=np.float64)
        state["uses"] += np.bincount(active.ravel(), minlength=len(state["uses"]))
        state["count"] += len(rows)
        if int(state["count"]) % self.batch_size == 0:
            state["weights"] = polar(state["memory"])
