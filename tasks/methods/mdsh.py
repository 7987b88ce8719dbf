"""Multidimensional spectral hashing (Weiss, Fergus and Torralba, 2012): codes that reconstruct affinities.

Bits y of -1 and 1, and weights, are wanted such that

    Σ_j w_j y_j(x) y_j(x')  ≈  exp(-‖x - x'‖² / 2σ²).

Relaxed to real numbers, the answer is the leading eigenfunctions of the affinity with its eigenvalues. Where
the coordinates, here principal components, are independent, these are products of eigenfunctions of single
coordinates, φ_i1(x_1) φ_i2(x_2) …, with products of their eigenvalues. Those of a coordinate come from a
histogram of it (`eigenfunctions.affinity_functions`); a bit says whether the function is >= 0. The first
function of each coordinate is positive and makes no bit.

- ``products=False``, the paper's: a bit is the sign of one function of one coordinate, those of the largest
  eigenvalues relative to their coordinate's first. All their products are taken into account by the "kernel
  trick": they add up to ``Π_i (λ_i0 + Σ_j λ_ij y_ij y'_ij)``;
- ``products=True``: a bit is the sign of a product, the leading ones of all; the affinity is a weighted sum.

Two rounds after the moments: the extents of the coordinates, and their histograms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..curve_encoder import ProductEncoder
from ..curves import Curves, Grid, Histogram
from ..eigenfunctions import affinity_functions
from ..weighted_hamming import BitAffinity
from .base import front_of, integer
from .checks import check_finished
from .coordinate_base import CoordinateMethod
from .spectral_hashing import Box

if TYPE_CHECKING:
    from ..protocols import Accumulator, Arrays, JSONScalar, LeafPlan, RoundState


@dataclass(frozen=True)
class MDSH(CoordinateMethod):
    """Signs of eigenfunctions of single coordinates, or of products of them, with weights.

    Parameters
    ----------
    n_bits : int, default 64
    sigma : float or "auto"
        Of the affinity ``exp(-‖x - x'‖² / 2σ²)``.
    products : bool, default False
        Make products bits of their own.
    n_bins : int, default 128
        Bins of a coordinate's histogram.
    clip : float, default 0.025
        Coordinates beyond the quantiles of this share and of one minus it are taken as these.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components, or the share of variance they must explain; at most, and by default,
        ``min(n_bits, d)``.

    Notes
    -----
    Bits beyond the eigenfunctions that rounding leaves are 1 for all rows, with weight 0.  The state records
    ``sigma`` and ``n_functions``, how many bits are left.
    """

    n_bits: int = 64
    sigma: float | str = "auto"
    products: bool = False
    n_bins: int = 128
    clip: float = 0.025
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "mdsh"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.check_coordinates()
        if not isinstance(self.products, (bool, np.bool_)):
            raise ValueError(f"expected products to be True or False, got {self.products!r}")
        object.__setattr__(self, "products", bool(self.products))

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Find the extents, then the histograms."""
        front = front_of(state)
        return Histogram(front, grid_of(state)) if "step" in state.arrays else Box(front)

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Lay the bins; then find eigenfunctions and choose the leading ones."""
        if "step" not in state.arrays:
            grid = Grid.between(summary["least"], summary["largest"], self.n_bins)
            return {"least": grid.least, "step": grid.step}, {"n_bins": self.n_bins}
        grid, sigma = grid_of(state), float(state.arrays["width"])
        low, high = grid.quantiles(summary["counts"], self.clip)
        found = _Functions.of(grid, summary["counts"], sigma, self.n_bits + 1)
        chosen = found.products(self.n_bits) if self.products else found.singles(self.n_bits)
        n_functions = int(chosen.pop("n_functions"))
        self.check_width(grid, n_functions)
        scalars: dict[str, JSONScalar] = {"sigma": sigma, "n_functions": n_functions}
        return {"low": low, "high": high, **chosen}, scalars

    def trained(self, state: RoundState) -> bool:
        """Tell whether eigenfunctions are chosen."""
        return "factors" in state.arrays

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return two."""
        return 2

    def encoder(self, state: RoundState) -> ProductEncoder:  # type: ignore[override]
        """Return the encoder of a finished state."""
        check_finished(self, state)
        front, arrays = front_of(state), state.arrays
        assert front.components is not None
        curves = Curves(grid_of(state), arrays["low"], arrays["high"], arrays["places"], arrays["values"])
        return ProductEncoder(front.mean, front.components, curves, arrays["factors"].astype(bool))

    def affinity(self, state: RoundState) -> BitAffinity:
        """Return what the codes of a finished state are compared by."""
        arrays = state.arrays
        return BitAffinity(arrays["bases"], arrays["bit_weights"], arrays["groups"])


def grid_of(state: RoundState) -> Grid:
    """Return the bins that a state's histograms have."""
    return Grid(state.arrays["least"], state.arrays["step"], integer(state, "n_bins"))


@dataclass(frozen=True, eq=False)
class _Functions:
    """The eigenfunctions of each coordinate that varies."""

    n_bins: int
    bases: np.ndarray  # (r,) the first eigenvalue of each coordinate; 1 where it does not vary
    places: np.ndarray  # (m,) coordinates of the other functions, rising
    orders: np.ndarray  # (m,) 1, 2, … within a coordinate
    values: np.ndarray  # (m,) their eigenvalues, falling within a coordinate
    functions: np.ndarray  # (m, n_bins)

    @classmethod
    def of(cls, grid: Grid, counts: np.ndarray, sigma: float, limit: int) -> _Functions:
        """Find the leading ``limit`` functions of each coordinate."""
        bases, parts = np.ones(len(counts)), []
        for place in grid.varied.tolist():
            values, functions = affinity_functions(counts[place], float(grid.step[place]), sigma, limit)
            bases[place] = values[0]
            parts.append((np.full(len(values) - 1, place), values[1:], functions[1:]))
        places = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
        orders = np.concatenate([np.zeros(0, np.int64), *(1 + np.arange(len(part[0])) for part in parts)])
        values = np.concatenate([np.zeros(0), *(part[1] for part in parts)])
        functions = np.concatenate([np.zeros((0, grid.n_bins)), *(part[2] for part in parts)])
        return cls(grid.n_bins, bases, places, orders, values, functions)

    def singles(self, n_bits: int) -> dict[str, np.ndarray]:
        """Choose functions of single coordinates; a group of bits for each coordinate."""
        ratios = self.values / self.bases[self.places]
        order = np.lexsort((self.places, -ratios))[:n_bits]
        factors = np.zeros((len(order), n_bits), np.uint8)
        np.fill_diagonal(factors, 1)
        weights, groups = np.zeros(n_bits), np.zeros(n_bits, np.int64)
        weights[: len(order)], groups[: len(order)] = self.values[order], self.places[order]
        return {
            "places": self.places[order],
            "values": self.functions[order],
            "factors": factors,
            "bases": self.bases,
            "bit_weights": weights,
            "groups": groups,
            "n_functions": np.array(len(order)),
        }

    def products(self, n_bits: int) -> dict[str, np.ndarray]:
        """Choose products of functions; all bits are one group."""
        numbers, ratios = self._leading_products(n_bits)
        used = np.unique(numbers[numbers >= 0])
        factors = np.zeros((len(used), n_bits), np.uint8)
        for column in numbers.T:
            there = np.flatnonzero(column >= 0)
            factors[np.searchsorted(used, column[there]), there] = 1
        base, weights = np.prod(self.bases), np.zeros(n_bits)
        weights[: len(ratios)] = base * ratios
        return {
            "places": self.places[used],
            "values": self.functions[used],
            "factors": factors,
            "bases": np.array([base]),
            "bit_weights": weights,
            "groups": np.zeros(n_bits, np.int64),
            "n_functions": np.array(len(ratios)),
        }

    def _leading_products(self, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the functions' numbers in the leading products, (n, r), -1 for none, and their ratios.

        Ratios are at most 1, so that parts of leading products are leading products of fewer coordinates.
        """
        numbers, ratios = np.full((1, len(self.bases)), -1), np.ones(1)
        for place, base in enumerate(self.bases):
            mine = np.flatnonzero(self.places == place)
            steps = np.concatenate([[1.0], self.values[mine] / base])
            products = (ratios[:, None] * steps).ravel()
            order = np.argsort(-products, kind="stable")[: n_bits + 1]
            numbers = np.repeat(numbers, len(steps), axis=0)
            numbers[:, place] = np.tile(np.concatenate([[-1], mine]), len(ratios))
            numbers, ratios = numbers[order], products[order]
        return numbers[1:], ratios[1:]  # without the empty one, whose ratio is 1
