"""The pairs between two blocks: extremes per Hamming distance, and the secants of large residual.

Few pairs decide either, so none is computed exactly before it is known to matter.  An interval for every c²
comes from certified screening (`kernels.screening`, `kernels.residuals`), or from a float64 product where the
pairs are few or numba is not there.  What may be extreme, or among the residuals that are kept, is then
decided by float64 sums in a fixed order: the result is a function of the pairs alone, whichever way it was
found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..extremes import (
    Extremes,
    ScreenedBlock,
    extremes_of,
    joined,
    no_extremes,
    opened,
    settled,
    without_excluded,
)
from ..kernels.euclidean import pair_distances
from ..kernels.pack import pack_bits
from ..kernels.residuals import EVERY_HASH, Wanted, hashed, large_residuals
from ..kernels.screened_rows import Basis, ScreenedRows, hamming_pairs, word_rows
from ..protocols import RoundState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..extremes import State
    from .nibh_cg_search import Question

FEW_PAIRS = 1 << 17  # so many are compared one by one
_TILE = 512
_SAMPLED = 256  # rows of a block among which extremes are looked for first
_HELD = 8  # times the candidates that are wanted may wait to be decided
_SLACK = 1e-12


@dataclass(frozen=True, eq=False)
class CodedRows:
    """A block's rows with what the question makes of them.

    Attributes
    ----------
    numbers : ndarray of int64, shape (m,)
        Consecutive.
    vectors : ndarray of float, shape (m, d)
    packed : ndarray of uint8, shape (m, n_bytes)
        Sign codes.
    codes : ndarray of float64, shape (m, b)
        Those of which residuals are: soft, or the sign codes.
    words : ndarray of uint32 or uint64, shape (w, m)
    screened : ScreenedRows or None
    """

    numbers: np.ndarray
    vectors: np.ndarray
    packed: np.ndarray
    codes: np.ndarray
    words: np.ndarray
    screened: ScreenedRows | None = None


def coded(block: Any, ask: Question) -> CodedRows:
    """Return a block's rows with their codes."""
    projection = ask.weights if ask.front.components is None else ask.front.components @ ask.weights
    tiles = [tile @ projection / ask.unit for tile in _centred(block.vectors, ask)]
    projections = np.concatenate(tiles) if tiles else np.zeros((0, ask.weights.shape[1]))
    bits = projections >= 0
    codes = bits.astype(np.float64) if ask.hard else 0.5 + 0.5 * np.tanh(ask.slope / 2 * projections)
    packed = pack_bits(bits)
    return CodedRows(block.rows.astype(np.int64), block.vectors, packed, codes, word_rows(packed))


class Reached:
    """What the pairs seen in this process have reached: what does not reach it need not be listed again.

    A pair that is left out is beaten by enough others which are in the sum, wherever they are added, so the
    sum over all pairs does not depend on what was seen before; that over some of them may.
    """

    def __init__(self, ask: Question) -> None:
        self.most = ask.n_kept
        self.worst, self.sampled = ask.least, EVERY_HASH
        self.low, self.high = np.full(ask.n_bits + 1, np.inf), np.full(ask.n_bits + 1, -np.inf)
        self.counts: np.ndarray | None = None
        self._residuals, self._hashes = np.empty(0), np.empty(0, np.uint64)

    def see(self, found: dict[str, np.ndarray], extremes: State) -> None:
        """Take note of what the pairs between two blocks have given."""
        np.minimum(self.low, extremes["low"], out=self.low)
        np.maximum(self.high, extremes["high"], out=self.high)
        self._residuals = np.sort(np.concatenate([self._residuals, found["residual"]]))[-self.most :]
        self._hashes = np.sort(np.concatenate([self._hashes, found["hash"]]))[: self.most]
        if len(self._hashes) == self.most:
            self.worst, self.sampled = float(self._residuals[0]), int(self._hashes[-1])


class BlockPairs:
    """All pairs of a row on the left and one on the right, each once.

    Parameters
    ----------
    left, right : CodedRows
        The same object for the pairs within a block.
    ask : Question
    basis : Basis or None
        Of their screened rows; None: compare one by one.
    reached : Reached
    """

    def __init__(
        self, left: CodedRows, right: CodedRows, ask: Question, basis: Basis | None, reached: Reached
    ) -> None:
        self.left, self.right, self.ask, self.basis, self.reached = left, right, ask, basis, reached
        self.same = left is right

    def searched(self) -> tuple[dict[str, np.ndarray], State]:
        """Return the secants that may be kept, and the extremes of squared distances, nothing open.

        Of the secants there are positions ``i`` and ``j``, ``residual``, ``distance`` and ``hash``.
        """
        kept = _Candidates(self.ask, self.reached)
        extremes = self._by_product(kept) if self.basis is None else self._by_screening(kept, self.basis)
        kept.shorten()
        i, j = kept.pairs.T.astype(np.int64)
        distance = np.sqrt(pair_distances(self.left.vectors, self.right.vectors, i, j)) / self.ask.unit
        residual = np.abs(self._predicted(i, j) - distance)
        large = residual > self.ask.least
        found = {"i": i, "j": j, "residual": residual, "distance": distance, "hash": kept.hashes}
        found = {name: array[large] for name, array in found.items()}
        self.reached.see(found, extremes)
        return found, extremes

    # private -------------------------------------------------------------------------------------------

    def _by_product(self, kept: _Candidates) -> State:
        """Look at all pairs one by one."""
        known = no_extremes(self.ask.n_bits)
        for i, j, squares, error in self._products():
            pairs, bounds = np.stack([i, j], axis=1), np.stack([squares - error, squares + error], axis=1)
            bits = hamming_pairs(self.left.words, self.right.words, pairs)
            low, high = known["low"].copy(), known["high"].copy()
            np.minimum.at(low, bits, bounds[:, 1])
            np.maximum.at(high, bits, bounds[:, 0])
            near = (bounds[:, 1] >= high[bits]) | (bounds[:, 0] <= low[bits])
            near_ones = opened(self._numbers(pairs[near]), bits[near], bounds[near])
            known = settled(joined(known, no_extremes(self.ask.n_bits) | near_ones), self._exact)
            self._offer(kept, pairs, bounds, self._predicted(i, j), _SLACK)
        return known

    def _by_screening(self, kept: _Candidates, basis: Basis) -> State:
        """Look closer at those that screening leaves."""
        ask, factor = self.ask, self.ask.unit / basis.unit
        left, right = (_as_screened(side) for side in (self.left, self.right))
        wanted = Wanted(
            ask.scale * factor, ask.least * factor, ask.n_rows, ask.key,
            kept.worst * factor * (1 - _SLACK), kept.sampled,
        )  # fmt: skip
        found = large_residuals(
            left.screened, right.screened, (self.left.codes, self.right.codes),
            (int(left.rows[0]), int(right.rows[0])), wanted, basis.levels, same=self.same,
        )  # fmt: skip
        for pairs, bounds, predicted, wide in found:
            self._offer(kept, pairs, bounds * basis.unit**2, predicted / factor, wide / factor + _SLACK)
            wanted.worst, wanted.sampled = kept.worst * factor * (1 - _SLACK), kept.sampled
        known = no_extremes(ask.n_bits)
        if self.reached.counts is None:
            known, self.reached.counts = self._sampled()
        low, high = np.minimum(known["low"], self.reached.low), np.maximum(known["high"], self.reached.high)
        typical = known | {"low": low, "high": high, "counts": self.reached.counts, "levels": basis.levels}
        accumulator = Extremes().accumulator(RoundState(0, typical, {"unit": basis.unit}))
        extremes = joined(known, accumulator.update(accumulator.init(), (left, right)))
        return settled(without_excluded(extremes, low, high), self._exact)

    def _offer(
        self, kept: _Candidates, pairs: np.ndarray, bounds: np.ndarray, predicted: np.ndarray, wide: float
    ) -> None:
        """Offer pairs with intervals of c² and λ v, those of active secants excepted."""
        active, numbers = self.ask.active, self._numbers(pairs)
        number = numbers[:, 0] * self.ask.n_rows + numbers[:, 1]
        fresh = np.ones(len(number), bool)
        if len(active):
            fresh = active[np.minimum(np.searchsorted(active, number), len(active) - 1)] != number
        distances = np.sqrt(np.maximum(bounds[fresh], 0.0)) / self.ask.unit
        signed = predicted[fresh, None] + np.array([-wide, wide]) - distances[:, ::-1]
        kept.add(pairs[fresh], hashed(number[fresh], self.ask.key), signed)

    def _predicted(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return self.ask.scale * code_distances(self.left.codes, self.right.codes, i, j)

    def _sampled(self) -> tuple[State, np.ndarray]:
        """Return exact extremes among some rows of both blocks, and how often Hamming distances occur."""
        n_bits = self.ask.n_bits
        left, right = (
            np.linspace(0, len(side.numbers) - 1, min(len(side.numbers), _SAMPLED)).astype(np.int64)
            for side in (self.left, self.right)
        )
        squares, _ = _squares(self.left.vectors[left], self.right.vectors[right], self.ask)
        i, j = np.nonzero(left[:, None] < right) if self.same else np.indices(squares.shape).reshape(2, -1)
        pairs = np.stack([left[i], right[j]], axis=1)
        bits = hamming_pairs(self.left.words, self.right.words, pairs)
        near = extremes_of(pairs, bits, squares[i, j], n_bits)
        chosen = np.concatenate([near["low_pair"], near["high_pair"]])
        chosen = chosen[chosen[:, 0] >= 0]
        numbers, chosen_bits = self._numbers(chosen), hamming_pairs(self.left.words, self.right.words, chosen)
        known = extremes_of(numbers, chosen_bits, self._exact(numbers), n_bits)
        return known, np.bincount(bits, minlength=n_bits + 1)

    def _products(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield positions of pairs, squared distances by a float64 product, and bounds of their errors."""
        for a in range(0, len(self.left.numbers), _TILE):
            for b in range(a if self.same else 0, len(self.right.numbers), _TILE):
                tiles = self.left.vectors[a : a + _TILE], self.right.vectors[b : b + _TILE]
                squares, error = _squares(*tiles, self.ask)
                i, j = np.indices(squares.shape).reshape(2, -1)
                if self.same and a == b:
                    i, j = np.nonzero(np.arange(len(squares))[:, None] < np.arange(len(squares)))
                yield i + a, j + b, squares[i, j], error[i, j]

    def _numbers(self, pairs: np.ndarray) -> np.ndarray:
        return np.stack([self.left.numbers[pairs[:, 0]], self.right.numbers[pairs[:, 1]]], axis=1)

    def _exact(self, numbers: np.ndarray) -> np.ndarray:
        i, j = numbers[:, 0] - self.left.numbers[0], numbers[:, 1] - self.right.numbers[0]
        return pair_distances(self.left.vectors, self.right.vectors, i, j)


class _Candidates:
    """Pairs that may be kept, with intervals for their residuals, and what newcomers have to reach."""

    def __init__(self, ask: Question, reached: Reached) -> None:
        self.ask = ask
        self.pairs, self.hashes = np.empty((0, 2), np.int64), np.empty(0, np.uint64)
        self.lower, self.upper = np.empty(0), np.empty(0)
        self.worst, self.sampled = reached.worst, reached.sampled

    def add(self, pairs: np.ndarray, hashes: np.ndarray, signed: np.ndarray) -> None:
        """Add pairs whose λ v - c is between two bounds, shape (p, 2)."""
        sizes = np.abs(signed)
        lower = np.where((signed[:, 0] <= 0) & (signed[:, 1] >= 0), 0.0, sizes.min(axis=1)) - _SLACK
        upper = sizes.max(axis=1) + _SLACK
        some = ((upper >= self.worst) | (hashes <= self.sampled)) & (upper >= self.ask.least)
        self.pairs = np.concatenate([self.pairs, pairs[some]])
        self.hashes = np.concatenate([self.hashes, hashes[some]])
        self.lower = np.concatenate([self.lower, lower[some]])
        self.upper = np.concatenate([self.upper, upper[some]])
        if len(self.hashes) > _HELD * self.ask.n_kept:
            self.shorten()

    def shorten(self) -> None:
        """Drop pairs that others are proven to push out of both lists."""
        most = self.ask.n_kept
        if len(self.hashes) <= most:
            return
        self.worst = max(self.worst, float(np.partition(self.lower, -most)[-most]))
        sure = self.hashes[self.lower > self.ask.least]
        if len(sure) >= most:
            self.sampled = min(self.sampled, int(np.partition(sure, most - 1)[most - 1]))
        some = (self.upper >= self.worst) | (self.hashes <= self.sampled)
        self.pairs, self.hashes = self.pairs[some], self.hashes[some]
        self.lower, self.upper = self.lower[some], self.upper[some]


def code_distances(left: np.ndarray, right: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the squared distances of listed pairs of codes, bit after bit."""
    total = np.zeros(len(i))
    for mine, other in zip(left.T, right.T, strict=True):
        difference = mine[i] - other[j]
        total += difference * difference
    return total


def _as_screened(side: CodedRows) -> ScreenedBlock:
    assert side.screened is not None
    return ScreenedBlock(side.numbers, side.screened, lambda: side.vectors)


def _centred(vectors: np.ndarray, ask: Question) -> Iterator[np.ndarray]:
    yield from type(ask.front)(ask.front.mean).tiles(vectors, np.float64)


def _squares(left: np.ndarray, right: np.ndarray, ask: Question) -> tuple[np.ndarray, np.ndarray]:
    """Return squared distances by a float64 product, and bounds of their errors."""
    left, right = (np.concatenate([*_centred(side, ask)]) for side in (left, right))
    sizes = np.add.outer(*(np.einsum("ij,ij->i", side, side) for side in (left, right)))
    error = 8 * (left.shape[1] + 16) * 2.0**-53 * sizes
    return sizes - 2 * (left @ right.T), error
