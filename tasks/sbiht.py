"""Decoding by sparse binary iterative hard thresholding (POSH paper, appendix D, Algorithm 4).

Starting from the linear reconstruction x of a code h of ``n_active`` ones, repeats

    b = wta(W x),   x = x - Wᵀ (b - h) / √(r D)

A vector whose own code is h stays where it is.  No step is sure to lower ``‖b - h‖²`` of a single row, so the
best of each row's iterates is kept.  All sums run in fixed order: the result is a function of the code alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .decoder import check_codes
from .encode import ProjectionEncoder
from .kernels.decoding import sum_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .decoder import Decoder


class SparseHardThresholding:
    """Reconstructs vectors whose own code is the given one.

    Parameters
    ----------
    decoder : Decoder
        Of sparse codes.
    weights : ndarray, shape (r, b)
        The encoder's in the decoder's coordinates.
    n_active : int
    step : float, optional
        In place of ``1 / √(r D)``.
    """

    def __init__(
        self, decoder: Decoder, weights: np.ndarray, n_active: int, *, step: float | None = None
    ) -> None:
        if decoder.dense:
            raise ValueError("expected a decoder of sparse codes: Algorithm 4 is winner-take-all's inverse")
        self.decoder = decoder
        self.rows = np.ascontiguousarray(weights.T, dtype=np.float64)
        self.encoder = ProjectionEncoder(np.zeros(len(weights)), weights, n_active)
        self.step = 1 / np.sqrt(weights.size) if step is None else step

    def iterates(self, codes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield without end each iterate x (m, r) and ``‖b - h‖²`` of every row (m,), the start first."""
        x = self.decoder.reconstruct(codes)
        zero = np.zeros(x.shape[1])
        while True:
            own = self.encoder.encode(x)
            yield x, np.bitwise_count(own ^ codes).sum(axis=1, dtype=np.int64)
            towards = sum_rows(codes & ~own, self.rows, zero) - sum_rows(own & ~codes, self.rows, zero)
            x = x + self.step * towards

    def reconstruct(self, codes: np.ndarray, n_iter: int) -> np.ndarray:
        """Return the best of the first ``n_iter`` iterates after the start, float64, shape (m, r)."""
        codes = check_codes(codes, self.decoder.n_bits)
        steps = self.iterates(codes)
        best, least = next(steps)
        for _ in range(n_iter):
            if not least.any():
                break
            x, error = next(steps)
            better = error < least
            best = np.where(better[:, None], x, best)
            least = np.minimum(error, least)
        return best
