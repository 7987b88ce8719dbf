"""Streaming spectral binary coding (SSBC): signs of leading directions of rows' affinities to anchors.

With m anchors a_i, rows of the data themselves, the affinities of row x are

    w_i(x) = exp(-‖x - a_i‖² / σ²),     i = 1 ... m,

and its code is ``sign((w(x) - μ) V)`` with V the k leading eigenvectors of ``Σ_x (w(x) - μ)(w(x) - μ)ᵀ``.
That sum goes through every row once. It is exact while ``m <= 8 l``, and beyond it a Frequent Directions
sketch of l rows with a computed bound on what it lost (`sketch`).

Rounds: draw rows, of which the first m are the anchors; from them σ and μ; then one pass for the sum, which
``sketch_rows="train"`` leaves out, since it takes the anchors' own rows alone.

With ``mode="online"`` the last pass takes the rows one after the other, as `online.OnlineCoder` does: the
projection is that by which a stream of these rows would be coded at its end.

Uncentred (``center=False``, the paper's form) all affinities are positive, so that by Perron's theorem all
entries of the first eigenvector are, too: the first bit of every code is the same. ``drop_first=1`` leaves it
out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..affinity import Affinities
from ..affinity_encoder import AffinityEncoder
from ..gram import sketch_for
from ..online import OnlineCoder
from ..procrustes import random_orthonormal
from ..protocols import Block, DataInfo, RoundState
from ..random import stream
from .base import data_info, integer
from .checks import check_choice, check_count
from .sampled import SampledMethod
from .ssbc_sums import AUTO, AffinitySketch, OnlinePass, describe, unpack_coder

if TYPE_CHECKING:
    from ..gram import Sketch
    from ..protocols import Accumulator, Arrays, JSONScalar, LeafPlan

_LEAST_SAMPLE = 1000  # rows from which sigma and the mean are taken


@dataclass(frozen=True)
class SSBC(SampledMethod):
    """Signs of the leading directions of Gaussian affinities to anchors.

    Parameters
    ----------
    n_bits : int, default 64
    n_anchors : int, default 1000
        Rows drawn by the seed as anchors; all rows where there are not so many.
    sketch_size : int, optional
        Rows l of the sketch, at least ``n_bits + drop_first``; by default twice as many.
    sigma : float or "auto"
        Width of the affinities.  "auto" is 1.4 times the mean distance of a row to its nearest anchor.
    center : bool, default True
        Subtract the mean affinities μ of a sample.
    sketch_rows : {"all", "train"}
        Learn from all rows' affinities, or, as the paper's text has it, from the anchors' own.
    drop_first : int, default 0
        Leading directions left out.
    sketch_dtype : {"float64", "float32"}
        Precision of the sketch; see `FrequentDirections`.
    mode : {"streaming", "online"}
        Take the directions at the end, or those that were aligned on the way and frozen: one sequential
        task, always with a sketch.

    Notes
    -----
    The state records ``certificate`` and ``slack`` as shares of ``square``, the sum of squares of all
    centred affinities, ``sigma``, ``neighbor_distance`` and ``n_directions``, how many directions there
    were; missing ones are replaced by a random mixture of those.  Mean and PCA of other rows
    (``preprocess_on``) have no effect, since distances do not depend on an origin.
    """

    n_bits: int = 64
    n_anchors: int = 1000
    sketch_size: int | None = None
    sigma: float | str = "auto"
    center: bool = True
    sketch_rows: str = "all"
    drop_first: int = 0
    sketch_dtype: str = "float64"
    mode: str = "streaming"
    auto: ClassVar[float] = AUTO
    name: ClassVar[str] = "ssbc"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for field in ("n_bits", "n_anchors"):
            check_count(self, field)
        check_count(self, "drop_first", 0)
        least = self.n_bits + self.drop_first
        check_count(self, "sketch_size", least, optional=True)
        check_choice(self, "sketch_rows", ("all", "train"))
        check_choice(self, "sketch_dtype", ("float64", "float32"))
        check_choice(self, "mode", ("streaming", "online"))
        if self.mode == "online" and self.sketch_rows != "all":
            raise ValueError('expected sketch_rows="all" with mode="online", which learns from every row')
        if not isinstance(self.center, (bool, np.bool_)):
            raise ValueError(f"expected center to be True or False, got {self.center!r}")
        object.__setattr__(self, "center", bool(self.center))
        check_sigma(self)
        if self.n_anchors < least:
            raise ValueError(
                f"expected n_anchors >= n_bits + drop_first = {least}, for there is a direction an anchor at "
                f"most; got n_anchors={self.n_anchors}"
            )

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Sketch affinities, or code the rows one after the other."""
        if self.mode == "online":
            return OnlinePass(self.coder(state))
        return AffinitySketch(affinities_of(state), self._sketch_size, self.buffer_size, self.sketch_dtype)

    def advance(self, state: RoundState, summary: Arrays) -> RoundState:
        """Take anchors, sigma and mean from the sample, or directions from the sketch."""
        if state.scalars["phase"] == "sample":
            anchors = np.sort(self._drawn_first(state)[: self.n_anchors])
            is_anchor = np.isin(self.sampled(state), anchors)
            arrays, scalars = describe(
                summary["rows"], is_anchor, self.sigma, center=self.center, multiple=self.auto
            )
            state = RoundState(state.round + 1, arrays, {**state.scalars, **scalars, "phase": "sketch"})
            if self.sketch_rows == "all":
                return state
            sketch = self.new_sketch(len(anchors))
            for _, tile in affinities_of(state).tiles(arrays["anchors"], state.scalars["dtype"]):
                sketch.partial_fit(tile)
            return self.finished(state, sketch, state.round)
        if self.mode == "online":
            coder = self.coder(state)
            unpack_coder(coder, summary)
            return self.coded(state, coder, state.round + 1)
        return self.finished(state, self.new_sketch(len(state.arrays["anchors"]), summary), state.round + 1)

    def rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return how many rounds there are: one for the sample, one for the sketch."""
        return 2 if self.sketch_rows == "all" else 1

    def encoder(self, state: RoundState) -> AffinityEncoder:
        """Return the encoder of a finished state."""
        self.check_done(state)
        return AffinityEncoder(affinities_of(state), state.arrays["weights"])

    def begun(self, rows: np.ndarray, seed: int) -> RoundState:
        """Return the state before the first row of a stream, of which ``rows`` are the first to come."""
        state = self.start(DataInfo(len(rows), rows.shape[1], str(rows.dtype)), seed)
        gather = self.accumulator(state)
        block = Block(np.arange(len(rows)), rows)
        return self.advance(state, gather.finalize(gather.update(gather.init(), block)))

    def coder(self, state: RoundState) -> OnlineCoder:
        """Return the coder that an online state holds, or one that has seen the anchors alone."""
        coder = OnlineCoder(
            affinities_of(state),
            self.n_bits,
            self._sketch_size,
            drop_first=self.drop_first,
            sketch_dtype=self.sketch_dtype,
        )
        if not self.done(state):
            return coder
        return coder.restore({**state.arrays, "projection": state.arrays["weights"]}, state.scalars)

    def coded(self, state: RoundState, coder: OnlineCoder, round: int) -> RoundState:
        """Return the finished state of an online coder."""
        arrays, scalars = coder.state()
        state = self.finished(state, coder.sketch, round)
        arrays = {**state.arrays, **arrays, "weights": coder.projection}
        del arrays["projection"]
        return RoundState(round, arrays, {**state.scalars, **scalars})

    def sketch(self, state: RoundState) -> Sketch:
        """Return the sketch that a finished state of mode "streaming" holds, or an empty one."""
        m, prefix = len(state.arrays["anchors"]), "sketch_"
        held = {k.removeprefix(prefix): a for k, a in state.arrays.items() if k.startswith(prefix)}
        return self.new_sketch(m, held or None)

    def new_sketch(self, n_anchors: int, arrays: Arrays | None = None) -> Sketch:
        """Return a sketch of affinities, empty or with the content of ``arrays``."""
        return sketch_for(n_anchors, self._sketch_size, self.buffer_size, self.sketch_dtype, arrays)

    def finished(self, state: RoundState, sketch: Sketch, round: int) -> RoundState:
        """Return the finished state of a sketch of all rows so far."""
        values, vectors = sketch.spectrum()
        seed = integer(state, "seed")
        weights, n_directions = leading(values, vectors, self.n_bits, self.drop_first, seed)
        square = sketch.square_
        held = {f"sketch_{key}": array for key, array in sketch.arrays().items()}
        arrays = {**state.arrays, **held, "weights": weights, "spectrum": values[: self._sketch_size]}
        scalars: dict[str, JSONScalar] = {
            **state.scalars,
            "phase": "done",
            "n_directions": n_directions,
            "square": square,
            "certificate": sketch.certificate_ / square if square else 0.0,
            "slack": sketch.slack_ / square if square else 0.0,
        }
        return RoundState(round, arrays, scalars)

    @property
    def _sketch_size(self) -> int:
        return 2 * (self.n_bits + self.drop_first) if self.sketch_size is None else self.sketch_size

    @property
    def buffer_size(self) -> int:
        """Rows that a sketch holds in memory: 4 directions' worth, and 8 where it has hardly a row for each.

        The fewer rows are kept the more matter the times at which they shrink.
        """
        directions = self.n_bits + self.drop_first
        ample = 2 * self._sketch_size >= 3 * directions
        return max(2 * self._sketch_size, (4 if ample else 8) * directions)

    def sampled(self, state: RoundState) -> np.ndarray:
        """Return the numbers of the sampled rows, ascending; the first that were drawn are the anchors."""
        return np.sort(self._drawn_first(state))

    def _drawn_first(self, state: RoundState) -> np.ndarray:
        """Return the numbers of the sampled rows in the order in which they are drawn."""
        n = data_info(state).n_rows
        rng = stream(integer(state, "seed"), "ssbc.sample")
        drawn = rng.choice(n, min(n, max(self.n_anchors, _LEAST_SAMPLE)), replace=False)
        return drawn.astype(np.int64)


def affinities_of(state: RoundState) -> Affinities:
    """Return the map that a state holds."""
    arrays, sigma = state.arrays, state.scalars["sigma"]
    if not isinstance(sigma, float):
        raise ValueError(f"expected sigma to be a number, got {sigma!r}")
    return Affinities(arrays["origin"], arrays["anchors"], sigma, arrays["affinity_mean"])


def leading(
    values: np.ndarray, vectors: np.ndarray, n_bits: int, drop_first: int, seed: int
) -> tuple[np.ndarray, int]:
    """Return weights with a column per bit, and how many of the directions have any variance.

    The largest entry of each direction, the first among equals, is positive.  Where there are fewer
    directions than bits, the weights are a random mixture of them with orthonormal rows.
    """
    m = len(vectors)
    there = int(np.count_nonzero(values > values.max(initial=0.0) * m * np.finfo(np.float64).eps))
    kept = vectors[:, drop_first : min(drop_first + n_bits, there)]
    if not kept.size:
        return random_orthonormal(stream(seed, "ssbc.fill"), m, n_bits), there
    largest = np.abs(kept).argmax(axis=0)
    kept = kept * np.where(kept[largest, np.arange(kept.shape[1])] < 0, -1.0, 1.0)
    if kept.shape[1] < n_bits:
        kept = kept @ random_orthonormal(stream(seed, "ssbc.fill"), kept.shape[1], n_bits)
    return np.ascontiguousarray(kept), there


def check_sigma(method: Any) -> None:
    """Check that ``sigma`` is "auto" or a positive number and store it as plain float."""
    sigma = method.sigma
    if sigma == "auto":
        return
    number = isinstance(sigma, (int, float, np.number)) and not isinstance(sigma, (bool, np.bool_))
    if not number or not 1e-150 < float(sigma) < 1e150:
        raise ValueError(f'expected sigma to be "auto" or a positive number, got {sigma!r}')
    object.__setattr__(method, "sigma", float(sigma))
