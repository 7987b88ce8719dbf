"""What KNNH adds up: the training rows, their nearest neighbours, and the neighbours' means.

All but the second half of a search in all rows is a list of rows that merges by joining: blocks come in
the order of their rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..protocols import Block
from ..search import NearestVectorsAccumulator

if TYPE_CHECKING:
    from .base import Front

_TILE_ROWS = 1024


class GatherRows:
    """Accumulator of the coordinates of chosen rows, in their order.

    Parameters
    ----------
    front : Front
    chosen : ndarray of int64, shape (t,), or None
        Row numbers, ascending; None for all rows.
    """

    sequential: ClassVar[bool] = False

    def __init__(self, front: Front, chosen: np.ndarray | None) -> None:
        self.front = front
        self.chosen = chosen

    def init(self) -> dict[str, np.ndarray]:
        """Return no rows."""
        return {"rows": np.zeros((0, self.front.n_outputs))}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Append the chosen rows of a block."""
        vectors = block.vectors
        if self.chosen is not None:
            vectors = vectors[np.isin(block.rows, self.chosen)]
        return {"rows": np.concatenate([state["rows"], coordinates(self.front, vectors)])}

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Join two lists."""
        return {"rows": np.concatenate([left["rows"], right["rows"]])}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the rows; refuse what is not finite."""
        return check_finite(state, "rows")


class AverageNeighbours:
    """Accumulator of the means of each row's nearest others, all of them in memory.

    Parameters
    ----------
    rows : ndarray of float64, shape (t, r)
    n_neighbors : int

    Notes
    -----
    A block says whose averages by the rows' places among ``rows``; its vectors are not looked at.
    """

    sequential: ClassVar[bool] = False

    def __init__(self, rows: np.ndarray, n_neighbors: int) -> None:
        self.rows = rows
        self.n_neighbors = n_neighbors

    def init(self) -> dict[str, np.ndarray]:
        """Return no averages."""
        return {"averages": np.zeros((0, self.rows.shape[1]))}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Append the averages of a block's rows."""
        places = np.asarray(block.rows)
        everything = Block(np.arange(len(self.rows)), self.rows)
        found = [state["averages"]]
        for start in range(0, len(places), _TILE_ROWS):
            own = places[start : start + _TILE_ROWS]
            search = NearestVectorsAccumulator(self.rows[own], self.n_neighbors + 1, None)
            nearest = search.finalize(search.update(search.init(), everything))["id"]
            found.append(self._mean(without_self(nearest, own), own))
        return {"averages": np.concatenate(found)}

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Join two lists."""
        return {"averages": np.concatenate([left["averages"], right["averages"]])}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the averages."""
        return state

    def _mean(self, neighbors: np.ndarray, own: np.ndarray) -> np.ndarray:
        if not neighbors.shape[1]:  # a single row has no others
            return self.rows[own]
        total = np.zeros((len(own), self.rows.shape[1]))
        for column in neighbors.T:  # nearest first
            total += self.rows[column]
        return total / neighbors.shape[1]


class FindNeighbours:
    """Accumulator of the nearest others, among all rows that are read, of rows in memory.

    Parameters
    ----------
    front : Front
    rows : ndarray of float64, shape (t, r)
    numbers : ndarray of int64, shape (t,)
        The row numbers of ``rows``.
    n_neighbors : int
    """

    sequential: ClassVar[bool] = False

    def __init__(self, front: Front, rows: np.ndarray, numbers: np.ndarray, n_neighbors: int) -> None:
        self.front = front
        self.numbers = numbers
        self.search = NearestVectorsAccumulator(rows, n_neighbors + 1, None)

    def init(self) -> dict[str, np.ndarray]:
        """Return empty lists."""
        return self.search.init()

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        return self.search.update(state, Block(block.rows, coordinates(self.front, block.vectors)))

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Keep the nearest of both."""
        return self.search.merge(left, right)

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the neighbours' row numbers, nearest first; refuse what is not finite."""
        check_finite(state, "distance")
        return {"neighbors": without_self(state["id"], self.numbers)}


class AddNeighbours:
    """Accumulator of the means of neighbours that are known by number.

    Parameters
    ----------
    front : Front
    neighbors : ndarray of int64, shape (t, k)
    """

    sequential: ClassVar[bool] = False

    def __init__(self, front: Front, neighbors: np.ndarray) -> None:
        self.front = front
        self.neighbors = neighbors
        self.order = np.argsort(neighbors, axis=None, kind="stable")
        self.sorted = neighbors.ravel()[self.order]

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        return {"averages": np.zeros((len(self.neighbors), self.front.n_outputs))}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add each row of a block to the sums of those whose neighbour it is."""
        if not len(block.rows):
            return state
        rows, first = coordinates(self.front, block.vectors), int(block.rows[0])
        start, stop = np.searchsorted(self.sorted, [first, first + len(rows)])
        owners = self.order[start:stop] // self.neighbors.shape[1]
        np.add.at(state["averages"], owners, rows[self.sorted[start:stop] - first])
        return state

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Add two sums."""
        left["averages"] += right["averages"]
        return left

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the means."""
        return {"averages": state["averages"] / self.neighbors.shape[1]}


def coordinates(front: Front, vectors: np.ndarray) -> np.ndarray:
    """Return what a method sees of some vectors, float64, shape (m, r)."""
    return np.concatenate([np.zeros((0, front.n_outputs)), *front.tiles(vectors, np.float64)])


def without_self(nearest: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Take each row's own number from its list, or else the last one, which is one too many."""
    is_self = nearest == own[:, None]
    is_self[~is_self.any(axis=1), -1] = True
    return nearest[~is_self].reshape(len(nearest), nearest.shape[1] - 1)


def check_finite(state: dict[str, np.ndarray], key: str) -> dict[str, np.ndarray]:
    """Return the state; ValueError if an array of it holds NaN or infinity."""
    if not np.isfinite(state[key]).all():
        raise ValueError("expected finite rows, but the vectors hold NaN, infinity or huge numbers")
    return state
