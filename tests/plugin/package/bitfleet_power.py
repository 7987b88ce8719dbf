"""Signs of the leading principal directions, found by orthogonal iteration.

A round adds up ``S = Σ (x - mean) (x - mean)ᵀ W`` over all rows, and the next W is an orthonormal basis of
S's columns.  No covariance of d × d numbers is ever made.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from bitfleet.tasks.methods.base import LinearMethod, front_of, integer
from bitfleet.tasks.methods.checks import check_common, check_count
from bitfleet.tasks.random import stream
from bitfleet.tasks.sums import Sums, refuse_infinite


@dataclass(frozen=True)
class PowerHash(LinearMethod):
    """Signs of the leading principal directions.

    Parameters
    ----------
    n_bits : int, default 16
        At most as many as features.
    n_iter : int, default 10
        Passes over the data.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : None
        Of the base; not needed here.
    """

    n_bits: int = 16
    n_iter: int = 10
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "power_hash"
    sparse: ClassVar[bool] = False

    def __post_init__(self):
        check_common(self)
        check_count(self, "n_iter")

    def check_data(self, info):
        """Refuse more bits than features."""
        if self.n_bits > info.n_features:
            raise ValueError(
                f"expected at most a bit for each of {info.n_features} features, got n_bits={self.n_bits}"
            )

    def begin(self, front, seed, moments):
        """Draw the first directions: the same numbers for the same seed, wherever this runs."""
        start = stream(seed, "power_hash.start").standard_normal((front.n_outputs, self.n_bits))
        return {"weights": np.linalg.qr(start)[0]}

    def train_accumulator(self, state):
        """Say what a round adds up."""
        return Products(front_of(state), state.arrays["weights"])

    def train_advance(self, state, summary):
        """Return the next directions, and what a person may follow."""
        products, weights = summary["products"], state.arrays["weights"]
        variance = float(np.sum(weights * products)) / int(summary["count"])
        return {"weights": np.linalg.qr(products)[0]}, {"objective": variance}

    def trained(self, state):
        """Tell whether all passes are made."""
        return state.round - integer(state, "first_round") >= self.n_iter

    def training_rounds(self, state, plan):
        """Return how many rounds there will be."""
        return self.n_iter


class Products(Sums):
    """Accumulator of ``Σ (x - mean) (x - mean)ᵀ W`` and the number of rows."""

    def __init__(self, front, weights):
        self.front, self.weights = front, weights

    def init(self):
        """Return the sum over no rows."""
        return {"products": np.zeros(self.weights.shape), "count": np.zeros((), np.int64)}

    def update(self, state, block):
        """Add the rows of a block, which itself is never changed."""
        products = state["products"].copy()
        for rows in self.front.tiles(block.vectors, np.float64):
            products += rows.T @ (rows @ self.weights)
        return {"products": products, "count": state["count"] + len(block.rows)}

    def finalize(self, state):
        """Return the sum; refuse what is not finite."""
        refuse_infinite(state, "products")
        return state
