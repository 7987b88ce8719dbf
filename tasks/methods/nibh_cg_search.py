"""What column generation adds up over all pairs of blocks: violating secants, extremes per Hamming distance.

Everything merges without regard to order.  Of the violating secants two sets are kept: those of largest
residual (equal ones by row numbers), and those of least hash, which are a uniform sample of them however
the pairs are cut into blocks and whatever worker sees them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..extremes import joined, no_extremes
from ..kernels._numba import loops
from ..kernels.screened_rows import given_basis, make_basis, screened
from .nibh_cg_pairs import FEW_PAIRS, BlockPairs, Reached, coded

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..kernels.screened_rows import Basis
    from ..protocols import Block
    from .base import Front
    from .nibh_cg_pairs import CodedRows

_LIST = ("residual", "hash", "first", "second", "distance", "first_row", "second_row")
_TABLE = ("low", "high", "low_pair", "high_pair")
_HELD_BLOCKS = 12  # coded, without their rows: about a tenth of these
_BASIS_ROWS = 512


@dataclass(frozen=True)
class Question:
    """What is asked of every pair.

    Attributes
    ----------
    front : Front
    weights : ndarray of float64, shape (r, b)
        For rows in units.
    unit : float
    slope, scale : float
        Of the sigmoids; λ.
    largest : float
        The largest residual of an active secant: beyond it a pair violates.
    threshold : float
        Share of it from which a pair is a candidate.
    hard : bool
        Residuals of the sign codes, in place of soft ones.
    active : ndarray of int64, shape (s,)
        Numbers ``first * n_rows + second`` of the active secants, ascending; they are no candidates.
    n_rows, n_kept, key : int
        Rows of the data; how many candidates are kept of either kind; what hashes depend on beside the pair.
    """

    front: Front
    weights: np.ndarray
    unit: float
    slope: float
    scale: float
    largest: float
    threshold: float
    hard: bool
    active: np.ndarray
    n_rows: int
    n_kept: int
    key: int

    @property
    def n_bits(self) -> int:
        """The length of the codes."""
        return self.weights.shape[1]

    @property
    def least(self) -> float:
        """The residual beyond which a pair is a candidate."""
        return self.threshold * self.largest


class Search:
    """Accumulator over pairs of blocks, each pair of rows once; ``finalize`` hands the sums to ``then``.

    The state holds the kept secants, and ``low``, ``high``, ``low_pair`` and ``high_pair`` of the squared
    distances as `bitfleet.tasks.extremes` defines them.

    Parameters
    ----------
    question : Question
    then : callable
    few : int
        Blocks with at most so many pairs are compared without screening; no result depends on it.
    """

    sequential: ClassVar[bool] = False
    pairwise: ClassVar[bool] = True

    def __init__(
        self,
        question: Question,
        then: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]],
        few: int = FEW_PAIRS,
    ) -> None:
        self.question, self.then, self.few = question, then, few
        self._reached = Reached(question)
        self._basis: Basis | None = None
        self._held: OrderedDict[int, CodedRows] = OrderedDict()

    def init(self) -> dict[str, np.ndarray]:
        """Return what no pairs give."""
        r, b = self.question.weights.shape
        none, numbers = np.zeros(0), np.zeros(0, np.int64)
        lists = (none, np.zeros(0, np.uint64), numbers, numbers, none, np.zeros((0, r)), np.zeros((0, r)))
        nothing = no_extremes(b)
        return dict(zip(_LIST, lists, strict=True)) | {name: nothing[name] for name in _TABLE}

    def update(self, state: dict[str, np.ndarray], block: tuple[Block, Block]) -> dict[str, np.ndarray]:
        """Add the pairs between two blocks, or those within one that is paired with itself."""
        left, right = block
        if not len(left.rows) or not len(right.rows):
            return state
        same = left.rows[0] == right.rows[0]
        few = loops() is None or len(left.rows) * len(right.rows) <= self.few
        first = self._coded(left, screen=not few)
        second = first if same else self._coded(right, screen=not few)
        pairs = BlockPairs(first, second, self.question, None if few else self._basis, self._reached)
        found, extremes = pairs.searched()
        lists = self._shortened(
            {
                "residual": found["residual"], "hash": found["hash"], "first": first.numbers[found["i"]],
                "second": second.numbers[found["j"]], "distance": found["distance"], "first_row": found["i"],
                "second_row": found["j"],
            }
        )  # fmt: skip
        lists["first_row"] = self._points(first.vectors, lists["first_row"])
        lists["second_row"] = self._points(second.vectors, lists["second_row"])
        return self.merge(state, lists | {name: extremes[name] for name in _TABLE})

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Join what two disjoint sets of pairs give."""
        lists = {key: np.concatenate([left[key], right[key]]) for key in _LIST}
        nothing = no_extremes(self.question.weights.shape[1])
        extremes = joined(nothing | left, nothing | right)
        return self._shortened(lists) | {name: extremes[name] for name in _TABLE}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Go on with the sums."""
        return self.then(state)

    # private -------------------------------------------------------------------------------------------

    def _coded(self, block: Block, *, screen: bool) -> CodedRows:
        """Return a block's rows with codes, and screened if so wished; some blocks are remembered."""
        number, held = int(block.rows[0]), None
        if number in self._held:
            held = replace(self._held.pop(number), vectors=block.vectors)
        held = held or coded(block, self.question)
        if screen and held.screened is None:
            self._basis = self._basis or self._basis_of(block.vectors)
            held = replace(held, screened=screened(block.vectors, held.packed, self._basis))
        self._held[number] = replace(held, vectors=held.vectors[:0])
        while len(self._held) > _HELD_BLOCKS:
            self._held.popitem(last=False)
        return held

    def _basis_of(self, vectors: np.ndarray) -> Basis:
        rows, front = vectors[:: max(1, len(vectors) // _BASIS_ROWS)], self.question.front
        if front.components is None:
            return make_basis(rows)
        return given_basis(rows, front.mean, front.components)

    def _points(self, vectors: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return some rows in the space of the weights, in units."""
        front, (chosen, where) = self.question.front, np.unique(places, return_inverse=True)
        points = np.subtract(vectors[chosen], front.mean, dtype=np.float64) / self.question.unit
        return (points if front.components is None else points @ front.components)[where]

    def _shortened(self, lists: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Keep the largest residuals and the least hashes, in the order of row numbers."""
        first, second, most = lists["first"], lists["second"], self.question.n_kept
        kept = np.zeros(len(first), bool)
        kept[np.lexsort((second, first, -lists["residual"]))[:most]] = True
        kept[np.lexsort((second, first, lists["hash"]))[:most]] = True
        order = np.flatnonzero(kept)
        order = order[np.lexsort((second[order], first[order]))]
        return {key: array[order] for key, array in lists.items()}
