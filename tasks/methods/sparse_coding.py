"""SparseCoding: sets of atoms whose sum is the row's direction; least error a byte.  Ours.

Rows are brought to length one; atoms D (a row each) and codes h are to minimise ::

    Σ ‖ z_i - D' h_i ‖²   over D and h_i in {0, 1}^b with n_active ones.

Atoms begin as training rows, over as many of them as are on.  A round encodes all rows (`tasks.sparse_coder`)
and adds up ``H'H`` and ``H'Z``; then all atoms are solved for together, held where they were by a little
ridge:

    D ← (H'H + λ I)⁻¹ (H'Z + λ D),   λ = tr(H'H) / (50 b).

This is an additive quantizer with one codebook of which each word is taken at most once: the order of the
words is free, and `bitfleet.pack_active` does not store it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..kernels.accumulate import add_rows
from ..kernels.coding import MOST_ACTIVE
from ..kernels.decoding import count_pairs
from ..least_squares import solve_gram
from ..protocols import RowIndices
from ..random import stream
from ..sparse_coder import SparseCoder
from ..sums import Sums, refuse_infinite
from ..unit import unit_rows
from .base import LinearMethod, front_of, integer, sparse_components
from .checks import check_active, check_common, check_count, check_finished
from .knnh_sums import GatherRows

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

_START = 1.2  # atoms begin with this length over n_active
_HELD = 0.02


@dataclass(frozen=True)
class SparseCoding(LinearMethod):
    """Sparse coding with ones for coefficients.

    Parameters
    ----------
    n_bits : int, default 1024
        Number of atoms.
    n_active : int, default 43
        Ones per code, at most 1000.  Of 1,024: 18 fit into 16 bytes, 43 into 32, 75 into 48, 114 into 64.
    n_iter : int, default 5
        Passes over the data.
    n_exchanges : int, default 1
        How often each atom of a code may give way to a better one; 0 encodes in half the time.
    center : bool, default True
        Subtract the mean of the training rows.  For neighbours by cosine: False.
    n_components : int, float or None
        Principal components to work in, or the share of variance they must explain.  None: all features as
        they are while d <= n_bits, else ``n_active`` components.

    Notes
    -----
    Every round after the first records ``objective``, the mean squared error of rows of length one by the
    codes and atoms that it began with; not defined before.  Atoms that no row takes stay where they are.
    Rows equal to the mean have no direction: they teach nothing.
    """

    n_bits: int = 1024
    n_active: int = 43
    n_iter: int = 5
    n_exchanges: int = 1
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "sparse_coding"
    sparse: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_common(self)
        check_active(self)
        check_count(self, "n_iter")
        check_count(self, "n_exchanges", at_least=0)
        if self.n_active > MOST_ACTIVE:
            raise ValueError(f"expected n_active of at most {MOST_ACTIVE}, got {self.n_active}")

    def wanted_components(self, info: DataInfo) -> int | float | None:
        """Return ``n_active`` by default where d > n_bits."""
        return sparse_components(self, info)

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw atoms at random; the first round puts training rows in their place."""
        drawn = stream(seed, "sparse_coding.atoms").standard_normal((self.n_bits, front.n_outputs))
        return {"weights": self._first_length * unit_rows(drawn)[0]}

    def train_blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return some rows to begin with, then everything."""
        if "pass" in state.scalars:
            return plan.leaves()
        rng = stream(integer(state, "seed"), "sparse_coding.rows")
        rows = rng.choice(plan.n_rows, min(plan.n_rows, self.n_bits), replace=False)
        return [RowIndices(tuple(np.sort(rows).tolist()))]

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Gather the first atoms, or add up what all are solved from."""
        if "pass" not in state.scalars:
            return GatherRows(front_of(state), None)
        return AtomSums(self._encoder(state), front_of(state))

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Solve for all atoms."""
        weights = state.arrays["weights"].copy()
        if "pass" not in state.scalars:
            rows, nonzero = unit_rows(summary["rows"])
            weights[: len(rows)][nonzero] = self._first_length * rows[nonzero]
            return {"weights": weights}, {"pass": 0, "scale": 1.0}
        gram, cross, count = summary["gram"], summary["cross"], max(1, int(summary["count"]))
        scalars: dict[str, JSONScalar] = {"pass": integer(state, "pass") + 1}
        explained = 2 * np.sum(weights * cross) - np.sum((gram @ weights) * weights)
        scalars["objective"] = float(1 - explained / count)
        scalars["scale"] = float(np.sqrt(summary["square"] / count)) or 1.0
        held = _HELD * float(np.trace(gram)) / self.n_bits
        if held:
            weights = solve_gram(gram, cross + held * weights, held)
            weights /= np.maximum(1.0, np.linalg.norm(weights, axis=1, keepdims=True))
        return {"weights": weights}, scalars

    def trained(self, state: RoundState) -> bool:
        """Tell whether all passes have been made."""
        return state.scalars.get("pass") == self.n_iter

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return one round for the start and one a pass."""
        return 1 + self.n_iter

    def encoder(self, state: RoundState) -> SparseCoder:
        """Return the encoder of a finished state."""
        check_finished(self, state)
        return self._encoder(state)

    def _encoder(self, state: RoundState) -> SparseCoder:
        front, scale = front_of(state), state.scalars["scale"]
        assert isinstance(scale, float)
        atoms = state.arrays["weights"]
        return SparseCoder(front.mean, front.components, atoms, self.n_active, self.n_exchanges, scale)

    @property
    def _first_length(self) -> float:
        return min(1.0, _START / self.n_active)


class AtomSums(Sums):
    """Accumulator of ``H'H``, ``H'Z``, Σ‖x'‖² and the number of rows that have a direction.

    Parameters
    ----------
    encoder : SparseCoder
    front : Front
    """

    def __init__(self, encoder: SparseCoder, front: Front) -> None:
        self.encoder, self.front = encoder, front

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        n_bits = self.encoder.n_bits
        return {
            "gram": np.zeros((n_bits, n_bits)),
            "cross": np.zeros((n_bits, self.front.n_outputs)),
            "square": np.zeros(()),
            "count": np.zeros((), np.int64),
        }

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        active = self.encoder.active(block.vectors)
        start = 0
        for tile in self.front.tiles(block.vectors, np.float64):
            rows, nonzero = unit_rows(tile)
            mine = active[start : start + len(rows)]
            start += len(rows)
            if not nonzero.all():
                rows, mine, tile = rows[nonzero], mine[nonzero], tile[nonzero]
            count_pairs(mine, state["gram"])
            add_rows(state["cross"], mine, rows)
            with np.errstate(over="ignore"):
                state["square"] += np.einsum("ij,ij->", tile, tile)
            state["count"] += len(rows)
        return state

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums, the Gram matrix whole; refuse what is not finite."""
        refuse_infinite(state, "square", "cross")
        return {**state, "gram": state["gram"] + np.triu(state["gram"], 1).T}
