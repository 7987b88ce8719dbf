"""The fruit fly's olfactory hash (Dasgupta, Stevens and Navlakha, 2017): winners among binary sums.

``h = wta(W (x - mean))`` with ``W_jk`` Bernoulli(density) in {0, 1}: every bit sums a random few of the
features, and the ``n_active`` largest of many sums are switched on. Nothing is learned but the mean
(and, where there are more features than bits, principal components).

``matrix="orthogonal"`` draws W uniformly among the matrices with orthonormal columns instead, which keep
all angles (POSH paper, Figure 1b): the random start of POSH, and what its learning has to beat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..procrustes import random_orthonormal
from ..random import stream
from .base import Front, LinearMethod, sparse_components
from .checks import check_active, check_choice, check_common, check_share

if TYPE_CHECKING:
    from ..protocols import Arrays, DataInfo

MATRICES = ("bernoulli", "orthogonal")


@dataclass(frozen=True)
class FruitFly(LinearMethod):
    """Winners among random projections, sparse and binary ones as in the fly.

    Parameters
    ----------
    n_bits : int, default 1024
    n_active : int, default 32
        Ones per code.
    density : float, default 0.2
        Share of the features that a bit sums, in (0, 1]; of no effect on orthogonal projections.
    matrix : {"bernoulli", "orthogonal"}, default "bernoulli"
        How the projection is drawn.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components to project on first, or the share of variance they must explain.  None: no
        projection while d <= n_bits, else ``n_active`` components.

    Notes
    -----
    With few features some bits sum none of them; their score is 0 for every row.  One pass over the data,
    none with ``center=False`` and no components.
    """

    n_bits: int = 1024
    n_active: int = 32
    density: float = 0.2
    matrix: str = "bernoulli"
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "fruit_fly"
    sparse: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_common(self)
        check_active(self)
        check_share(self, "density")
        check_choice(self, "matrix", MATRICES)

    def wanted_components(self, info: DataInfo) -> int | float | None:
        """Return ``n_active`` by default where d > n_bits."""
        return sparse_components(self, info)

    def most_components(self, info: DataInfo) -> int:
        """Return ``min(n_bits, d)`` where the projection's columns must be orthonormal, else d."""
        return min(self.n_bits, info.n_features) if self.matrix == "orthogonal" else info.n_features

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw the projection, a row per bit."""
        if self.matrix == "orthogonal":
            rng = stream(seed, "fruit_fly.orthogonal")
            return {"weights": random_orthonormal(rng, self.n_bits, front.n_outputs)}
        drawn = stream(seed, "fruit_fly.projection").random((self.n_bits, front.n_outputs))
        return {"weights": (drawn < self.density).astype(np.uint8)}
