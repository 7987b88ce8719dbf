"""What column generation adds up over all pairs of blocks: violating secants, extremes per Hamming distance.

Everything merges without regard to order.  Of the violating secants two sets are kept: those of largest
residual (equal ones by row numbers), and those of least hash, which are a uniform sample of them however
the pairs are cut into blocks and whatever worker sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .nibh_measure import ByHamming
from .nibh_sums import GatherPoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..protocols import Block
    from .base import Front

_TILE = 1024
_LIST = ("residual", "hash", "first", "second", "distance", "first_row", "second_row")
_TABLE = ("least", "largest", "pairs", "total", "square", "n_violators")


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


class Search:
    """Accumulator over pairs of blocks, each pair of rows once; ``finalize`` hands the sums to ``then``."""

    sequential: ClassVar[bool] = False
    pairwise: ClassVar[bool] = True

    def __init__(
        self, question: Question, then: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
    ) -> None:
        self.question = question
        self.then = then

    def init(self) -> dict[str, np.ndarray]:
        """Return what no pairs give."""
        r, b = self.question.weights.shape
        none, numbers = np.zeros(0), np.zeros(0, np.int64)
        lists = (none, np.zeros(0, np.uint64), numbers, numbers, none, np.zeros((0, r)), np.zeros((0, r)))
        table = (np.full(b + 1, np.inf), np.full(b + 1, -np.inf), np.zeros(b + 1), np.zeros(b + 1))
        counts = (np.zeros(()), np.zeros((), np.int64))
        return dict(zip(_LIST + _TABLE, lists + table + counts, strict=True))

    def update(self, state: dict[str, np.ndarray], block: tuple[Block, Block]) -> dict[str, np.ndarray]:
        """Add the pairs between two blocks, or those within one that is paired with itself."""
        left, right = block
        for a in _tiles(left, self.question):
            for b in _tiles(right, self.question):
                if a.rows[0] <= b.rows[0] or left.rows[0] != right.rows[0]:
                    state = self.merge(state, self._of_tiles(a, b))
        return state

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Join what two disjoint sets of pairs give."""
        joined = {key: np.concatenate([left[key], right[key]]) for key in _LIST}
        one, other = _table(left), _table(right)
        table = [np.asarray(array) for array in one.joined(other)]
        count = np.asarray(left["n_violators"] + right["n_violators"], np.int64)
        return self._shortened(joined) | dict(zip(_TABLE, [*table, count], strict=True))

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Refuse what is not finite and go on with the sums."""
        if not np.isfinite(state["square"]):
            raise ValueError("expected finite vectors, but some hold NaN, infinity or huge numbers")
        return self.then(state)

    def _of_tiles(self, a: _Tile, b: _Tile) -> dict[str, np.ndarray]:
        ask = self.question
        once = a.rows[:, None] < b.rows
        distances = a.squares[:, None] + b.squares - 2 * (a.vectors @ b.vectors.T)
        distances = np.sqrt(np.maximum(distances, 0, out=distances), out=distances)
        hamming = 0.5 * (ask.weights.shape[1] - a.signs @ b.signs.T)
        found = ByHamming.of_pairs(hamming[once].astype(np.intp), distances[once], ask.weights.shape[1])
        if ask.hard:
            soft = hamming.astype(distances.dtype)
        else:
            sizes = (np.einsum("ij,ij->i", t.codes, t.codes) for t in (a, b))
            soft = np.add.outer(*sizes) - 2 * (a.codes @ b.codes.T)
        residual = np.where(once, np.abs(soft.dtype.type(ask.scale) * soft - distances), -1)
        i, j = np.nonzero(residual > ask.threshold * ask.largest)
        number = a.rows[i] * ask.n_rows + b.rows[j]
        fresh = ~np.isin(number, ask.active, assume_unique=True)
        i, j, number = i[fresh], j[fresh], number[fresh]
        sizes_of = residual[i, j].astype(np.float64)
        lists = self._shortened(
            {
                "residual": sizes_of, "hash": _hashed(number, ask.key), "first": a.rows[i], "second":
                b.rows[j], "distance": i, "first_row": i, "second_row": j,
            }
        )  # fmt: skip
        i, j = lists["first_row"], lists["second_row"]
        difference = a.vectors[i].astype(np.float64) - b.vectors[j]
        lists["distance"] = np.sqrt(np.einsum("ij,ij->i", difference, difference))
        lists["first_row"], lists["second_row"] = a.points[i], b.points[j]
        count = np.asarray(np.count_nonzero(sizes_of > ask.largest), np.int64)
        table = [np.asarray(array) for array in found]
        return lists | dict(zip(_TABLE, [*table, count], strict=True))

    def _shortened(self, lists: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Keep the largest residuals and the least hashes, in the order of row numbers."""
        first, second, most = lists["first"], lists["second"], self.question.n_kept
        kept = np.zeros(len(first), bool)
        kept[np.lexsort((second, first, -lists["residual"]))[:most]] = True
        kept[np.lexsort((second, first, lists["hash"]))[:most]] = True
        order = np.flatnonzero(kept)
        order = order[np.lexsort((second[order], first[order]))]
        return {key: array[order] for key, array in lists.items()}


def _table(state: dict[str, np.ndarray]) -> ByHamming:
    least, largest, pairs, total = (state[key] for key in _TABLE[:4])
    return ByHamming(least, largest, pairs, total, float(state["square"]))


@dataclass(frozen=True)
class _Tile:
    rows: np.ndarray  # numbers
    vectors: np.ndarray  # (m, d) centred, in units
    squares: np.ndarray  # (m,)
    points: np.ndarray  # (m, r) float64, the rows' components
    signs: np.ndarray  # (m, b) -1 and 1
    codes: np.ndarray  # (m, b) soft, in (0, 1)


def _tiles(block: Block, ask: Question) -> Iterator[_Tile]:
    """Yield a block's rows with all that pairs of them need, a fixed number at a time."""
    kind: type[Any] = block.vectors.dtype.type
    for start in range(0, len(block.rows), _TILE):
        part = slice(start, start + _TILE)
        centred = np.subtract(block.vectors[part], ask.front.mean, dtype=np.float64) / ask.unit
        points = centred if ask.front.components is None else centred @ ask.front.components
        projections = points @ ask.weights
        vectors = centred.astype(kind)
        yield _Tile(
            block.rows[part].astype(np.int64),
            vectors,
            np.einsum("ij,ij->i", vectors, vectors),
            points,
            np.where(projections >= 0, 1.0, -1.0).astype(np.float32),
            (0.5 + 0.5 * np.tanh(ask.slope / 2 * projections)).astype(kind),
        )


def _hashed(numbers: np.ndarray, key: int) -> np.ndarray:
    """Return SplitMix64 of the pairs' numbers, uint64: a permutation of them that looks random."""
    z = numbers.astype(np.uint64) + np.uint64(key)
    z += np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class GatherSecants(GatherPoints):
    """Accumulator of some rows; ``finalize`` learns ITQ's rotation from them and draws the first secants.

    Parameters
    ----------
    numbers : ndarray of int64, shape (t,)
        The rows' numbers in the data.
    n_secants : int
        Drawn at random from the pairs of these rows; all of them if there are not more.
    rng : Generator
    """

    def __init__(
        self,
        front: Front,
        chosen: np.ndarray | None,
        rotation: np.ndarray,
        numbers: np.ndarray,
        n_secants: int,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(front, chosen, rotation, "float64", whole=True, pairs=False)
        self.numbers, self.n_secants, self.rng = numbers, n_secants, rng

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the rotation, the unit, the secants and the points at their ends."""
        summary = super().finalize(state)
        n = len(state["rows"])
        n_pairs = n * (n - 1) // 2
        if self.n_secants >= n_pairs:
            places = np.arange(n_pairs)
        else:
            places = np.sort(self.rng.choice(n_pairs, self.n_secants, replace=False))
        first, second = _unranked(places, n)
        difference = (state["rows"][first] - state["rows"][second]) / float(summary["unit"])
        ends = np.unique(np.concatenate([first, second]))
        return {
            "unit": summary["unit"],
            "weights": summary["weights"],
            "first": self.numbers[first],
            "second": self.numbers[second],
            "distance": np.sqrt(np.einsum("ij,ij->i", difference, difference)),
            "point_numbers": self.numbers[ends],
            "point_rows": summary["rows"][ends],
        }


def _unranked(places: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs i < j of n points at some places of their list in lexicographic order."""
    starts = np.concatenate([[0], np.cumsum(np.arange(n - 1, 0, -1))]).astype(np.int64)
    first = np.searchsorted(starts, places, side="right") - 1
    return first, places - starts[first] + first + 1
