"""Kernelized locality-sensitive hashing (Kulis and Grauman, 2009): random hyperplanes in a kernel's space.

With p rows x_i drawn from the data and K their kernel matrix, centred, bit j belongs to a random subset S_j
of t of them, whose mean, over the kernel's covariance, is nearly a Gaussian hyperplane (central limit
theorem):

    h_j(x) = sign(Σ_i w_ij k̃(x, x_i)),     w_j = K^(-1/2) e_(S_j),

with e_S one on S and zero elsewhere. Two rows at the angle θ as seen from the mean, in the kernel's space,
have equal bits with probability 1 - θ/π, as far as the p rows span that space.

The kernel centred like K is ``k̃(x, x_i) = k(x, x_i) - k̄(x) - k̄(x_i) + k̄``, where bars are means over the p
rows. As K 1 = 0, the weights of a bit add up to zero, so that what is the same for all i does not count:

    Σ_i w_i k̃(x, x_i) = Σ_i w_i (k(x, x_i) - k̄(x_i))

There is one round, which gathers the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.linalg

from ..affinity import Affinities
from ..affinity_encoder import AffinityEncoder
from ..encode import ProjectionEncoder
from ..kernels.exact import fixed_product
from ..points import middle
from ..random import stream
from .base import integer
from .checks import check_choice, check_count
from .sampled import SampledMethod
from .ssbc import affinities_of, check_sigma

if TYPE_CHECKING:
    from ..protocols import Encoder, JSONScalar, LeafPlan, RoundState

KERNELS = ("rbf", "linear")
_CUT = 1e-8  # eigenvalues below this share of the largest are taken for zero


@dataclass(frozen=True)
class KLSH(SampledMethod):
    """Random hyperplanes in the space of a kernel.

    Parameters
    ----------
    n_bits : int, default 64
    n_anchors : int, default 300
        Rows p drawn by the seed; all where there are not so many.
    n_subset : int, default 30
        Rows t of a hyperplane, at most half of those drawn.
    kernel : {"rbf", "linear"}
        ``exp(-‖x - y‖² / σ²)``, or the inner product.
    sigma : float or "auto"
        Width σ of "rbf".  "auto" is the root mean squared distance between the p rows.

    Notes
    -----
    p = 300 and t = 30 are the paper's.  Its kernels are those of images (χ², pyramid match) or are learned;
    the width of a Gaussian one is left open there, and these two are what is offered here.  The paper's
    program takes eigenvalues of K below 1e-8 for zero; here it is that share of the largest.

    The state records ``n_directions``, the rank of K.  Where it is 0 (one row, or all rows equal) weights
    are 0 and all bits one.  ``sigma`` in the state is 1 where distances are all 0 or the kernel is linear.
    """

    n_bits: int = 64
    n_anchors: int = 300
    n_subset: int = 30
    kernel: str = "rbf"
    sigma: float | str = "auto"
    name: ClassVar[str] = "klsh"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for field in ("n_bits", "n_anchors", "n_subset"):
            check_count(self, field)
        check_choice(self, "kernel", KERNELS)
        check_sigma(self)

    @property
    def sample_size(self) -> int:
        """As many rows as anchors."""
        return self.n_anchors

    def begin(
        self, state: RoundState, rows: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Take the rows as anchors and draw the hyperplanes."""
        origin = middle(rows)
        centred = rows.astype(np.float64) - origin
        with np.errstate(over="ignore", invalid="ignore"):
            gram, sigma = centred @ centred.T, 1.0
            if not np.isfinite(gram).all():
                raise ValueError(
                    "expected finite distances, but squared ones overflow float64; rescale the vectors"
                )
        if self.kernel == "rbf":
            sigma = self._width(gram)
            plain = Affinities(origin, rows, sigma, np.zeros(len(rows)))
            gram = np.concatenate([tile for _, tile in plain.tiles(rows, np.float64)])
        weights, rank = self._hyperplanes(gram, integer(state, "seed"))
        arrays = {"origin": origin, "anchors": rows, "affinity_mean": gram.mean(axis=0), "weights": weights}
        return arrays, {"phase": "done", "sigma": sigma, "n_directions": rank}

    def rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return 1."""
        return 1

    def encoder(self, state: RoundState) -> Encoder:
        """Return the encoder of a finished state."""
        self.check_done(state)
        arrays = state.arrays
        if self.kernel == "rbf":
            return AffinityEncoder(affinities_of(state), arrays["weights"])
        shifted = np.ascontiguousarray((arrays["anchors"].astype(np.float64) - arrays["origin"]).T)
        return ProjectionEncoder(arrays["origin"], fixed_product(shifted, arrays["weights"]))

    def _width(self, gram: np.ndarray) -> float:
        if not isinstance(self.sigma, str):
            return self.sigma
        n = len(gram)
        total = 2 * (n * float(np.trace(gram)) - float(gram.sum()))  # over ordered pairs
        return float(np.sqrt(max(total, 0.0) / max(n * (n - 1), 1))) or 1.0

    def _hyperplanes(self, gram: np.ndarray, seed: int) -> tuple[np.ndarray, int]:
        """Return the weights, shape (p, b), and the rank of the centred kernel matrix."""
        p, means = len(gram), gram.mean(axis=0)
        centred = gram - means - means[:, None] + means.mean()
        values, vectors = scipy.linalg.eigh((centred + centred.T) / 2, driver="evr", check_finite=False)
        rounding = p * np.finfo(np.float64).eps * float(np.abs(gram).max())
        there = values > max(_CUT * float(values[-1]), rounding)
        half = vectors[:, there] / np.sqrt(values[there])
        chosen, rng = np.zeros((p, self.n_bits)), stream(seed, "klsh.subsets")
        t = min(self.n_subset, max(p // 2, 1))
        for j in range(self.n_bits):
            chosen[rng.choice(p, t, replace=False), j] = 1
        weights = half @ (vectors[:, there].T @ chosen)
        return weights - weights.mean(axis=0), int(np.count_nonzero(there))
