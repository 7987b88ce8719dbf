"""Binary optimal sparse lifting: codes whose overlaps follow the cosines of the rows, and a map to them.

With unit rows X (n, r), codes H of ``n_active`` ones minimise ``¼ ‖X Xᵀ - H Hᵀ‖²``. The codes are relaxed to
Y with ``0 <= Y <= 1``, held to H by multipliers L and a penalty λ, and found by turns (ADMM)::

    H = wta(λ Y - L),   Y lowers the augmented Lagrangian,   L = L + λ (H - Y)

Then ``W = argmin ‖X Wᵀ - Y‖²`` encodes any row as ``wta(W x)``.

The problem couples all pairs of rows: it does not come apart into blocks. Each iteration therefore gathers
the rows and is one task; Y and L (n, n_bits) are the state between iterations, dropped after the last. Hence
the limit on rows: train on a sample, encode everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..least_squares import solve_gram
from ..protocols import RoundState
from ..random import stream
from .base import Front, LinearMethod, data_info, front_of, integer, sparse_components
from .bosl_solver import best_codes, descend, target_of
from .checks import check_active, check_common, check_count

if TYPE_CHECKING:
    from ..protocols import Arrays, Block, DataInfo, JSONScalar, LeafPlan

MOST_ROWS = 20_000


@dataclass(frozen=True)
class BOSL(LinearMethod):
    """Winners among the projections on weights fitted to similarity-preserving sparse codes.

    Parameters
    ----------
    n_bits : int, default 1024
    n_active : int, default 32
        Ones per code.
    n_iter : int, default 10
        Iterations of ADMM.
    n_steps : int, default 10
        Descent steps on Y in each.
    penalty : float, default 1.0
        λ.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components to work in, or the share of variance they must explain.  None: all features as
        they are while d <= n_bits, else ``n_active`` components.

    Notes
    -----
    Every round records the augmented Lagrangian over n, after the codes followed (``objective_codes``) and
    after Y followed (``objective``), ``residual``, which is ``‖H - Y‖² / n``, and ``live_bits``, the number
    of bits that any code uses.  Blocks of float32 are computed in float32, the weights in float64.
    """

    n_bits: int = 1024
    n_active: int = 32
    n_iter: int = 10
    n_steps: int = 10
    penalty: float = 1.0
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "bosl"
    sparse: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_common(self)
        check_active(self)
        check_count(self, "n_iter")
        check_count(self, "n_steps")
        penalty = self.penalty
        number = float(penalty) if isinstance(penalty, (int, float, np.number)) else -1.0
        if isinstance(penalty, bool) or not 0 < number < np.inf:
            raise ValueError(f"expected penalty to be a number > 0, got {penalty!r}")
        object.__setattr__(self, "penalty", number)

    def check_data(self, info: DataInfo) -> None:
        """Refuse more rows than one task can hold."""
        if info.n_rows > MOST_ROWS:
            raise ValueError(
                f"bosl compares all pairs of rows in one task and takes at most {MOST_ROWS:,} rows, "
                f"got {info.n_rows:,}; train on a sample (the paper takes 5,000) and encode everything"
            )

    def wanted_components(self, info: DataInfo) -> int | float | None:
        """Return ``n_active`` by default where d > n_bits."""
        return sparse_components(self, info)

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw the weights from which Y begins."""
        return {"weights": stream(seed, "bosl.weights").standard_normal((self.n_bits, front.n_outputs))}

    def train_accumulator(self, state: RoundState) -> Lifting:
        """Gather the rows and make one iteration on them."""
        return Lifting(self, state)

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Take over what the task found."""
        arrays = {name: summary[name] for name in ("weights", "lifted", "multipliers")}
        scalars: dict[str, JSONScalar] = {
            name: float(summary[name]) for name in ("objective_codes", "objective", "residual")
        }
        scalars["live_bits"] = int(summary["live_bits"])
        return arrays, scalars

    def advance(self, state: RoundState, summary: Arrays) -> RoundState:
        """Return the next round's state; after the last iteration without Y and L."""
        following = super().advance(state, summary)
        if not self.done(following):
            return following
        kept = {k: v for k, v in following.arrays.items() if k not in ("lifted", "multipliers")}
        return RoundState(following.round, kept, following.scalars)

    def trained(self, state: RoundState) -> bool:
        """Tell whether ``n_iter`` iterations have been made."""
        return state.round - integer(state, "first_round") >= self.n_iter

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return ``n_iter``."""
        return self.n_iter


class Lifting:
    """Accumulator of the rows themselves, in order; its ``finalize`` makes one iteration on them."""

    sequential: ClassVar[bool] = False

    def __init__(self, method: BOSL, state: RoundState) -> None:
        self.method = method
        self.front = front_of(state)
        self.arrays = state.arrays
        self.dtype: type[np.floating[Any]] = np.float64 if data_info(state).dtype == "float64" else np.float32

    def init(self) -> dict[str, np.ndarray]:
        """Return no rows."""
        return {"rows": np.empty((0, self.front.n_outputs), self.dtype)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Append the rows of one block, each brought to unit length."""
        tiles = [_unit(rows).astype(self.dtype) for rows in self.front.tiles(block.vectors, np.float64)]
        return {"rows": np.concatenate([state["rows"], *tiles])}

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Append the later rows."""
        return {"rows": np.concatenate([left["rows"], right["rows"]])}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Let the codes, then Y, then L follow, and fit the weights to Y."""
        rows, method = state["rows"], self.method
        if not np.isfinite(rows).all():
            raise ValueError("expected finite vectors, but some hold NaN, infinity or huge numbers")
        weights = self.arrays["weights"]
        lifted = self.arrays.get("lifted")
        if lifted is None:
            lifted = (rows.astype(np.float64) @ weights.T).astype(self.dtype)
        multipliers = self.arrays.get("multipliers")
        if multipliers is None:
            multipliers = np.zeros_like(lifted)
        codes = best_codes(lifted, multipliers, method.penalty, method.n_active)
        target = target_of(codes, multipliers, method.penalty)
        found = descend(rows, lifted, target, method.penalty, method.n_steps)
        n = len(rows)
        residual = target_of(codes, np.zeros_like(multipliers), 1.0) - found.lifted
        return {
            "weights": _fit(rows, found.lifted, weights),
            "lifted": found.lifted,
            "multipliers": multipliers + lifted.dtype.type(method.penalty) * residual,
            "objective_codes": np.array(found.values[0] / n),
            "objective": np.array(found.values[-1] / n),
            "residual": np.array(np.square(residual, dtype=np.float64).sum() / n),
            "live_bits": np.array(np.count_nonzero(np.bincount(codes.ravel(), minlength=method.n_bits))),
        }


def _unit(rows: np.ndarray) -> np.ndarray:
    """Return rows of length one; zero rows stay zero."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows / np.where(lengths > 0, lengths, 1.0)


def _fit(rows: np.ndarray, lifted: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Return ``argmin ‖X Wᵀ - Y‖²``, shape (b, r); the old weights if all rows are zero."""
    rows = rows.astype(np.float64)
    gram = rows.T @ rows
    if not gram.any():
        return old
    return np.ascontiguousarray(solve_gram(gram, rows.T @ lifted).T)
