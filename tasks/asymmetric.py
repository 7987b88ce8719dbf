"""Asymmetric search: the query keeps its real numbers, only the database is bits.

The distance of projections ``p`` to a code is the weight ``|p_j|`` of every bit that disagrees with the sign
of ``p_j`` (1 where ``p_j >= 0``): a Hamming distance in which doubtful bits count little.  It orders codes as
the score ``sum of ±p_j`` does, largest first.

Weights are rounded to a grid on which float64 adds without error, far below the precision of float32: so a
distance does not depend on the order of summation, on blocks or on the machine, and equal codes tie exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .kernels.weighted import nearest_weighted
from .search import Nearest, tie_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from .protocols import Block, Method, RoundState
    from .search import TopK


@dataclass(frozen=True)
class NearestProjections:
    """Find the codes nearest to ``state.arrays["query_projections"]`` by asymmetric distance.

    The summary holds ``distance`` float64 and ``id`` int64, both of shape (q, min(k, n)), nearest first.

    Attributes
    ----------
    k : int
    seed : int or None
        Orders equal distances; None: by row number.
    method: Method, optional
        Blocks hold vectors, which its encoder turns into codes; without it they are packed codes.
    """

    k: int
    seed: int | None = None
    method: Method | None = None

    def accumulator(self, state: RoundState) -> NearestProjectionsAccumulator:
        """Build the accumulator from the queries (and the encoder) in ``state``."""
        encode = None if self.method is None else self.method.encoder(state).encode
        return NearestProjectionsAccumulator(state.arrays["query_projections"], self.k, self.seed, encode)


class NearestProjectionsAccumulator(Nearest):
    """The k codes nearest to each query's projections (q, n_bits).

    Blocks hold packed codes, or vectors that ``encode`` turns into codes.
    """

    dtype = np.float64

    def __init__(
        self,
        projections: np.ndarray,
        k: int,
        seed: int | None,
        encode: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        super().__init__(len(projections), k, seed)
        self._projections = projections
        self._encode = encode

    def _rank(self, block: Block) -> TopK:
        codes = block.vectors if self._encode is None else self._encode(block.vectors)
        ties = tie_keys(self.seed, block.rows)
        order = np.lexsort((block.rows, ties))
        k = min(self.k, len(order))
        distance, places = nearest_to_projections(self._projections, codes[order], k)
        chosen = order[places]
        return {"distance": distance, "tie": ties[chosen], "id": block.rows[chosen]}


def nearest_to_projections(
    projections: np.ndarray, packed: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k codes nearest to each query's projections, the earlier row first among equals.

    Parameters
    ----------
    projections : ndarray of float, shape (q, n_bits)
        Finite.
    packed : ndarray of uint8, shape (n, ceil(n_bits / 8))
    k : int
        At most n.

    Returns
    -------
    distances : ndarray of float64, shape (q, k)
    rows : ndarray of int64, shape (q, k)
    """
    weights, scale = _whole(projections)
    distances, rows = nearest_weighted(weights, packed, k)
    return np.ldexp(distances.astype(np.float64), -scale), rows


def asymmetric_distances(projections: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Return the distances of all pairs by the definition, float64, shape (q, n); ``bits`` are 0 and 1."""
    weights = on_grid(projections)
    unlike = (weights[:, None, :] >= 0) != (bits[None, :, :] == 1)
    return np.where(unlike, np.abs(weights)[:, None, :], 0.0).sum(axis=2)


def on_grid(projections: np.ndarray) -> np.ndarray:
    """Round each query's numbers so that any sum of them is exact in float64."""
    weights, scale = _whole(projections)
    return np.ldexp(weights.astype(np.float64), -scale)


def _whole(projections: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whole numbers, int64, and the power of two by which they are too large, shape (q, 1)."""
    projections = np.asarray(projections, np.float64)
    n_bits = max(projections.shape[1], 1)
    exponents = np.frexp(np.abs(projections).max(axis=1, initial=0.0))[1]
    places = 52 - int(n_bits).bit_length()
    scale = (places - exponents)[:, None]
    return np.rint(np.ldexp(projections, scale)).astype(np.int64), scale
