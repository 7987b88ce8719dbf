"""What anchor graph hashing adds up: the rows of each centre, a mean distance, and the graph itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..kernels.accumulate import add_rows
from ..points import TILE_ROWS
from ..sums import Sums
from .ssbc_sums import check_finite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..anchor_encoder import AnchorWeights
    from ..points import Points
    from ..protocols import Block


class _Sums(Sums):
    """Accumulator of arrays that add."""

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums."""
        return state


class CentreSums(_Sums):
    """Accumulator of how far the rows of each centre are from it, and how many.

    Parameters
    ----------
    centres : Points
        A row is of the nearest one, of the first among equally near ones.
    """

    def __init__(self, centres: Points) -> None:
        self.centres = centres

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        shape = self.centres.points.shape
        return {"total": np.zeros(shape), "count": np.zeros(shape[0], np.int64), "square": np.zeros(())}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        total, count, square = state["total"].copy(), state["count"].copy(), float(state["square"])
        for tile in _tiles(block):
            places, distances = self.centres.nearest(tile, 1)
            add_rows(total, places.astype(np.int32), tile - self.centres.points[places[:, 0]])
            count += np.bincount(places[:, 0], minlength=len(count))
            square += float(distances.sum())
        return {"total": total, "count": count, "square": np.array(square)}


class AnchorDistance(_Sums):
    """Accumulator of the rows' distances to their ``k``-th nearest anchor."""

    def __init__(self, anchors: Points, k: int) -> None:
        self.anchors = anchors
        self.k = k

    def init(self) -> dict[str, np.ndarray]:
        """Return the sum over no rows."""
        return {"distance": np.zeros(()), "count": np.zeros((), np.int64)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        distance = float(state["distance"])
        for tile in _tiles(block):
            distance += float(np.sqrt(self.anchors.nearest(tile, self.k)[1][:, -1]).sum())
        count = state["count"] + len(block.vectors)
        return {"distance": np.array(distance), "count": np.array(count, np.int64)}


class AnchorGraph(_Sums):
    """Accumulator of ``Zᵀ Z``."""

    def __init__(self, attachment: AnchorWeights) -> None:
        self.attachment = attachment

    def init(self) -> dict[str, np.ndarray]:
        """Return the sum over no rows."""
        m = len(self.attachment.anchors)
        return {"gram": np.zeros((m, m)), "count": np.zeros((), np.int64)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        gram = state["gram"].copy()
        for tile in _tiles(block):
            places, shares = self.attachment.of(tile)
            z = np.zeros((len(tile), len(gram)))
            np.put_along_axis(z, places, shares / shares.sum(axis=1, keepdims=True), axis=1)
            gram += z.T @ z
        return {"gram": gram, "count": np.array(state["count"] + len(block.vectors), np.int64)}


def _tiles(block: Block) -> Iterator[np.ndarray]:
    check_finite(block)
    for start in range(0, len(block.vectors), TILE_ROWS):
        yield block.vectors[start : start + TILE_ROWS]
