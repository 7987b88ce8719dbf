"""Exact nearest rows, block by block: what an executor adds up to find the k nearest of a whole dataset.

The sum of two blocks is the k best of both, ordered by (distance, tie, row number).  With a seed, *tie* is a
random number addressed by (seed, row number): equal distances are then ordered at random, but in the same way
for every block size, worker count and run.  Without a seed it is zero, and the smaller row number goes first.

Queries travel in the round state (``query_codes`` or ``query_vectors``), never in the program itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from .kernels.blocked import make_tiles, search_tiles
from .kernels.euclidean import pair_distances
from .kernels.hamming import as_words, nearest_codes
from .kernels.nearest import improve_lists, nearest_rows
from .kernels.pack import list_active
from .kernels.ranked import merge_ranked
from .kernels.vertical import make_columns, search_columns
from .random import stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from .protocols import Block, Method, RoundState

TopK = dict[str, np.ndarray]

_LONG_LIST = 20  # a list of more than one row in so many is found by sorting all by counting
_WORTH_COLUMNS = 100  # queries from which turning a block into bit columns pays


@dataclass(frozen=True)
class NearestCodes:
    """Find the rows whose codes are nearest to ``state.arrays["query_codes"]`` by Hamming distance.

    The summary holds ``distance`` int32 and ``id`` int64, both of shape (q, min(k, n)), best first.

    Attributes
    ----------
    k : int
    seed : int or None
        Orders equal distances; None: by row number.
    method : Method or None
        Encodes the blocks with the encoder in the state.  None: blocks hold packed codes already.
    n_active : int or None
        Ones of every code if they are sparse; only speed depends on it.
    """

    k: int
    seed: int | None = None
    method: Method | None = None
    n_active: int | None = None

    def accumulator(self, state: RoundState) -> NearestCodesAccumulator:
        """Build the accumulator from the queries (and the encoder) in ``state``."""
        encode, n_active = None, self.n_active
        if self.method is not None:
            encoder = self.method.encoder(state)
            encode, n_active = encoder.encode, encoder.n_active
        return NearestCodesAccumulator(state.arrays["query_codes"], self.k, self.seed, encode, n_active)


@dataclass(frozen=True)
class NearestVectors:
    """Find the rows nearest to ``state.arrays["query_vectors"]`` by Euclidean or cosine distance.

    The summary holds ``distance`` float64 (squared; between unit vectors for cosine) and ``id`` int64, both
    of shape (q, min(k, n)), nearest first.

    Attributes
    ----------
    k : int
    seed : int or None
        Orders equal distances; None: by row number.
    metric : str
        ``"euclidean"`` or ``"cosine"``.
    """

    k: int
    seed: int | None = None
    metric: str = "euclidean"

    METRICS: ClassVar[tuple[str, ...]] = ("euclidean", "cosine")

    def __post_init__(self) -> None:
        if self.metric not in self.METRICS:
            raise ValueError(f"expected a metric among {', '.join(self.METRICS)}, got {self.metric!r}")

    def accumulator(self, state: RoundState) -> NearestVectorsAccumulator:
        """Build the accumulator from the queries in ``state``."""
        return NearestVectorsAccumulator(state.arrays["query_vectors"], self.k, self.seed, self.metric)


class Nearest:
    """The monoid of ranked lists; a subclass ranks the rows of one block."""

    sequential: ClassVar[bool] = False
    carries: ClassVar[bool] = True
    dtype: ClassVar[type[np.generic]]

    def __init__(self, n_queries: int, k: int, seed: int | None) -> None:
        if k < 1:
            raise ValueError(f"expected k >= 1, got {k}")
        self.n_queries, self.k, self.seed = n_queries, k, seed

    def init(self) -> TopK:
        """Return empty lists."""
        shape = (self.n_queries, 0)
        return {
            "distance": np.empty(shape, self.dtype),
            "tie": np.empty(shape, np.uint32),
            "id": np.empty(shape, np.int64),
        }

    def update(self, state: TopK, block: Block) -> TopK:
        """Add the rows of one block."""
        return self.merge(state, self._rank(block)) if len(block.rows) else state

    def merge(self, left: TopK, right: TopK) -> TopK:
        """Keep the k best of both; the order of the sides does not matter."""
        n_left, n_right = left["id"].shape[1], right["id"].shape[1]
        if not n_left or not n_right:
            return left if n_left else right
        sides = [(side["distance"], side["tie"], side["id"]) for side in (left, right)]
        distance, tie, ids = merge_ranked(sides[0], sides[1], min(self.k, n_left + n_right))
        return {"distance": distance, "tie": tie, "id": ids}

    def finalize(self, state: TopK) -> TopK:
        """Return distances and row numbers, best first."""
        return {"distance": state["distance"], "id": state["id"]}

    def _rank(self, block: Block) -> TopK:
        raise NotImplementedError


class NearestCodesAccumulator(Nearest):
    """The k nearest codes to each query.

    Parameters
    ----------
    query_codes : ndarray of uint8, shape (q, n_bytes)
    k, seed
        As in `NearestCodes`.
    encode : callable, optional
        Turns a block's vectors into packed codes; without it they are packed codes.
    n_active : int, optional
        As in `NearestCodes`.
    """

    dtype = np.int32

    def __init__(
        self,
        query_codes: np.ndarray,
        k: int,
        seed: int | None,
        encode: Callable[[np.ndarray], np.ndarray] | None = None,
        n_active: int | None = None,
    ) -> None:
        super().__init__(len(query_codes), k, seed)
        self._n_bytes = query_codes.shape[1]
        self._queries = query_codes
        self._words = as_words(query_codes)
        self._encode = encode
        counts = np.bitwise_count(query_codes).sum(axis=1, dtype=np.int64)
        self._n_active = n_active if (counts == n_active).all() else None  # columns are for codes alike

    def _rank(self, block: Block) -> TopK:
        codes = block.vectors if self._encode is None else self._encode(block.vectors)
        if codes.dtype != np.uint8 or codes.shape[1] != self._n_bytes:
            raise ValueError(
                f"expected packed codes of {self._n_bytes} bytes as the queries have, got {codes.dtype} "
                f"rows of {codes.shape[1]}: encode both with the same model"
            )
        ties = tie_keys(self.seed, block.rows)
        order = np.lexsort((block.rows, ties))
        distance, places = self._nearest(codes[order], min(self.k, len(order)))
        chosen = order[places]
        return {"distance": distance, "tie": ties[chosen], "id": block.rows[chosen]}

    def _nearest(self, codes: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Search one block by the kernel that suits it; all give the same."""
        if _LONG_LIST * k > len(codes):
            return nearest_codes(self._words, as_words(codes), k)
        if self._n_active is None or len(self._queries) < _WORTH_COLUMNS:
            return search_tiles(make_tiles(as_words(codes)), self._words, k)
        n_bits = 8 * self._n_bytes
        columns = make_columns(list_active(codes, self._n_active), n_bits)
        return search_columns(columns, list_active(self._queries, self._n_active), k)


class NearestVectorsAccumulator(Nearest):
    """The k nearest vectors to each query.

    Rows are screened with float32 distances and a proven error bound; what may be among the k nearest gets
    its distance in float64, features added in order.  The lists are thus the same for every block size.

    Parameters
    ----------
    query_vectors : ndarray of float, shape (q, d)
    k, seed, metric
        As in `NearestVectors`.
    """

    dtype = np.float64

    def __init__(
        self, query_vectors: np.ndarray, k: int, seed: int | None, metric: str = "euclidean"
    ) -> None:
        super().__init__(len(query_vectors), k, seed)
        self._prepare = _unit_rows if metric == "cosine" else _unchanged
        self._queries = self._prepare(query_vectors)
        # distances do not change when all is shifted, but rounding errors of the screening do
        self._shift = query_vectors.dtype.type(0) if not len(query_vectors) else self._queries.mean(axis=0)
        self._screen_queries = _shifted(self._queries, self._shift)

    def update(self, state: TopK, block: Block) -> TopK:
        """Add the rows of one block; to full lists, only those that are as near as a last one."""
        if not len(block.rows) or state["id"].shape[1] < self.k or not self.n_queries:
            return super().update(state, block)
        vectors, ties, ranks, rounded = self._prepared(block)
        state = {key: np.require(array, requirements=("C", "W")) for key, array in state.items()}
        lists = state["distance"], state["tie"], state["id"]
        improve_lists(lists, self._queries, vectors, rounded, ranks, ties, block.rows)
        return state

    def _rank(self, block: Block) -> TopK:
        vectors, ties, ranks, rounded = self._prepared(block)
        k = min(self.k, len(vectors))
        distance, rows = nearest_rows(self._queries, vectors, rounded, ranks, k)
        return {"distance": distance, "tie": ties[rows], "id": block.rows[rows]}

    def _prepared(
        self, block: Block
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return the rows, their ties, who goes first among equally near ones, and what is screened."""
        if block.vectors.shape[1] != self._queries.shape[1]:
            raise ValueError(
                f"expected rows of {self._queries.shape[1]} features as the queries have, "
                f"got {block.vectors.shape[1]}"
            )
        vectors = self._prepare(block.vectors)
        ties = tie_keys(self.seed, block.rows)
        ranks = np.empty(len(vectors), np.int64)
        ranks[np.lexsort((block.rows, ties))] = np.arange(len(vectors))
        return vectors, ties, ranks, (self._screen_queries, _shifted(vectors, self._shift))


def tie_keys(seed: int | None, rows: np.ndarray) -> np.ndarray:
    """Return a random uint32 for each row number: a function of the seed and the number alone.

    It is the upper half of word ``row`` of the stream addressed by ``(seed, "ties")``.

    Parameters
    ----------
    seed : int or None
        None gives zeros.
    rows : ndarray of int64, shape (m,)

    Returns
    -------
    ndarray of uint32, shape (m,)
    """
    if seed is None or not len(rows):
        return np.zeros(len(rows), np.uint32)
    first, last = int(rows.min()), int(rows.max())
    bits = cast("np.random.Philox", stream(seed, "ties").bit_generator)
    bits.advance(first // 4)  # Philox counts in steps of four words
    words = bits.random_raw(last - first // 4 * 4 + 1)
    return (words >> np.uint64(32)).astype(np.uint32)[rows - first // 4 * 4]


def _shifted(vectors: np.ndarray, shift: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(vectors - shift, dtype=np.float32)


def _unchanged(vectors: np.ndarray) -> np.ndarray:
    return vectors


def _unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Return rows of length one in float64 (zero rows stay zero), each a function of itself alone."""
    everything = np.arange(len(vectors))
    squares = pair_distances(np.zeros_like(vectors[:1]), vectors, np.zeros_like(everything), everything)
    lengths = np.sqrt(squares)
    return vectors / np.where(lengths > 0, lengths, 1.0)[:, None]
