"""What linear methods share, so that each method's file holds only its own mathematics.

Such a method subtracts the mean, may turn to principal components, and learns weights in that space.
Training begins with one pass for mean and covariance (phase ``"moments"``), left out where nothing
needs it or where the moments of other rows are given; then come the method's own rounds (phase
``"train"``).

A subclass is a frozen dataclass with the fields ``n_bits``, ``center``, ``n_components`` and its own;
it says how many components it wants, how its weights begin, and, if it learns, what a round adds up and
how the weights follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..encode import ProjectionEncoder
from ..moments import Moments, pca
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
from ..random import check_seed
from .checks import check_finished

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TILE_ROWS = 1024


@dataclass(frozen=True)
class Front:
    """What is done to every row before the method sees it: ``(x - mean) @ components``.

    Attributes
    ----------
    mean : ndarray of float64, shape (d,)
    components : ndarray of float64, shape (d, r), or None for all features as they are
    """

    mean: np.ndarray
    components: np.ndarray | None = None

    @property
    def n_outputs(self) -> int:
        """The number of coordinates r that the method sees."""
        return len(self.mean) if self.components is None else self.components.shape[1]

    def tiles(self, vectors: np.ndarray, dtype: type[np.floating[Any]]) -> Iterator[np.ndarray]:
        """Yield the rows' coordinates, a fixed number of rows at a time, as new arrays of ``dtype``."""
        components = None if self.components is None else self.components.astype(dtype)
        for start in range(0, len(vectors), TILE_ROWS):
            rows = np.subtract(vectors[start : start + TILE_ROWS], self.mean, dtype=np.float64)
            rows = rows.astype(dtype, copy=False)
            yield rows if components is None else rows @ components


class LinearMethod:
    """Base of methods that encode by ``(x - mean) @ components @ weights``.

    State arrays are ``mean``, ``components`` (where there are any), ``weights`` and the method's own; the
    scalars ``phase``, ``seed``, ``n_rows``, ``n_features``, ``dtype`` and the method's own.
    """

    name: ClassVar[str]
    sparse: ClassVar[bool]
    n_bits: int
    center: bool
    n_components: int | float | None

    # what a subclass says ------------------------------------------------------------------------------

    def check_data(self, info: DataInfo) -> None:
        """Refuse data that the method cannot work on."""

    def wanted_components(self, info: DataInfo) -> int | float | None:
        """Return the number (or share of variance) of principal components in front, None for none."""
        return self.n_components

    def most_components(self, info: DataInfo) -> int:
        """Return the largest number of components that the method can use."""
        return info.n_features

    def needs_covariance(self, info: DataInfo) -> bool:
        """Tell whether the first pass must add up the covariance."""
        return self.wanted_components(info) is not None

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Return the first weights (and whatever else the method keeps)."""
        raise NotImplementedError

    def train_blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return the addresses of the next training round."""
        return plan.leaves()

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Build the accumulator of the next training round."""
        raise NotImplementedError

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Return what changes in the state's arrays and scalars."""
        raise NotImplementedError

    def trained(self, state: RoundState) -> bool:
        """Tell whether the weights are final; methods that do not learn say yes at once."""
        return True

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return the number of training rounds."""
        return 0

    def weights(self, state: RoundState) -> np.ndarray:
        """Return the weights with a column per bit, shape (r, n_bits); sparse methods keep a row per bit."""
        weights = state.arrays["weights"]
        return weights.T if self.sparse else weights

    # the protocol --------------------------------------------------------------------------------------

    @property
    def min_leaves(self) -> int:
        """The least number of leaves that the method's steps need."""
        return 1

    def start(self, info: DataInfo, seed: int, moments: Arrays | None = None) -> RoundState:
        """Return round 0.

        Raises
        ------
        ValueError
            If the data, the seed or the given moments cannot be used.
        """
        if info.n_rows < 1 or info.n_features < 1:
            raise ValueError(
                f"{self.name} expects at least one row of at least one feature, "
                f"got {info.n_rows} rows of {info.n_features} features"
            )
        self._check_components(info)
        self.check_data(info)
        scalars: dict[str, JSONScalar] = {
            "phase": "moments",
            "seed": check_seed(seed),
            "n_rows": int(info.n_rows),
            "n_features": int(info.n_features),
            "dtype": info.dtype,
        }
        state = RoundState(0, {}, scalars)
        if moments is not None:
            return self._begin(state, self._check_moments(info, moments), 0)
        if self.center or self.needs_covariance(info):
            return state
        return self._begin(state, None, 0)

    def blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return the addresses that the next round reads."""
        return plan.leaves() if _is_first_pass(state) else self.train_blocks(state, plan)

    def accumulator(self, state: RoundState) -> Accumulator:
        """Build the next round's accumulator."""
        if _is_first_pass(state):
            info = data_info(state)
            return Moments(info.n_features, covariance=self.needs_covariance(info))
        return self.train_accumulator(state)

    def advance(self, state: RoundState, summary: Arrays) -> RoundState:
        """Return the next round's state."""
        if _is_first_pass(state):
            return self._begin(state, summary, 1)
        arrays, scalars = self.train_advance(state, summary)
        return RoundState(state.round + 1, {**state.arrays, **arrays}, {**state.scalars, **scalars})

    def done(self, state: RoundState) -> bool:
        """Tell whether training has ended."""
        return not _is_first_pass(state) and self.trained(state)

    def rounds(self, state: RoundState, plan: LeafPlan) -> int | None:
        """Return the total number of rounds."""
        first_pass = 1 if _is_first_pass(state) else integer(state, "first_round")
        return first_pass + self.training_rounds(state, plan)

    def encoder(self, state: RoundState) -> Encoder:
        """Return the encoder of a finished state."""
        check_finished(self, state)
        front, weights = front_of(state), self.weights(state)
        n_active = getattr(self, "n_active", None)
        if front.components is None:
            return ProjectionEncoder(front.mean, weights, n_active)
        return ProjectionEncoder.from_factors(front.mean, front.components, weights, n_active)

    def flop(self, state: RoundState) -> int | None:
        """Return the floating-point operations of the next round's matrix products with one row.

        None where the method does not count them.
        """
        if not _is_first_pass(state):
            return self.train_flop(state)
        info = data_info(state)
        return info.n_features * (2 * info.n_features if self.needs_covariance(info) else 1)

    def train_flop(self, state: RoundState) -> int | None:
        """Return what `flop` returns for a training round."""
        return None

    # private -------------------------------------------------------------------------------------------

    def _begin(self, state: RoundState, moments: Arrays | None, round: int) -> RoundState:
        info, seed = data_info(state), integer(state, "seed")
        mean = moments["mean"] if self.center and moments is not None else np.zeros(info.n_features)
        wanted, components = self.wanted_components(info), None
        if wanted is not None and moments is not None:
            components, _ = pca(moments, wanted, center=self.center, at_most=self.most_components(info))
        front = Front(mean, components)
        arrays = {"mean": mean, **self.begin(front, seed, moments)}
        if components is not None:
            arrays["components"] = components
        scalars: dict[str, JSONScalar] = {**state.scalars, "phase": "train", "first_round": round}
        return RoundState(round, arrays, scalars)

    def _check_components(self, info: DataInfo) -> None:
        wanted, most = self.wanted_components(info), self.most_components(info)
        if isinstance(wanted, int) and wanted > most:
            raise ValueError(
                f"{self.name} with n_bits={self.n_bits} on {info.n_features} features can use at most "
                f"n_components={most}, got {wanted}"
            )

    def _check_moments(self, info: DataInfo, moments: Arrays) -> Arrays:
        needed = ["mean", "covariance"] if self.needs_covariance(info) else ["mean"]
        for key in needed:
            if key not in moments:
                raise ValueError(f"{self.name} needs the {key} of the rows to preprocess on; it is not given")
            shape = (info.n_features,) * (1 if key == "mean" else 2)
            if moments[key].shape != shape:
                raise ValueError(f"expected a {key} of shape {shape}, got {moments[key].shape}")
        return moments


def front_of(state: RoundState) -> Front:
    """Return what is done to every row before the method sees it."""
    return Front(state.arrays["mean"], state.arrays.get("components"))


def data_info(state: RoundState) -> DataInfo:
    """Return what the state knows of the data."""
    return DataInfo(integer(state, "n_rows"), integer(state, "n_features"), str(state.scalars["dtype"]))


def integer(state: RoundState, key: str) -> int:
    """Return a scalar of the state that is an integer."""
    value = state.scalars[key]
    if not isinstance(value, int):
        raise ValueError(f"expected the state's {key!r} to be an integer, got {value!r}")
    return value


def sparse_components(method: LinearMethod, info: DataInfo) -> int | float | None:
    """Return the components of a sparse method: ``n_active`` of them where d > n_bits, by default none.

    Sparse codes expand the dimension; where the data has more features than bits, the POSH paper
    (section E.2) reduces it to ``n_active`` principal components first.
    """
    if method.n_components is None and info.n_features > method.n_bits:
        return int(getattr(method, "n_active"))  # noqa: B009
    return method.n_components


def _is_first_pass(state: RoundState) -> bool:
    return state.scalars["phase"] == "moments"
