"""Codes by weighted sums over a row's few nearest anchors, such that a code is a function of its row alone.

The score of row x for eigenfunction j is ``y_j = Σ_k z_k W_(a_k, j) / Σ_k z_k`` over its s nearest anchors
a_k by rising distance, equally near ones by number, with ``z_k = exp((‖x - a_1‖² - ‖x - a_k‖²) / t)``. Bit j
is ``y_j >= 0``; of two layers, another bit says whether it is far from 0, ``y_j >= b⁺_j`` or ``y_j <= b⁻_j``.

Which anchors are nearest, and how far, is exact (`points`); s terms are so few that the sums are made in
their fixed order for all rows. No BLAS and no exponential function of a library has a say in a code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .affinity import exponential
from .kernels.pack import pack_bits, packed_width
from .points import tiles

if TYPE_CHECKING:
    from .points import Points


@dataclass(frozen=True, eq=False)
class AnchorWeights:
    """The map from a row to its nearest anchors and its shares in them.

    Attributes
    ----------
    anchors : Points
        m of them.
    n_nearest : int
        s <= m.
    width : float
        √t.
    """

    anchors: Points
    n_nearest: int
    width: float

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the anchors' numbers and the rows' shares, not normalised, both of shape (n, s)."""
        places, distances = self.anchors.nearest(rows, self.n_nearest)
        with np.errstate(over="ignore"):
            exponents = (distances[:, :1] - distances) / self.width / self.width
        return places, exponential(exponents)


class AnchorEncoder:
    """Encode rows by the signs of ``z(x) @ weights``, and maybe by their size.

    Parameters
    ----------
    attachment : AnchorWeights
    weights : ndarray of float64, shape (m, r)
        A column per eigenfunction.
    thresholds : ndarray of float64, shape (2, r), optional
        b⁺ and b⁻ of a second layer: r more bits.

    Raises
    ------
    ValueError
        If shapes disagree or a number is not finite.
    """

    def __init__(
        self, attachment: AnchorWeights, weights: np.ndarray, thresholds: np.ndarray | None = None
    ) -> None:
        self.attachment = attachment
        self.thresholds = thresholds
        self.weights = np.ascontiguousarray(weights, np.float64)
        m = len(attachment.anchors)
        if self.weights.ndim != 2 or len(self.weights) != m or 0 in self.weights.shape:
            raise ValueError(f"expected weights of shape ({m}, n_bits), got {self.weights.shape}")
        if not np.isfinite(self.weights).all() or not 0 < attachment.width < np.inf:
            raise ValueError("expected finite weights and a positive width")
        if not 1 <= attachment.n_nearest <= m:
            raise ValueError(f"expected 1 to {m} nearest anchors, got {attachment.n_nearest}")
        layers = 1
        if thresholds is not None:
            layers = 2
            if thresholds.shape != (2, self.weights.shape[1]) or not np.isfinite(thresholds).all():
                raise ValueError(f"expected two finite thresholds per column, got {thresholds.shape}")
        self.n_features = attachment.anchors.points.shape[1]
        self.n_bits = layers * self.weights.shape[1]
        self.n_active: int | None = None

    @property
    def mean(self) -> np.ndarray:
        """The mean of the anchors."""
        return self.attachment.anchors.origin

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Return packed codes, uint8, shape (n, ceil(n_bits / 8)), least significant bit first.

        Raises
        ------
        ValueError
            If the shape is wrong, a row holds NaN or infinity, or distances overflow float64.
        """
        packed = np.empty((len(vectors), packed_width(self.n_bits)), np.uint8)
        for start, tile in tiles(vectors, self.n_features):
            packed[start : start + len(tile)] = pack_bits(self.bits(tile))
        return packed

    def bits(self, rows: np.ndarray) -> np.ndarray:
        """Return the bits, bool, shape (n, b)."""
        scores = self.scores(rows)
        first = scores >= 0
        if self.thresholds is None:
            return first
        above, below = self.thresholds
        return np.concatenate([first, np.where(first, scores >= above, scores <= below)], axis=1)

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Return the scores that define the bits, float64, shape (n, r)."""
        places, shares = self.attachment.of(rows)
        scores, total = np.zeros((len(rows), self.weights.shape[1])), np.zeros(len(rows))
        for k in range(places.shape[1]):
            scores += shares[:, k, None] * self.weights[places[:, k]]
            total += shares[:, k]
        return np.asarray(scores / total[:, None])
