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

    from ..anchor_encoder import AnchorEncoder, AnchorWeights
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
            z = _dense(self.attachment, tile)
            gram += z.T @ z
        return {"gram": gram, "count": np.array(state["count"] + len(block.vectors), np.int64)}


class AnchorHalves(_Sums):
    """Accumulator of what thresholds of a second layer follow from, for each eigenfunction y.

    With 1⁺ one where y >= 0: ``Zᵀ 1⁺``, ``Zᵀ |y|``, how many rows that are, their sum and that of all |y|.
    """

    def __init__(self, encoder: AnchorEncoder) -> None:
        self.encoder = encoder

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        m, r = self.encoder.weights.shape
        sums = {key: np.zeros((m, r)) for key in ("positive", "sizes")}
        return {**sums, "numbers": np.zeros((3, r)), "count": np.zeros((), np.int64)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        state = {key: array.copy() for key, array in state.items()}
        for tile in _tiles(block):
            z, y = _dense(self.encoder.attachment, tile), self.encoder.scores(tile)
            positive = (y >= 0).astype(np.float64)
            state["positive"] += z.T @ positive
            state["sizes"] += z.T @ np.abs(y)
            state["numbers"] += [positive.sum(axis=0), np.maximum(y, 0).sum(axis=0), np.abs(y).sum(axis=0)]
        state["count"] += len(block.vectors)
        return state


def _dense(attachment: AnchorWeights, rows: np.ndarray) -> np.ndarray:
    """Return the rows' Z."""
    places, shares = attachment.of(rows)
    z = np.zeros((len(rows), len(attachment.anchors)))
    np.put_along_axis(z, places, shares / shares.sum(axis=1, keepdims=True), axis=1)
    return z


def _tiles(block: Block) -> Iterator[np.ndarray]:
    check_finite(block)
    for start in range(0, len(block.vectors), TILE_ROWS):
        yield block.vectors[start : start + TILE_ROWS]
