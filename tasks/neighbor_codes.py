"""Where true neighbours stand among the codes: their Hamming distances, and how many rows are at each one.

What an executor adds up for overlap MAP and Kendall's τ.  Queries and their neighbours travel in the round
state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .kernels.hamming import as_words, hamming_histogram

if TYPE_CHECKING:
    from .protocols import Block, Method, RoundState

State = dict[str, np.ndarray]


@dataclass(frozen=True)
class NeighborCodes:
    """Find the Hamming distances of listed rows to their queries, and the histogram of those of all rows.

    The state holds ``query_codes`` and ``neighbors``, row numbers of shape (q, k).  The summary holds
    ``distance`` int32 (q, k) and ``histogram`` int64 (q, 8 · bytes + 1).

    Attributes
    ----------
    method : Method or None
        Encodes the blocks with the encoder in the state.  None: blocks hold packed codes already.
    """

    method: Method | None = None

    def accumulator(self, state: RoundState) -> NeighborCodesAccumulator:
        """Build the accumulator from the queries (and the encoder) in ``state``."""
        encoder = None if self.method is None else self.method.encoder(state)
        return NeighborCodesAccumulator(state.arrays["query_codes"], state.arrays["neighbors"], encoder)


class NeighborCodesAccumulator:
    """The monoid of counts and of distances found so far (-1 where there is none)."""

    sequential: ClassVar[bool] = False

    def __init__(self, query_codes: np.ndarray, neighbors: np.ndarray, encoder: Any) -> None:
        self._words, self._n_bits = as_words(query_codes), 8 * query_codes.shape[1]
        self._neighbors, self._encoder = neighbors, encoder

    def init(self) -> State:
        """Return no rows."""
        return {
            "distance": np.full(self._neighbors.shape, -1, np.int32),
            "histogram": np.zeros((len(self._words), self._n_bits + 1), np.int64),
        }

    def update(self, state: State, block: Block) -> State:
        """Add the rows of one block."""
        if not len(block.rows):
            return state
        codes = block.vectors if self._encoder is None else self._encoder.encode(block.vectors)
        words = as_words(codes)
        state["histogram"] += hamming_histogram(self._words, words, self._n_bits)
        place = np.searchsorted(block.rows, self._neighbors)
        place[place == len(block.rows)] = 0
        query, rank = np.nonzero(block.rows[place] == self._neighbors)
        differing = np.bitwise_count(self._words[query] ^ words[place[query, rank]])
        state["distance"][query, rank] = differing.sum(axis=1, dtype=np.int32)
        return state

    def merge(self, left: State, right: State) -> State:
        """Add counts, and put together what either has found."""
        return {
            "distance": np.maximum(left["distance"], right["distance"]),
            "histogram": left["histogram"] + right["histogram"],
        }

    def finalize(self, state: State) -> State:
        """Return distances and counts."""
        return state
