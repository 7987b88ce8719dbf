"""Least and greatest distance at each Hamming distance, over all pairs of rows: what an executor adds up.

The sum of two blocks of pairs is the lesser and the greater of both for each Hamming distance; among equal
distances the pair with the smaller row numbers stands.  So the result does not depend on blocks or order.

A block's pairs are screened (`kernels.screening`).  What may be extreme stays *open*, with an interval for
its squared distance, until what is known excludes it; if nothing does, it is settled by a float64 distance
whose features are added in order.  Few pairs are left for that, so whole rows are seldom read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .kernels.euclidean import pair_distances
from .kernels.screened_rows import ScreenedRows, hamming_matrix, hamming_pairs
from .kernels.screening import limits_in_units, suspects

if TYPE_CHECKING:
    from collections.abc import Callable

    from .protocols import Arrays, RoundState

State = dict[str, np.ndarray]

MOST_OPEN = 1 << 14  # pairs that one block of pairs leaves to be settled by others
_SETTLED_AT_ONCE = 1 << 15
_SAMPLED_AT_ONCE = 128


@dataclass(frozen=True)
class ScreenedBlock:
    """Some consecutive rows for pairwise work.

    Attributes
    ----------
    rows : ndarray of int64, shape (m,)
    screened : ScreenedRows
    read : callable
        Returns the rows themselves, float of shape (m, d).
    """

    rows: np.ndarray
    screened: ScreenedRows
    read: Callable[[], np.ndarray]

    @property
    def vectors(self) -> np.ndarray:
        """What most of the block's memory is."""
        return self.screened.coordinates


@dataclass(frozen=True)
class Extremes:
    """Find the extremes over pairs of blocks, beyond those that the state knows.

    The state holds extremes as the summary does, ``counts`` of Hamming distances (roughly), and ``levels``
    and (a scalar) ``unit`` of the screening basis.  The summary holds, for each Hamming distance, ``low`` and
    ``high`` (squared, inf and -inf where there is none) with ``low_pair`` and ``high_pair``, and the pairs
    that are still open, with ``open_bits`` and ``open_bounds``.
    """

    def accumulator(self, state: RoundState) -> ExtremesAccumulator:
        """Build the accumulator from what is known."""
        return ExtremesAccumulator(state.arrays, unit_of(state))


class ExtremesAccumulator:
    """The monoid of extremes, of which the blocks' only those that are not known already."""

    sequential: ClassVar[bool] = False

    def __init__(self, known: Arrays, unit: float) -> None:
        self._low, self._high = reached(known)
        self._counts, self._levels = known["counts"], known["levels"]
        self._unit = unit

    def init(self) -> State:
        """Return extremes of no pairs."""
        return no_extremes(len(self._low) - 1)

    def update(self, state: State, block: tuple[ScreenedBlock, ScreenedBlock]) -> State:
        """Add all pairs of a row on the left and one on the right."""
        left, right = block
        low, high = limits_in_units(self._low, self._high, self._unit)
        same = left.rows[:1] == right.rows[:1]
        found = suspects(
            left.screened, right.screened, low, high, self._counts, self._levels,
            same=bool(same.all()), tighten=True,
        )  # fmt: skip
        for pairs, bounds in found:
            bits = hamming_pairs(left.screened.words, right.screened.words, pairs)
            ids = np.stack([left.rows[pairs[:, 0]], right.rows[pairs[:, 1]]], axis=1)
            bounds = bounds * self._unit * self._unit
            state = self.merge(state, no_extremes(len(low) - 1) | opened(ids, bits, bounds))
            if len(state["open_bits"]) > MOST_OPEN:
                state = settled(state, self._exact(left, right))
                best_low, best_high = limits_in_units(*reached(state), self._unit)
                np.minimum(low, best_low, out=low)
                np.maximum(high, best_high, out=high)
        return state

    def merge(self, left: State, right: State) -> State:
        """Keep the extremes of both, and what is open and may be more extreme."""
        return without_excluded(joined(left, right), self._low, self._high)

    def finalize(self, state: State) -> State:
        """Return the state as it is."""
        return state

    @staticmethod
    def _exact(left: ScreenedBlock, right: ScreenedBlock) -> Callable[[np.ndarray], np.ndarray]:
        def exact(ids: np.ndarray) -> np.ndarray:
            rows, columns = ids[:, 0] - left.rows[0], ids[:, 1] - right.rows[0]
            return pair_distances(left.read(), right.read(), rows, columns)

        return exact


@dataclass(frozen=True)
class Violators:
    """Find all pairs whose distance is not within limits for their Hamming distance.

    The state holds ``low`` and ``high``: pairs with low ≤ c² ≤ high are no violators.  The summary holds
    their row numbers ``pair``, ascending, ``bits`` and ``square`` (c²).
    """

    most: int

    def accumulator(self, state: RoundState) -> ViolatorsAccumulator:
        """Build the accumulator from the limits."""
        return ViolatorsAccumulator(state.arrays, unit_of(state), self.most)


class ViolatorsAccumulator:
    """The monoid of lists of pairs."""

    sequential: ClassVar[bool] = False

    def __init__(self, limits: Arrays, unit: float, most: int) -> None:
        self._limits, self._unit, self._most = limits, unit, most

    def init(self) -> State:
        """Return no pairs."""
        return {"pair": np.empty((0, 2), np.int64), "bits": np.empty(0, np.int64), "square": np.empty(0)}

    def update(self, state: State, block: tuple[ScreenedBlock, ScreenedBlock]) -> State:
        """Add the violators among all pairs of a row on the left and one on the right."""
        left, right = block
        low, high = self._limits["low"], self._limits["high"]
        same = bool((left.rows[:1] == right.rows[:1]).all())
        found = suspects(
            left.screened, right.screened, *limits_in_units(low, high, self._unit),
            self._limits["counts"], self._limits["levels"], same=same,
        )  # fmt: skip
        for pairs, _ in found:
            bits = hamming_pairs(left.screened.words, right.screened.words, pairs)
            rows, columns = pairs.T.astype(np.int64)
            square = pair_distances(left.read(), right.read(), rows, columns)
            out = (square > high[bits]) | (square < low[bits])
            ids = np.stack([left.rows[rows[out]], right.rows[columns[out]]], axis=1)
            state = self.merge(state, {"pair": ids, "bits": bits[out], "square": square[out]})
        return state

    def merge(self, left: State, right: State) -> State:
        """Put both lists together."""
        both = {name: np.concatenate([left[name], right[name]]) for name in left}
        if len(both["bits"]) > self._most:
            raise ValueError(
                f"expected at most {self._most:,} violators, there are more; ask for a greater distortion, "
                "or raise the limit"
            )
        return both

    def finalize(self, state: State) -> State:
        """Order the pairs by their row numbers."""
        order = np.lexsort((state["pair"][:, 1], state["pair"][:, 0]))
        return {name: array[order] for name, array in state.items()}


def unit_of(state: RoundState) -> float:
    """Return the unit of the screening basis."""
    unit = state.scalars["unit"]
    assert isinstance(unit, float)
    return unit


def no_extremes(n_bits: int) -> State:
    """Return extremes of no pairs."""
    nobody = np.full((n_bits + 1, 2), -1, np.int64)
    return {
        "low": np.full(n_bits + 1, np.inf),
        "high": np.full(n_bits + 1, -np.inf),
        "low_pair": nobody,
        "high_pair": nobody.copy(),
        **opened(np.empty((0, 2), np.int64), np.empty(0, np.int64), np.empty((0, 2))),
    }


def opened(pairs: np.ndarray, bits: np.ndarray, bounds: np.ndarray) -> State:
    """Return pairs, their Hamming distances and intervals of c² as the open part of a state."""
    return {"open_pair": pairs, "open_bits": bits, "open_bounds": bounds}


def reached(state: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each Hamming distance, c² that some pair is proven not to exceed, or to reach."""
    low, high = state["low"].copy(), state["high"].copy()
    np.minimum.at(low, state["open_bits"], state["open_bounds"][:, 1])
    np.maximum.at(high, state["open_bits"], state["open_bounds"][:, 0])
    return low, high


def joined(left: Arrays, right: Arrays) -> State:
    """Return the extremes of two states and all that is open in either."""
    state: State = {}
    for side, sign in (("low", 1.0), ("high", -1.0)):
        pair = f"{side}_pair"
        mine, other = sign * left[side], sign * right[side]
        earlier = (right[pair][:, 0] < left[pair][:, 0]) | (
            (right[pair][:, 0] == left[pair][:, 0]) & (right[pair][:, 1] < left[pair][:, 1])
        )
        swap = (other < mine) | ((other == mine) & (right[pair][:, 0] >= 0) & earlier)
        state[side] = np.where(swap, right[side], left[side])
        state[pair] = np.where(swap[:, None], right[pair], left[pair])
    for name in ("open_pair", "open_bits", "open_bounds"):
        state[name] = np.concatenate([left[name], right[name]])
    return state


def without_excluded(state: State, low: np.ndarray, high: np.ndarray) -> State:
    """Drop open pairs that are within what is reached, by the state's own pairs or as given."""
    if not len(state["open_bits"]):
        return state
    best_low, best_high = reached(state)
    best_low, best_high = np.minimum(best_low, low), np.maximum(best_high, high)
    bits, bounds = state["open_bits"], state["open_bounds"]
    kept = (bounds[:, 1] >= best_high[bits]) | (bounds[:, 0] <= best_low[bits])
    return state | {name: state[name][kept] for name in ("open_pair", "open_bits", "open_bounds")}


def settled(state: State, exact: Callable[[np.ndarray], np.ndarray]) -> State:
    """Return the state with nothing open; ``exact`` gives the squared distances of pairs."""
    pairs, bits = state["open_pair"], state["open_bits"]
    none = np.empty((0, 2), np.int64), np.empty(0, np.int64), np.empty((0, 2))
    state = state | opened(*none)
    for at in range(0, len(bits), _SETTLED_AT_ONCE):
        part = slice(at, at + _SETTLED_AT_ONCE)
        state = joined(state, extremes_of(pairs[part], bits[part], exact(pairs[part]), len(state["low"]) - 1))
    return state


def extremes_of(pairs: np.ndarray, bits: np.ndarray, squares: np.ndarray, n_bits: int) -> State:
    """Return the extremes of listed pairs with known squared distances."""
    state = no_extremes(n_bits)
    for side, sign in (("low", 1.0), ("high", -1.0)):
        best = np.full(n_bits + 1, np.inf)
        np.minimum.at(best, bits, sign * squares)
        at = np.flatnonzero(sign * squares == best[bits])
        order = at[np.lexsort((pairs[at, 1], pairs[at, 0], bits[at]))]
        found, first = np.unique(bits[order], return_index=True)
        state[side][found] = squares[order[first]]
        state[f"{side}_pair"][found] = pairs[order[first]]
    return state


def start_extremes(rows: np.ndarray, vectors: np.ndarray, words: np.ndarray, n_bits: int) -> State:
    """Return the extremes of all pairs of some rows, and what is typical of these.

    Parameters
    ----------
    rows : ndarray of int64, shape (m,)
        Row numbers, ascending.
    vectors : ndarray of float, shape (m, d)
    words : ndarray of uint32 or uint64, shape (w, m)
        The codes.
    n_bits : int

    Returns
    -------
    dict
        A state without open pairs, ``counts`` of the Hamming distances, int64 of shape (M + 1,), and
        ``moments``: the means of the distances and of their squares.
    """
    centred = np.asarray(vectors, np.float64) - vectors.mean(axis=0, dtype=np.float64)
    norms = np.einsum("ij,ij->i", centred, centred)
    state, counts, sums = no_extremes(n_bits), np.zeros(n_bits + 1, np.int64), np.zeros(2)
    for at in range(0, len(rows), _SAMPLED_AT_ONCE):
        part = slice(at, at + _SAMPLED_AT_ONCE)
        squares = np.maximum(norms[part, None] + norms[at:] - 2 * (centred[part] @ centred[at:].T), 0.0)
        i, j = np.nonzero(np.arange(len(squares))[:, None] < np.arange(len(rows) - at))
        bits, squares = hamming_matrix(words[:, part], words[:, at:])[i, j], squares[i, j]
        counts += np.bincount(bits, minlength=n_bits + 1)
        sums += np.sqrt(squares).sum(), squares.sum()
        pairs = np.stack([i + at, j + at], axis=1)
        state = joined(state, extremes_of(pairs, bits, squares, n_bits))
    # what a rounded distance has chosen is settled by its exact one
    bits = np.tile(np.flatnonzero(state["low_pair"][:, 0] >= 0), 2)
    chosen = np.concatenate([state["low_pair"], state["high_pair"]])
    chosen = chosen[chosen[:, 0] >= 0]
    squares = pair_distances(vectors, vectors, chosen[:, 0].copy(), chosen[:, 1].copy())
    typical = {"counts": counts, "moments": sums / max(counts.sum(), 1)}
    return extremes_of(rows[chosen], bits, squares, n_bits) | typical
