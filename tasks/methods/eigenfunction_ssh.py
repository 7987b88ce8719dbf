"""Semi-supervised codes by numerical eigenfunctions (Fergus, Weiss and Torralba, 2009).

Some rows have labels. A label function f should agree with those and be smooth on the graph of all rows; in
the basis U of m smooth functions, ``f = U α``, with S the diagonal matrix of their eigenvalues s, it
minimises

    fᵀ L f + (f - y)ᵀ Λ (f - y) = αᵀ S α + λ Σ_(i labelled) (f_i - y_i)².

The basis are eigenfunctions of single coordinates, here principal components, from a histogram of each
(`eigenfunctions.laplacian_functions`), those of the smallest s; columns of U are centred and of unit length.

The paper makes functions of classes, not codes. Here each *labelling* of the classes, half of them 1 and
half of them -1, gives y and so a function; a bit says whether it is at least its mean over all rows. No two
labellings are the same or opposite; where there are no more, the next bits are signs of the eigenfunctions
themselves, smoothest first.

Rounds after the moments: extents of the coordinates, their histograms, and the sums over all and over the
labelled rows that α follows from.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.linalg

from ..curve_encoder import MixtureEncoder
from ..curves import Curves, Grid, Histogram
from ..eigenfunctions import laplacian_functions
from ..label_sums import LabelSums
from ..random import stream
from .base import data_info, front_of, integer
from .checks import check_count, check_finished, check_number
from .coordinate_base import CoordinateMethod
from .mdsh import grid_of
from .spectral_hashing import Box

if TYPE_CHECKING:
    from ..protocols import Accumulator, Arrays, JSONScalar, LeafPlan, RoundState

_ROWS_PER_BIN = 10
_FEW = 4  # times as many labellings as are wanted: so many are listed


@dataclass(frozen=True)
class EigenfunctionSSH(CoordinateMethod):
    """Signs of functions that agree with labels and are smooth where rows are dense.

    Parameters
    ----------
    n_bits : int, default 64
    n_functions : int, optional
        m, eigenfunctions in the basis; by default ``2 * n_bits``.
    n_label_bits : int, optional
        Bits of label functions at most; by default ``n_bits``.
    sigma : float or "auto"
        Of the affinity ``exp(-‖x - x'‖² / 2σ²)`` of the graph.
    weight : float, default 1000
        λ, of a labelled row.
    n_bins : int, default 50
        Bins of a coordinate's histogram at most; one for ten rows where there are few.
    smoothing : float, default 0.1
        Added to the share of rows in every bin.
    clip : float, default 0.025
        Coordinates beyond the quantiles of this share and of one minus it are taken as these.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components, or the share of variance they must explain; at most, and by default,
        ``min(n_bits, d)``.

    Notes
    -----
    The state records ``sigma``, ``n_functions``, ``n_label_bits``, ``n_labelled`` rows and ``n_classes``.
    Bits beyond the eigenfunctions that rounding leaves are 1 for all rows.
    """

    n_bits: int = 64
    n_functions: int | None = None
    n_label_bits: int | None = None
    sigma: float | str = "auto"
    weight: float = 1000.0
    n_bins: int = 50
    smoothing: float = 0.1
    clip: float = 0.025
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "eigenfunction_ssh"
    sparse: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check_coordinates()
        check_count(self, "n_functions", optional=True)
        check_count(self, "n_label_bits", optional=True)
        for field in ("weight", "smoothing"):
            check_number(self, field, above=True, optional=False)

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Find the extents, then the histograms, then the sums."""
        front = front_of(state)
        if "step" not in state.arrays:
            return Box(front)
        if "values" not in state.arrays:
            return Histogram(front, grid_of(state))
        return LabelSums(front, curves_of(state))

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Lay the bins; then choose the basis; then solve for the label functions."""
        if "step" not in state.arrays:
            n_bins = min(self.n_bins, max(data_info(state).n_rows // _ROWS_PER_BIN, 2))
            grid = Grid.between(summary["least"], summary["largest"], n_bins)
            return {"least": grid.least, "step": grid.step}, {"n_bins": n_bins}
        if "values" not in state.arrays:
            return self._basis(state, summary["counts"])
        return self._solved(state, summary)

    def trained(self, state: RoundState) -> bool:
        """Tell whether the label functions are known."""
        return "bit_weights" in state.arrays

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return three."""
        return 3

    def encoder(self, state: RoundState) -> MixtureEncoder:  # type: ignore[override]
        """Return the encoder of a finished state."""
        check_finished(self, state)
        front, arrays = front_of(state), state.arrays
        assert front.components is not None
        weights = arrays["bit_weights"]
        return MixtureEncoder(front.mean, front.components, curves_of(state), arrays["centre"], weights)

    def _basis(
        self, state: RoundState, counts: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        grid, sigma = grid_of(state), float(state.arrays["width"])
        low, high = grid.quantiles(counts, self.clip)
        places, values, functions = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros((0, grid.n_bins))]
        for place in grid.varied.tolist():
            found = laplacian_functions(counts[place], float(grid.step[place]), sigma, self.smoothing)
            places.append(np.full(len(found[0]), place))
            values.append(found[0])
            functions.append(found[1])
        all_places, all_values = np.concatenate(places), np.concatenate(values)
        wanted = 2 * self.n_bits if self.n_functions is None else self.n_functions
        order = np.lexsort((all_places, all_values))[:wanted]
        arrays = {
            "low": low,
            "high": high,
            "places": all_places[order],
            "eigenvalues": all_values[order],
            "values": np.concatenate(functions)[order],
        }
        self.check_width(grid, len(order))
        return arrays, {"sigma": sigma, "n_functions": len(order)}

    def _solved(self, state: RoundState, sums: Arrays) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        classes = sums["classes"]
        most = self.n_bits if self.n_label_bits is None else min(self.n_label_bits, self.n_bits)
        signs = labellings(len(classes), most, integer(state, "seed"))
        centre, weights = label_functions(sums, state.arrays["eigenvalues"], signs, self.weight)
        bits = np.zeros((len(weights), self.n_bits))
        bits[:, : len(signs)] = weights
        smoothest = np.arange(min(self.n_bits - len(signs), len(weights)))
        bits[smoothest, len(signs) + smoothest] = 1
        scalars: dict[str, JSONScalar] = {
            "n_label_bits": len(signs),
            "n_labelled": int(sums["class_counts"].sum()),
            "n_classes": len(classes),
        }
        return {"centre": centre, "bit_weights": bits, "classes": classes}, scalars


def curves_of(state: RoundState) -> Curves:
    """Return the basis that a state has chosen."""
    arrays = state.arrays
    return Curves(grid_of(state), arrays["low"], arrays["high"], arrays["places"], arrays["values"])


def label_functions(
    sums: Arrays, eigenvalues: np.ndarray, signs: np.ndarray, weight: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the functions that minimise the objective, in the basis as it is.

    Parameters
    ----------
    sums : mapping
        A summary of `LabelSums`.
    eigenvalues : ndarray of float64, shape (m,)
        All > 0.
    signs : ndarray of float64, shape (b, c)
        The labellings: y of each class.
    weight : float
        λ.

    Returns
    -------
    centre : ndarray of float64, shape (m,)
        Means of the basis functions u over all n rows.
    weights : ndarray of float64, shape (m, b)
        ``f = (u - centre) @ weights``, up to a constant that fits the labelled rows best.
    """
    n, counts = int(sums["count"]), sums["class_counts"]
    centre = sums["total"] / n
    spread = np.sqrt(np.maximum(sums["squares"] / n - np.square(centre), 0.0))
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-9 * np.abs(centre))
    n_labelled, total = counts.sum(), sums["class_sums"].sum(axis=0)
    seen = total / n_labelled
    gram = scale[:, None] * (sums["gram"] - n_labelled * np.outer(seen, seen)) * scale
    y = signs - (signs @ counts / n_labelled)[:, None]
    aims = scale[:, None] * ((sums["class_sums"] - counts[:, None] * seen).T @ y.T)
    return centre, scale[:, None] * _solve(n / weight * eigenvalues, gram, aims)


def _solve(diagonal: np.ndarray, gram: np.ndarray, aims: np.ndarray) -> np.ndarray:
    """Return ``(diag(diagonal) + gram)⁻¹ aims`` for a positive diagonal and a Gram matrix of any rank."""
    if not len(diagonal):
        return np.zeros_like(aims)
    roots = 1 / np.sqrt(diagonal)
    values, vectors = scipy.linalg.eigh(roots[:, None] * gram * roots, driver="evr", check_finite=False)
    turned = vectors.T @ (roots[:, None] * aims)
    return np.asarray(roots[:, None] * (vectors @ (turned / (1 + np.maximum(values, 0))[:, None])))


def labellings(n_classes: int, n_wanted: int, seed: int) -> np.ndarray:
    """Return distinct labellings, ±1 of shape (n, n_classes), half the classes each, as many as there are.

    The first class has always 1: the opposite labelling would say the same.
    """
    half = n_classes // 2
    there = comb(n_classes, half) // (2 if n_classes % 2 == 0 else 1)
    rng = stream(seed, "eigenfunction_ssh.labellings")
    if n_classes == 1:
        return np.ones((1, 1))
    found: dict[tuple[int, ...], None] = {}
    if there <= _FEW * n_wanted:
        sides = itertools.combinations(range(n_classes), half)
        found = dict.fromkeys(_first_side(side, n_classes) for side in sides)
        chosen = [list(found)[i] for i in rng.permutation(len(found))[:n_wanted]]
    else:
        while len(found) < n_wanted:
            found[_first_side(tuple(rng.permutation(n_classes)[:half].tolist()), n_classes)] = None
        chosen = list(found)
    signs = np.full((len(chosen), n_classes), -1.0)
    for row, side in zip(signs, chosen, strict=True):
        row[list(side)] = 1
    return signs


def _first_side(side: tuple[int, ...], n_classes: int) -> tuple[int, ...]:
    """Return the classes on the side of class 0, rising."""
    return tuple(sorted(side)) if 0 in side else tuple(sorted(set(range(n_classes)) - set(side)))
