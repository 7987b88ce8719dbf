"""Nearest rows of a whole data set for a batch of queries, by codes and by vectors, on any executor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..tasks.asymmetric import NearestProjections
from ..tasks.leaves import base_rows
from ..tasks.neighbor_codes import NeighborCodes
from ..tasks.protocols import LeafPlan, RoundState
from ..tasks.refine import DecodedDistances, refinement_state
from ..tasks.search import NearestCodes, NearestVectors
from .model import HeldState, Model, ModelReference
from .rescore import true_distances
from .search import projections

if TYPE_CHECKING:
    from ..storage.codes import Codes
    from ..storage.places import Place
    from ..tasks.protocols import Arrays, BlockReader, Executor, Program, StateReference


@dataclass(frozen=True)
class BlockSearch:
    """Searches a database block by block; only the best of each query travel.

    Queries reach the workers as a stored state, never inside the task graph.

    Attributes
    ----------
    model : Model
        Encodes the queries, and the database's blocks where they are read.
    reader : BlockReader
        The database's vectors.
    executor : Executor
    seed : int or None
        Orders equal distances at random but reproducibly; None: by row number.
    codes : Codes, optional
        The database's codes by this model, if there are any; then nothing is encoded again.
    scratch : Path, optional
        A folder that all workers see; None if everything happens in this process.
    """

    model: Model
    reader: BlockReader
    executor: Executor
    seed: int | None = None
    codes: Codes | None = None
    scratch: Place | None = None

    def by_code(self, queries: np.ndarray, k: int, *, asymmetric: bool = False) -> dict[str, np.ndarray]:
        """Return the k nearest codes of each query.

        Parameters
        ----------
        queries : ndarray of float, shape (q, d)
        k : int
        asymmetric : bool
            By the queries' projections instead of their codes.

        Returns
        -------
        dict
            ``distance`` int32 (float64 if asymmetric) and ``id`` int64, shape (q, min(k, n)), nearest first.
        """
        if asymmetric:
            return self._by_projection(queries, k)
        arrays = {"query_codes": self.model.encoder().encode(queries)}
        if self.codes is None:
            program = NearestCodes(k, self.seed, self.model.method)
            return self._reduce(program, self.reader, base_rows(self.reader.n_features), arrays)
        program = NearestCodes(k, self.seed, n_active=self.codes.n_active)
        return self._reduce(program, self.codes.reader(), self.codes.chunk_rows, arrays)

    def _by_projection(self, queries: np.ndarray, k: int) -> dict[str, np.ndarray]:
        arrays = {"query_projections": projections(self.model, queries)}
        if self.codes is None:
            program = NearestProjections(k, self.seed, self.model.method)
            return self._reduce(program, self.reader, base_rows(self.reader.n_features), arrays)
        program = NearestProjections(k, self.seed)
        return self._reduce(program, self.codes.reader(), self.codes.chunk_rows, arrays)

    def by_original(self, queries: np.ndarray, candidates: np.ndarray, distance: str) -> np.ndarray:
        """Return the place of each query's candidates by the distance of the vectors themselves, (q, c).

        Equally near ones stay in their order.  Vectors are read in this process.
        """
        found, fine = true_distances(candidates, self.reader, queries, distance)
        given = np.broadcast_to(np.arange(candidates.shape[1]), candidates.shape)
        order = np.lexsort((given, fine, found), axis=1)
        places = np.empty_like(order)
        np.put_along_axis(places, order, given, axis=1)
        return places

    def by_vector(self, queries: np.ndarray, k: int, distance: str = "euclidean") -> dict[str, np.ndarray]:
        """Return the k nearest vectors of each query; like `by_code`, with ``distance`` float64, squared."""
        program = NearestVectors(k, self.seed, distance)
        rows = base_rows(self.reader.n_features)
        return self._reduce(program, self.reader, rows, {"query_vectors": queries})

    def by_neighbor(self, queries: np.ndarray, neighbors: np.ndarray) -> dict[str, np.ndarray]:
        """Return where listed rows stand among the codes.

        Parameters
        ----------
        queries : ndarray of float, shape (q, d)
        neighbors : ndarray of int64, shape (q, k)
            Row numbers.

        Returns
        -------
        dict
            ``distance`` int32 (q, k), Hamming, and ``histogram`` int64 (q, M' + 1): rows at each distance.
        """
        arrays = {"query_codes": self.model.encoder().encode(queries), "neighbors": neighbors}
        if self.codes is None:
            program = NeighborCodes(self.model.method)
            return self._reduce(program, self.reader, base_rows(self.reader.n_features), arrays)
        return self._reduce(NeighborCodes(), self.codes.reader(), self.codes.chunk_rows, arrays)

    def by_decoder(self, queries: np.ndarray, candidates: np.ndarray, n_sbiht: int = 0) -> np.ndarray:
        """Return the squared distance of each query to what its candidates' codes stand for.

        Parameters
        ----------
        queries : ndarray of float, shape (q, d)
        candidates : ndarray of int64, shape (q, c)
            Row numbers, distinct within a row.
        n_sbiht : int
            Steps of Algorithm 4 after the linear reconstruction.

        Returns
        -------
        ndarray of float64, shape (q, c)
            In the coordinates that the method works in.
        """
        arrays = refinement_state(self.model.needed_decoder(), queries, candidates)
        if self.codes is None:
            program = DecodedDistances(self.model.method, n_sbiht=n_sbiht)
            return self._reduce(program, self.reader, base_rows(self.reader.n_features), arrays)["distance"]
        program = DecodedDistances(self.model.method, encoded=True, n_sbiht=n_sbiht)
        return self._reduce(program, self.codes.reader(), self.codes.chunk_rows, arrays)["distance"]

    def _reduce(
        self, program: Program, reader: BlockReader, rows: int, arrays: Arrays
    ) -> dict[str, np.ndarray]:
        leaves = LeafPlan(reader.n_rows, rows).leaves()
        return self.executor.reduce(reader, leaves, program, self._share(arrays))

    def _share(self, arrays: Arrays) -> StateReference:
        """Return a reference to the model's state with the queries added."""
        old = self.model.state
        state = RoundState(old.round, {**old.arrays, **arrays}, old.scalars)
        extended = replace(self.model, state=state, path=None, decoder=None)
        if self.scratch is None:
            return HeldState(state, extended.digest)
        path = self.scratch / f"queries-{extended.digest[:16]}.zarr"
        if not path.exists():
            extended.save(path)
        return ModelReference(str(path), extended.digest)
