"""Anchor graph hashing (Liu, Wang, Kumar and Chang, 2011): signs of a neighbourhood graph's eigenfunctions.

Rows are neighbours through m anchors u_j, centres of k-means. With the s nearest anchors of row x alone,

    z_j(x) = exp(-‖x - u_j‖² / t) / Σ_j' exp(-‖x - u_j'‖² / t),     Λ = diag(Zᵀ 1),

the graph's adjacency is ``Z Λ⁻¹ Zᵀ`` and its Laplacian ``I - Z Λ⁻¹ Zᵀ``. Eigenvectors of both come from the
m × m matrix ``M = Λ^(-1/2) Zᵀ Z Λ^(-1/2)``: if ``M v = σ v``, then ``y = Z w`` with
``w = √n Λ^(-1/2) v σ^(-1/2)`` is one of the adjacency, and for a new row so is the function ``z(x) w``. The
code is the signs of the largest, but for the trivial one, which is constant: b of them with one layer.

Two layers take b / 2 and give each a second bit: with g = |y|, 1⁺ where y >= 0 and 1⁻ elsewhere, thresholds
b⁺ and b⁻ minimise ``vᵀ L v`` of ``v = g - b⁺ 1⁺ + b⁻ 1⁻`` under ``1ᵀ v = 0`` with the Laplacian L,

    b⁺ = (1ᵀ g + n⁻ q) / n,    b⁻ = (n⁺ q - 1ᵀ g) / n,    q = 1⁺ᵀ L g / 1⁺ᵀ L 1⁺.

Rounds: rows drawn as the first centres; ``n_iter`` of k-means; a pass for the width, ``√t`` the mean distance
to the s-th nearest anchor, as in the authors' program; a pass for ``Zᵀ Z``, whose row sums are Λ; with two
layers one more for the thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.linalg

from ..anchor_encoder import AnchorEncoder, AnchorWeights
from ..points import Points
from ..procrustes import random_orthonormal
from ..random import stream
from .agh_sums import AnchorDistance, AnchorGraph, AnchorHalves, CentreSums
from .base import integer
from .checks import check_count
from .sampled import SampledMethod

if TYPE_CHECKING:
    from ..protocols import Accumulator, Arrays, JSONScalar, LeafPlan, RoundState


@dataclass(frozen=True)
class AGH(SampledMethod):
    """Signs of the leading eigenfunctions of the anchor graph.

    Parameters
    ----------
    n_bits : int, default 64
    n_anchors : int, default 300
        Centres m; all rows where there are not so many.
    n_nearest : int, default 5
        Anchors s that a row is attached to.
    n_iter : int, default 5
        Rounds of k-means, from rows drawn by the seed; 0: anchors are those rows.
    n_layers : {1, 2}
        Bits from each eigenfunction; 2 wants an even ``n_bits``, second bits come after all first ones.

    Notes
    -----
    The authors take m = 300 and say that s is to be chosen between 2 and m / 10; the number of rounds of
    k-means is not published.  A graph of several components has as many constant eigenvectors: their program
    leaves out all with eigenvalues above .999, ours only the one that is constant over all rows, exactly.

    The state records ``width`` (√t), ``objective`` of k-means (mean squared distance to the nearest centre)
    and ``n_directions``; where there are fewer than bits, the weights are a random mixture of them, and zero
    (all bits one) where there is none.  Eigenvalues are in the array ``spectrum``.
    """

    n_bits: int = 64
    n_anchors: int = 300
    n_nearest: int = 5
    n_iter: int = 5
    n_layers: int = 1
    name: ClassVar[str] = "agh"
    sparse: ClassVar[bool] = False
    training_only: ClassVar[tuple[str, ...]] = ("degrees",)

    def __post_init__(self) -> None:
        for field in ("n_bits", "n_anchors", "n_nearest"):
            check_count(self, field)
        check_count(self, "n_iter", 0)
        check_count(self, "n_layers")
        if self.n_layers > 2 or self.n_bits % self.n_layers:
            raise ValueError(
                f"expected n_layers to be 1, or 2 with an even n_bits, got n_layers={self.n_layers}, "
                f"n_bits={self.n_bits}"
            )
        if self.n_anchors <= self.n_bits:
            raise ValueError(
                f"expected n_anchors > n_bits = {self.n_bits}, for a graph of m anchors has m - 1 "
                f"eigenfunctions that are not constant; got n_anchors={self.n_anchors}"
            )
        if self.n_nearest > self.n_anchors:
            raise ValueError(
                f"expected n_nearest <= n_anchors = {self.n_anchors}, got n_nearest={self.n_nearest}"
            )

    @property
    def sample_size(self) -> int:
        """As many rows as anchors."""
        return self.n_anchors

    def begin(
        self, state: RoundState, rows: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Take the rows as centres."""
        return {"anchors": rows.astype(np.float64)}, {"phase": "cluster" if self.n_iter else "width"}

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Add up the rows of each centre, distances, or the graph."""
        phase, anchors = state.scalars["phase"], Points(state.arrays["anchors"])
        if phase == "cluster":
            return CentreSums(anchors)
        if phase == "width":
            return AnchorDistance(anchors, min(self.n_nearest, len(anchors)))
        if phase == "graph":
            return AnchorGraph(self.attachment(state))
        return AnchorHalves(AnchorEncoder(self.attachment(state), state.arrays["weights"]))

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Move the centres, set the width, or solve for the eigenvectors."""
        phase, count = state.scalars["phase"], max(int(np.sum(summary["count"])), 1)
        if phase == "cluster":
            rows = np.maximum(summary["count"], 1)[:, None]
            last = state.round >= self.n_iter
            moved = {"anchors": state.arrays["anchors"] + summary["total"] / rows}
            objective = float(summary["square"]) / count
            return moved, {"phase": "width" if last else "cluster", "objective": objective}
        if phase == "width":
            return {}, {"phase": "graph", "width": float(summary["distance"]) / count or 1.0}
        if phase == "halves":
            return {"thresholds": thresholds(state.arrays["degrees"], summary)}, {"phase": "done"}
        weights, spectrum = eigenfunctions(
            summary["gram"], self.n_bits // self.n_layers, integer(state, "seed")
        )
        arrays = {"weights": weights, "spectrum": spectrum, "degrees": summary["gram"].sum(axis=1)}
        phase = "done" if self.n_layers == 1 else "halves"
        return arrays, {"phase": phase, "n_directions": len(spectrum)}

    def rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return how many rounds there are."""
        return self.n_iter + 2 + self.n_layers

    def attachment(self, state: RoundState) -> AnchorWeights:
        """Return the map to ``z`` of a state that knows the width."""
        width, anchors = state.scalars["width"], Points(state.arrays["anchors"])
        if not isinstance(width, float):
            raise ValueError(f"expected the width to be a number, got {width!r}")
        return AnchorWeights(anchors, min(self.n_nearest, len(anchors)), width)

    def encoder(self, state: RoundState) -> AnchorEncoder:
        """Return the encoder of a finished state."""
        self.check_done(state)
        return AnchorEncoder(self.attachment(state), state.arrays["weights"], state.arrays.get("thresholds"))


def eigenfunctions(gram: np.ndarray, n_bits: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the leading eigenfunctions, shape (m, b), and all eigenvalues that are not zero.

    Parameters
    ----------
    gram : ndarray of float64, shape (m, m)
        ``Zᵀ Z``.
    n_bits, seed : int

    Notes
    -----
    Anchors that no row is attached to have no weight.  The trivial eigenvector of M is known, ``√(Λ / n)``,
    and subtracted: where its eigenvalue 1 is a multiple one no choice of a solver's decides what is left out.
    The largest entry of each eigenvector, the first among equals, is positive.
    """
    degrees = gram.sum(axis=1)
    used = np.flatnonzero(degrees > 0)
    n, roots = degrees.sum(), np.sqrt(degrees[used])
    matrix = gram[np.ix_(used, used)] / roots[:, None] / roots
    trivial = roots / np.linalg.norm(roots)
    matrix -= np.outer(trivial, trivial)
    values, vectors = scipy.linalg.eigh((matrix + matrix.T) / 2, driver="evr", check_finite=False)
    values, vectors = values[::-1], vectors[:, ::-1]
    there = int(np.count_nonzero(values > 10 * len(gram) * np.finfo(np.float64).eps))
    weights = np.zeros((len(gram), n_bits))
    kept = vectors[:, : min(there, n_bits)]
    if kept.size:
        largest = np.abs(kept).argmax(axis=0)
        kept = kept * np.where(kept[largest, np.arange(kept.shape[1])] < 0, -1.0, 1.0)
        columns = np.sqrt(n) * kept / roots[:, None] / np.sqrt(values[: kept.shape[1]])
        if kept.shape[1] < n_bits:
            columns = columns @ random_orthonormal(stream(seed, "agh.fill"), kept.shape[1], n_bits)
        weights[used] = columns
    return weights, values[:there].copy()


def thresholds(degrees: np.ndarray, sums: Arrays) -> np.ndarray:
    """Return b⁺ and b⁻ of each eigenfunction, shape (2, r), from the sums of `AnchorHalves`.

    Where no edge of the graph goes from 1⁺ to 1⁻ all thresholds are as good; q is 0 there.
    """
    inverse = np.divide(1.0, degrees, out=np.zeros_like(degrees), where=degrees > 0)[:, None]
    positive, sizes, n = sums["positive"], sums["sizes"], float(sums["count"])
    n_positive, total_positive, total = sums["numbers"]
    cut = n_positive - (positive * inverse * positive).sum(axis=0)
    pull = total_positive - (positive * inverse * sizes).sum(axis=0)
    there = cut > 1e-12 * n
    q = np.divide(pull, cut, out=np.zeros_like(pull), where=there)
    return np.stack([total + (n - n_positive) * q, n_positive * q - total]) / n
