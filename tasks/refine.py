"""Candidate refinement: distances from queries to what their candidates' codes stand for, block by block.

A search by code has left each query a list of candidates, the row numbers ``candidates`` (q, c).  What an
executor adds up here is their distances ``‖x_q - D h_i‖²`` (see `decoder`): each block contributes those of
its own rows, encoding no row that is nobody's candidate.  The lists are then sorted by distance; among
equal distances (equal codes above all) they keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .decoder import Decoder, QueryTables, space_of
from .kernels.euclidean import pair_distances
from .pursuit import PursuitEncoder
from .sbiht import SparseHardThresholding

if TYPE_CHECKING:
    from .protocols import Arrays, Block, Method, RoundState

#: names under which queries and decoder travel in the round state
MATRIX, CANDIDATES, QUERIES = "refinement_matrix", "candidates", "query_vectors"


@dataclass(frozen=True)
class DecodedDistances:
    """The distance of every query to each of its candidates; summary: ``distance`` float64, shape (q, c).

    The state holds the method's own arrays and ``refinement_matrix`` (b, r), ``query_vectors`` (q, d) and
    ``candidates`` (q, c), int64 row numbers, distinct within a row.

    Attributes
    ----------
    method : Method
        What made the codes.
    encoded : bool
        Blocks hold packed codes, not vectors.
    n_sbiht : int
        Steps of Algorithm 4 after the linear reconstruction.
    """

    method: Method
    encoded: bool = False
    n_sbiht: int = 0

    def accumulator(self, state: RoundState) -> DecodedDistancesAccumulator:
        """Build the accumulator from queries, candidates and decoder in ``state``."""
        encoder: Any = self.method.encoder(state)
        decoder = Decoder(
            state.arrays[MATRIX], space_of(state, encoder.n_features), encoder.n_active is None, 0.0
        )
        thresholding = None
        if self.n_sbiht:
            thresholding = thresholding_of(self.method, state, decoder)
        return DecodedDistancesAccumulator(
            decoder,
            state.arrays[QUERIES],
            state.arrays[CANDIDATES],
            None if self.encoded else encoder,
            thresholding,
            self.n_sbiht,
        )


class DecodedDistancesAccumulator:
    """Accumulator of (place in the lists, distance) pairs; merging appends.

    Parameters
    ----------
    decoder : Decoder
    queries : ndarray, shape (q, d)
    candidates : ndarray of int64, shape (q, c)
    encoder : Encoder or None
        None: blocks hold packed codes.
    thresholding : SparseHardThresholding, optional
        Decodes in place of the linear decoder alone, with ``n_iter`` steps.
    """

    sequential: ClassVar[bool] = False

    def __init__(
        self,
        decoder: Decoder,
        queries: np.ndarray,
        candidates: np.ndarray,
        encoder: Any = None,
        thresholding: SparseHardThresholding | None = None,
        n_iter: int = 0,
    ) -> None:
        if candidates.ndim != 2 or len(candidates) != len(queries):
            raise ValueError(
                f"expected a list of candidates for each of {len(queries)} queries, "
                f"got an array of shape {candidates.shape}"
            )
        self._decoder, self._encoder = decoder, encoder
        self._thresholding, self._n_iter = thresholding, n_iter
        self._tables: QueryTables | None = None if thresholding else decoder.tables(queries)
        self._coordinates = decoder.coordinates(queries) if thresholding else None
        self._shape = candidates.shape
        self._order = np.argsort(candidates, axis=None, kind="stable")
        self._rows = candidates.ravel()[self._order]

    def init(self) -> dict[str, np.ndarray]:
        """Return no pairs."""
        return {"place": np.empty(0, np.int64), "distance": np.empty(0)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the candidates among the rows of one block."""
        if not len(block.rows):
            return state
        first, last = np.searchsorted(self._rows, (block.rows[0], block.rows[-1] + 1))
        if first == last:
            return state
        wanted, code_rows = np.unique(self._rows[first:last], return_inverse=True)
        vectors = block.vectors[np.searchsorted(block.rows, wanted)]
        codes = vectors if self._encoder is None else self._encoder.encode(vectors)
        order = np.argsort(self._order[first:last], kind="stable")  # a query's pairs together
        places, code_rows = self._order[first:last][order], code_rows[order]
        query_rows = places // self._shape[1]
        found = self._distances(codes, query_rows, code_rows)
        return self.merge(state, {"place": places, "distance": found})

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Append the pairs of later rows."""
        return {key: np.concatenate([left[key], right[key]]) for key in left}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the distances in the order of the lists."""
        distance = np.full(self._shape, np.nan)
        distance.flat[state["place"]] = state["distance"]
        missing = np.flatnonzero(np.isnan(distance))
        if len(missing):
            query, place = np.unravel_index(missing[0], self._shape)
            raise ValueError(f"candidate {place} of query {query} is no row of the data, or not finite")
        return {"distance": distance}

    def _distances(self, codes: np.ndarray, query_rows: np.ndarray, code_rows: np.ndarray) -> np.ndarray:
        if self._tables is not None:
            return self._tables.distances(codes, self._decoder.norms(codes), query_rows, code_rows)
        assert self._thresholding is not None
        assert self._coordinates is not None
        decoded = self._thresholding.reconstruct(codes, self._n_iter)
        return pair_distances(self._coordinates, decoded, query_rows, code_rows)


def refined_order(distance: np.ndarray, k: int, factor: int) -> np.ndarray:
    """Return where the refined k best are in the candidate lists, shape (q, min(k, c)), best first.

    The first ``factor * k`` candidates are sorted by distance, equal ones in the order of the list.
    """
    return np.argsort(distance[:, : factor * k], axis=1, kind="stable")[:, :k]


def thresholding_of(method: Method, state: RoundState, decoder: Decoder) -> SparseHardThresholding:
    """Return Algorithm 4 for a method that knows its weights; refuse others."""
    weights = getattr(method, "weights", None)
    n_active = getattr(method, "n_active", None)
    pursued = isinstance(method.encoder(state), PursuitEncoder)
    if weights is None or n_active is None or pursued:
        raise ValueError(f"Algorithm 4 inverts winner-take-all codes of a linear map; {method.name} has none")
    return SparseHardThresholding(decoder, weights(state), n_active)


def refinement_state(decoder: Decoder, queries: np.ndarray, candidates: np.ndarray) -> Arrays:
    """Return what `DecodedDistances` expects in the state beside the method's own arrays."""
    return {MATRIX: decoder.matrix, QUERIES: queries, CANDIDATES: np.asarray(candidates, np.int64)}
