"""`CodeIndex`: codes in memory and the search of their nearest."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.codes import Codes
from ..storage.errors import DataRefused
from ..tasks.asymmetric import nearest_to_projections
from ..tasks.clusters import CoarseQuantizer, fit_quantizer
from ..tasks.index import STRATEGIES, DenseCodes, SparseCodes
from ..tasks.kernels.pack import unpack_bits
from .arrays import make_reader
from .code_inputs import (
    check_count,
    check_same_model,
    checked_projections,
    checked_vectors,
    loaded,
    stored_codes,
)
from .errors import ConfigError
from .export_faiss import to_faiss
from .rescore import check_metric, rescored

if TYPE_CHECKING:
    import os

    from ..tasks.protocols import BlockReader
    from .arrays import Vectors

PROBES = 20
_CLUSTER_ROWS = 1000
_ROWS_AT_ONCE = 1 << 16


class CodeIndex:
    """Codes in memory, laid out for search of the nearest by Hamming distance.

    Parameters
    ----------
    codes : Codes, path of codes, or array
        Packed codes, uint8 of shape (n, ceil(n_bits / 8)), least significant bit first; or the places of the
        ones of sparse codes, int32 or int64 of shape (n, n_active).
    n_active : int, optional
        Ones of every sparse code, which makes search several times faster; stored codes know it.  None:
        dense codes.
    n_bits : int, optional
        Needed for places of ones, and for packed codes whose last byte is not full.
    n_clusters : int or "auto", optional
        Search by a coarse quantizer: codes are put into so many clusters (auto: one for 1,000 codes), and a
        query looks at the nearest of them only, so that some of the nearest codes may be missed.
    vectors : Dataset, path, or array of shape (n, d), optional
        Cluster these instead of the codes; queries then bring theirs (``query_vectors=``).
    strategy : {"auto", "scan", "pivots"}
        How dense codes are searched exhaustively; the results are the same.
    random_state : int
        Of the clusters.

    Attributes
    ----------
    n_rows, n_bits, n_clusters : int
    n_active : int or None

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> codes = np.random.default_rng(0).integers(0, 256, (500, 8), dtype=np.uint8)
    >>> distances, ids = bf.CodeIndex(codes).search(codes[:2], k=3)
    >>> distances[:, 0].tolist(), ids[:, 0].tolist()
    ([0, 0], [0, 1])
    """

    def __init__(
        self,
        codes: Codes | str | os.PathLike[str] | np.ndarray,
        n_active: int | None = None,
        *,
        n_bits: int | None = None,
        n_clusters: int | str | None = None,
        vectors: Vectors | None = None,
        strategy: str = "auto",
        random_state: int = 0,
    ) -> None:
        if strategy not in STRATEGIES:
            raise ConfigError(f"expected strategy to be one of {', '.join(STRATEGIES)}, got {strategy!r}")
        codes = stored_codes(codes)
        self._stored = codes if isinstance(codes, Codes) else None
        self._packed, self.n_bits, self.n_active = loaded(codes, n_bits, n_active)
        self.n_rows = len(self._packed)
        self.n_clusters = _clusters(n_clusters, self.n_rows)
        self.quantizer: CoarseQuantizer | None = None
        self._by_vectors = vectors is not None
        self._assigned: np.ndarray | None = None
        if self.n_clusters:
            try:
                self.quantizer, self._assigned = self._cluster(vectors, random_state)
            except DataRefused:
                raise
            except ValueError as error:
                raise ConfigError(str(error)) from None
            self._sizes = np.bincount(self._assigned, minlength=self.n_clusters)
        elif vectors is not None:
            raise ConfigError("vectors= are what is clustered: give n_clusters= too")
        try:
            if self.n_active is None:
                self._engine: DenseCodes | SparseCodes = DenseCodes(
                    self._packed, strategy, self._assigned, self.n_clusters
                )
            else:
                self._engine = SparseCodes(
                    self._packed, self.n_bits, self.n_active, self._assigned, self.n_clusters
                )
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def search(
        self,
        queries: Any,
        k: int,
        *,
        n_probe: int = PROBES,
        asymmetric: bool = False,
        query_vectors: np.ndarray | None = None,
        rescore: Any = None,
        oversample: int = 4,
        metric: str = "euclidean",
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the k nearest codes of each query, nearest first; equal distances by id.

        Parameters
        ----------
        queries : array, Codes or path
            Codes, as the index takes them.  With ``asymmetric``: what `bitfleet.projections` returns.
        k : int
            If there are fewer codes, all are returned.
        n_probe : int, default 20
            Clusters that a query looks at, more if they hold fewer than k codes; for an index with clusters.
        asymmetric : bool
            Weigh every bit that disagrees by the absolute value of the query's projection: finds more true
            neighbours at no cost in memory.  Always exhaustive.
        query_vectors : ndarray of float, shape (q, d), optional
            The queries themselves, for ``rescore`` and for an index with clusters of vectors.
        rescore : Dataset, path, array of shape (n, d), or Decoder, optional
            Take ``oversample * k`` candidates and order them by the distance of the query's vector to theirs,
            read from here, or to what a decoder makes of their codes.
        oversample : int, default 4
        metric : {"euclidean", "cosine"}
            Of rescoring with vectors; "cosine" without is refused.

        Returns
        -------
        distances : ndarray, shape (q, min(k, n))
            int32 Hamming distances; float64 if asymmetric; float64, squared, if rescored.
        ids : ndarray of int64, shape (q, min(k, n))
        """
        check_count("k", k)
        check_count("n_probe", n_probe)
        check_count("oversample", oversample)
        check_metric(metric, rescored=rescore is not None)
        wanted = min(k, self.n_rows)
        found = min(wanted * oversample, self.n_rows) if rescore is not None else wanted
        if asymmetric:
            distances, ids = nearest_to_projections(
                checked_projections(queries, self.n_bits), self._packed, found
            )
        else:
            distances, ids = self._search(self._query_codes(queries), found, n_probe, query_vectors)
        if rescore is None:
            return distances, ids
        return rescored(ids, wanted, rescore, query_vectors, self._packed, metric=metric)

    def to_numpy(self) -> np.ndarray:
        """Return the packed codes, uint8 of shape (n, ceil(n_bits / 8)), least significant bit first."""
        return self._packed

    def to_faiss(self) -> Any:
        """Return a ``faiss.IndexBinaryFlat`` of the codes, or ``IndexBinaryIVF`` with this index's clusters.

        Bits are filled up to whole bytes, as Faiss wants them.  Its clusters have codes as centroids (the
        majority of each cluster), so it probes other lists than this index does.

        Raises
        ------
        ConfigError
            If Faiss is not installed.
        """
        return to_faiss(self._packed, self._assigned, self.n_clusters)

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        sparse = "" if self.n_active is None else f", n_active={self.n_active}"
        clusters = f", n_clusters={self.n_clusters}" if self.n_clusters else ""
        return f"CodeIndex(n_rows={self.n_rows}, n_bits={self.n_bits}{sparse}{clusters})"

    def _search(
        self, codes: np.ndarray, k: int, n_probe: int, query_vectors: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        try:
            if self.quantizer is None:
                return self._engine.search(codes, k)
            if self._by_vectors:
                if query_vectors is None:
                    raise ConfigError("the clusters are of vectors: give the queries' as query_vectors=")
                rows = checked_vectors(query_vectors, len(codes), len(self.quantizer.mean))
            else:
                rows = unpack_bits(codes, self.n_bits)
            probes = self.quantizer.probes(rows, n_probe, self._sizes, k)
            return self._engine.search_clusters(codes, probes, k)
        except ValueError as error:
            raise ConfigError(f"queries: {error}") from None

    def _query_codes(self, queries: Any) -> np.ndarray:
        queries = stored_codes(queries)
        packed, n_bits, n_active = loaded(queries, self.n_bits, self.n_active)
        if n_bits != self.n_bits or n_active != self.n_active:
            raise ConfigError(
                f"expected queries of {self.n_bits} bits and n_active={self.n_active} as the index has, got "
                f"{n_bits} and {n_active}: encode both with the same model"
            )
        check_same_model(self._stored, queries)
        return packed

    def _cluster(self, vectors: Vectors | None, seed: int) -> tuple[CoarseQuantizer, np.ndarray]:
        if vectors is None:
            quantizer = fit_quantizer(
                lambda rows: unpack_bits(self._packed[rows], self.n_bits), self.n_rows, self.n_clusters, seed
            )
            parts = [
                quantizer.assign(unpack_bits(self._packed[at : at + _ROWS_AT_ONCE], self.n_bits))
                for at in range(0, self.n_rows, _ROWS_AT_ONCE)
            ]
            return quantizer, np.concatenate(parts)
        with tempfile.TemporaryDirectory(prefix="bitfleet-") as scratch:
            return self._cluster_vectors(make_reader(vectors, Path(scratch)), seed)

    def _cluster_vectors(self, reader: BlockReader, seed: int) -> tuple[CoarseQuantizer, np.ndarray]:
        from ..tasks.leaves import base_rows
        from ..tasks.protocols import LeafPlan, RowIndices

        if reader.n_rows != self.n_rows:
            raise ConfigError(f"expected vectors of all {self.n_rows} codes, got {reader.n_rows}")
        quantizer = fit_quantizer(
            lambda rows: reader.read(RowIndices(tuple(rows.tolist()))).vectors,
            self.n_rows,
            self.n_clusters,
            seed,
        )
        leaves = LeafPlan(self.n_rows, base_rows(reader.n_features)).leaves()
        return quantizer, np.concatenate([quantizer.assign(reader.read(leaf).vectors) for leaf in leaves])


def _clusters(n_clusters: int | str | None, n_rows: int) -> int:
    if n_clusters is None:
        return 0
    if n_clusters == "auto":
        return -(-n_rows // _CLUSTER_ROWS)
    check_count("n_clusters", n_clusters)
    assert isinstance(n_clusters, int)
    if n_clusters > n_rows:
        raise ConfigError(f"expected at most one cluster for each of {n_rows} codes, got {n_clusters}")
    return n_clusters
