"""Sums over rows, and over those of each class: what smooth functions that agree with labels follow from."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    from .curves import Curves
    from .methods.base import Front
    from .protocols import Block

MAX_SUMS = 2**25


class LabelSums:
    """Accumulator of sums of functions of rows.

    The summary has, over all rows, ``count``, ``total`` and ``squares`` (m,); over those with a label
    ``gram`` (m, m), the sum of ``u uᵀ``; and by class ``classes`` (int64, rising), ``class_counts`` and
    ``class_sums`` (c, m).

    Parameters
    ----------
    front : Front
        Makes rows coordinates.
    curves : Curves
        m functions u of the coordinates.
    """

    sequential: ClassVar[bool] = False

    def __init__(self, front: Front, curves: Curves) -> None:
        self.front, self.curves = front, curves

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums of no rows."""
        m = len(self.curves.places)
        return {
            "count": np.zeros((), np.int64),
            "total": np.zeros(m),
            "squares": np.zeros(m),
            "gram": np.zeros((m, m)),
            "classes": np.zeros(0, np.int64),
            "class_counts": np.zeros(0, np.int64),
            "class_sums": np.zeros((0, m)),
        }

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block.

        Raises
        ------
        ValueError
            If the data has no labels.
        """
        if block.labels is None:
            raise ValueError("expected rows with labels, -1 for none, but the data has no labels")
        start = 0
        for rows in self.front.tiles(block.vectors, np.float64):
            labels = block.labels[start : start + len(rows)]
            state = self.merge(state, self._of_tile(self.curves.of(rows), labels))
            start += len(rows)
        return state

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Add two sums, class by class."""
        classes = np.union1d(left["classes"], right["classes"])
        merged = {key: left[key] + right[key] for key in ("count", "total", "squares", "gram")}
        counts = np.zeros(len(classes), np.int64)
        sums = np.zeros((len(classes), len(left["total"])))
        if sums.size > MAX_SUMS:
            raise ValueError(
                f"expected labels of classes, got {len(classes):,} different ones: with "
                f"{sums.shape[1]} functions at most {MAX_SUMS // sums.shape[1]:,}"
            )
        for side in (left, right):
            places = np.searchsorted(classes, side["classes"])
            counts[places] += side["class_counts"]
            sums[places] += side["class_sums"]
        return {**merged, "classes": classes, "class_counts": counts, "class_sums": sums}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums.

        Raises
        ------
        ValueError
            If no row has a label, or a sum is not finite.
        """
        if not len(state["classes"]):
            raise ValueError(
                "expected labels of some rows, but all are -1, which means none (as any negative one does)"
            )
        if not all(np.isfinite(array).all() for array in state.values()):
            raise ValueError("expected finite vectors, but some hold NaN, infinity or huge numbers")
        return state

    def _of_tile(self, values: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
        there = labels >= 0
        classes, places = np.unique(labels[there], return_inverse=True)
        known = values[there]
        sums = np.zeros((len(classes), values.shape[1]))
        np.add.at(sums, places, known)
        return {
            "count": np.array(len(values), np.int64),
            "total": values.sum(axis=0),
            "squares": np.square(values).sum(axis=0),
            "gram": known.T @ known,
            "classes": classes.astype(np.int64),
            "class_counts": np.bincount(places, minlength=len(classes)).astype(np.int64),
            "class_sums": sums,
        }
