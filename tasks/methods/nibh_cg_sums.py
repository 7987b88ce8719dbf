"""The rows that column generation begins with, and those that it reports from, gathered once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .nibh_sums import GatherPoints, Points

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Front


class GatherSecants(GatherPoints):
    """Accumulator of some rows; ``finalize`` learns ITQ's rotation from them and draws the first secants.

    Parameters
    ----------
    numbers : ndarray of int64, shape (t,)
        The rows' numbers in the data.
    n_secants : int
        Drawn at random from the pairs of these rows; all of them if there are not more.
    rng : Generator
    warm : callable, optional
        Takes the points (`nibh_sums.Points`) and the first weights to better ones and their λ.
    """

    def __init__(
        self,
        front: Front,
        chosen: np.ndarray | None,
        rotation: np.ndarray,
        numbers: np.ndarray,
        n_secants: int,
        rng: np.random.Generator,
        warm: Callable[[Points, np.ndarray], tuple[np.ndarray, float]] | None = None,
    ) -> None:
        super().__init__(front, chosen, rotation, "float64", whole=True, pairs=False)
        self.numbers, self.n_secants, self.rng, self.warm = numbers, n_secants, rng, warm

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the rotation, the unit, the secants and the points at their ends."""
        summary = super().finalize(state)
        weights, begun = summary["weights"], {}
        if self.warm is not None:
            weights, scale = self.warm(Points.of(summary), weights)
            begun["scale"] = np.array(scale)
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
            "weights": weights,
            "first": self.numbers[first],
            "second": self.numbers[second],
            "distance": np.sqrt(np.einsum("ij,ij->i", difference, difference)),
            "point_numbers": self.numbers[ends],
            "point_rows": summary["rows"][ends],
            **begun,
        }


class GatherMeasured(GatherPoints):
    """Accumulator of some rows; ``finalize`` compares all their pairs with those of their sign codes.

    Parameters
    ----------
    weights : ndarray of float64, shape (r, b)
    """

    def __init__(self, front: Front, chosen: np.ndarray | None, weights: np.ndarray) -> None:
        super().__init__(front, chosen, np.zeros((0, weights.shape[1])), "float64", whole=True)
        self.weights = weights

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return ``pairs`` and the ``total`` of c by Hamming distance, and the ``square`` of all c."""
        summary = super().finalize(state)
        unit, found = float(summary["unit"]), Points.of(summary).measured(self.weights)
        square = np.array(unit**2 * found.square)
        return {"pairs": found.pairs, "total": unit * found.total, "square": square}


def _unranked(places: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs i < j of n points at some places of their list in lexicographic order."""
    starts = np.concatenate([[0], np.cumsum(np.arange(n - 1, 0, -1))]).astype(np.int64)
    first = np.searchsorted(starts, places, side="right") - 1
    return first, places - starts[first] + first + 1
