"""The training points of near-isometric hashing: gathered once, compared in any way its solvers need.

The problem couples all pairs of points, so it does not come apart into blocks.  The points are gathered
once and live in the state, with all that the solver needs to go on, until training ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.spatial.distance import pdist

from ..kernels.signs import as_signs
from ..procrustes import orthogonal_factor
from .base import Front
from .nibh_measure import ByHamming

if TYPE_CHECKING:
    from ..protocols import Arrays, Block

_ITQ_STEPS = 50
_MEASURED_ROWS = 2000  # of many points so many, evenly spaced, say how near the codes are


class GatherPoints:
    """Accumulator of the training points, in order; ``finalize`` learns ITQ's rotation from them.

    Parameters
    ----------
    front : Front
    chosen : ndarray of int64, shape (t,), or None
        Row numbers, ascending; None for all rows.
    whole : bool
        Keep all features until the end, for exact distances.
    pairs : bool, optional
        Return those of all pairs; by default if ``whole``.
    rotation : ndarray of float64, shape (k, b)
        Where ITQ begins, on the first k components.
    dtype : str
        Of the points in the state.
    """

    sequential: ClassVar[bool] = False

    def __init__(
        self,
        front: Front,
        chosen: np.ndarray | None,
        rotation: np.ndarray,
        dtype: str,
        *,
        whole: bool,
        pairs: bool | None = None,
    ) -> None:
        self.front, self.chosen, self.rotation, self.dtype, self.whole = front, chosen, rotation, dtype, whole
        self.pairs = whole if pairs is None else pairs

    def init(self) -> dict[str, np.ndarray]:
        """Return no points."""
        width = len(self.front.mean) if self.whole else self.front.n_outputs
        return {"rows": np.zeros((0, width)), "squares": np.zeros(0)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Append the chosen rows of a block."""
        vectors, components = block.vectors, self.front.components
        if self.chosen is not None:
            if not np.isfinite(vectors).all():  # rows that are not looked at may not be broken either
                raise ValueError("expected finite vectors, but some hold NaN or infinity")
            vectors = vectors[np.isin(block.rows, self.chosen)]
        rows, squares = [state["rows"]], [state["squares"]]
        for tile in Front(self.front.mean).tiles(vectors, np.float64):
            with np.errstate(over="ignore", invalid="ignore"):
                squares.append(np.einsum("ij,ij->i", tile, tile))
                rows.append(tile if self.whole or components is None else tile @ components)
        return {"rows": np.concatenate(rows), "squares": np.concatenate(squares)}

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Append the later points."""
        return {key: np.concatenate([left[key], right[key]]) for key in left}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the points in units of their spread, their distances if all are kept, and the rotation."""
        rows, squares = state["rows"], state["squares"]
        if not np.isfinite(squares).all():
            raise ValueError("expected finite vectors, but some hold NaN, infinity or huge numbers")
        unit = _spread(rows, squares)
        summary = {"unit": np.array(unit)}
        if self.pairs:
            summary["distances"] = pdist(rows / unit)
        if self.whole:
            rows = rows if self.front.components is None else rows @ self.front.components
        summary["rows"] = (rows / unit).astype(self.dtype)
        summary["squares"] = (squares / unit**2).astype(self.dtype)
        summary["weights"] = _itq(rows / unit, self.rotation)
        return summary


@dataclass(frozen=True)
class Points:
    """The training points in units of their spread: distances have mean square 2.

    Attributes
    ----------
    rows : ndarray, shape (t, r)
        In the space of the weights.
    squares : ndarray, shape (t,)
        Of the whole rows' lengths.
    pairs : ndarray of float64, shape (t (t - 1) / 2,), or None
        Exact distances of all pairs, or None where the points are too many.
    """

    rows: np.ndarray
    squares: np.ndarray
    pairs: np.ndarray | None = None
    upper: tuple[np.ndarray, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        measured = self.rows[:: self._stride()]
        object.__setattr__(self, "upper", np.triu_indices(len(measured), 1))

    @classmethod
    def of(cls, arrays: Arrays) -> Points:
        """Take them from a state."""
        return cls(arrays["rows"], arrays["squares"], arrays.get("distances"))

    def among(self, places: np.ndarray | slice) -> np.ndarray:
        """Return the distances among some points, from the coordinates kept of them, shape (m, m)."""
        rows, squares = self.rows[places], self.squares[places]
        distances = squares[:, None] + squares - 2 * (rows @ rows.T)
        np.fill_diagonal(distances, 0)
        return np.sqrt(np.maximum(distances, 0, out=distances), out=distances)

    def measured(self, weights: np.ndarray) -> ByHamming:
        """Compare Hamming distances of the sign codes with distances, over all pairs or those of a sample."""
        rows = self.rows[:: self._stride()]
        signs = as_signs(rows.astype(np.float64) @ weights).astype(np.float32)
        hamming = (0.5 * (weights.shape[1] - signs @ signs.T))[self.upper].astype(np.intp)
        distances = self.pairs
        if distances is None:
            distances = self.among(slice(None, None, self._stride()))[self.upper]
        return ByHamming.of_pairs(hamming, distances, weights.shape[1])

    def _stride(self) -> int:
        return 1 if self.pairs is not None else -(-len(self.rows) // _MEASURED_ROWS)


def _spread(rows: np.ndarray, squares: np.ndarray) -> float:
    """Return the unit in which the points' distances have mean square 2; 1 where they are all the same."""
    centred = rows - rows.mean(axis=0)
    hidden = np.maximum(squares - np.einsum("ij,ij->i", rows, rows), 0)  # in what no coordinate shows
    square = float(np.einsum("ij,ij->", centred, centred) + hidden.sum()) / max(1, len(rows) - 1)
    return float(np.sqrt(square)) if 0 < square < np.inf else 1.0


def _itq(rows: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """Return ITQ's rotation of the leading columns, zero for the others, shape (r, b)."""
    leading = rows[:, : len(rotation)]
    for _ in range(_ITQ_STEPS):
        correlation = leading.T @ as_signs(leading @ rotation)
        if not correlation.any():
            break
        rotation = orthogonal_factor(correlation)
    weights = np.zeros((rows.shape[1], rotation.shape[1]))
    weights[: len(rotation)] = rotation
    return weights
