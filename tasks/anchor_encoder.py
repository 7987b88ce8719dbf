"""Codes by weighted sums over a row's few nearest anchors, such that a code is a function of its row alone.

Bit j of row x is ``Σ_k z_k W_(a_k, j) >= 0`` over its s nearest anchors a_k by rising distance, equally near
ones by number, with ``z_k = exp((‖x - a_1‖² - ‖x - a_k‖²) / t)``; that these do not add up to one changes no
sign. Which anchors are nearest, and how far, is exact (`points`); s terms are so few that the sums are made
in their fixed order for all rows. No BLAS and no exponential function of a library has a say in a code.
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
    """Encode rows by the signs of ``z(x) @ weights``.

    Parameters
    ----------
    attachment : AnchorWeights
    weights : ndarray of float64, shape (m, b)
        A column per bit.

    Raises
    ------
    ValueError
        If shapes disagree or a number is not finite.
    """

    def __init__(self, attachment: AnchorWeights, weights: np.ndarray) -> None:
        self.attachment = attachment
        self.weights = np.ascontiguousarray(weights, np.float64)
        m = len(attachment.anchors)
        if self.weights.ndim != 2 or len(self.weights) != m or 0 in self.weights.shape:
            raise ValueError(f"expected weights of shape ({m}, n_bits), got {self.weights.shape}")
        if not np.isfinite(self.weights).all() or not 0 < attachment.width < np.inf:
            raise ValueError("expected finite weights and a positive width")
        if not 1 <= attachment.n_nearest <= m:
            raise ValueError(f"expected 1 to {m} nearest anchors, got {attachment.n_nearest}")
        self.n_features, self.n_bits = attachment.anchors.points.shape[1], self.weights.shape[1]
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
            packed[start : start + len(tile)] = pack_bits(self.scores(tile) >= 0)
        return packed

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Return the scores that define the bits, float64, shape (n, b)."""
        places, shares = self.attachment.of(rows)
        scores = np.zeros((len(rows), self.n_bits))
        for k in range(places.shape[1]):
            scores += shares[:, k, None] * self.weights[places[:, k]]
        return scores
