"""Candidates of a search put in order by real vectors: the original ones, or what codes are decoded to."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tasks.decoder import Decoder
from ..tasks.kernels.euclidean import pair_distances
from ..tasks.kernels.pack import packed_width
from ..tasks.protocols import RowIndices
from ..tasks.unit import unit_rows
from .arrays import make_reader
from .code_inputs import checked_vectors
from .errors import ConfigError

if TYPE_CHECKING:
    from ..tasks.protocols import BlockReader

METRICS = ("euclidean", "cosine")
_PAIRS_AT_ONCE = 1 << 18
_NUMBERS_AT_ONCE = 1 << 22
_TINY, _ENLARGED = 2.0**-900, 500  # squares below it lose digits; differences are multiplied by 2^500


def rescored(
    ids: np.ndarray,
    k: int,
    by: Any,
    query_vectors: np.ndarray | None,
    packed: np.ndarray | None,
    *,
    metric: str = "euclidean",
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k best of each query's candidates by their vectors.

    Parameters
    ----------
    ids : ndarray of int64, shape (q, c)
        Candidates, distinct within a row.
    k : int
        At most c.
    by : Decoder, Dataset, path, or array of shape (n, d)
    query_vectors : ndarray of float, shape (q, d)
    packed : ndarray of uint8, shape (n, n_bytes)
        The codes, for a decoder.
    metric : str
        ``"euclidean"`` or ``"cosine"`` (Euclidean between rows of length one).

    Returns
    -------
    distances : ndarray of float64, shape (q, k)
        Squared, ascending, ties by id.
    ids : ndarray of int64, shape (q, k)
    """
    check_metric(metric, rescored=True)
    if query_vectors is None:
        raise ConfigError("rescoring compares vectors: give the queries' own as query_vectors=")
    if isinstance(by, Decoder):
        if metric != "euclidean":
            raise ConfigError("a decoder rescores by Euclidean distance only")
        assert packed is not None
        if packed.shape[1] != packed_width(by.n_bits):
            raise ConfigError(
                f"expected a decoder of the model that made the codes: it decodes {by.n_bits} bits, "
                f"they have {8 * packed.shape[1]}"
            )
        query_vectors = checked_vectors(query_vectors, len(ids), len(by.front.mean))
        distances = _decoded(ids, by, query_vectors, packed)
    else:
        with tempfile.TemporaryDirectory(prefix="bitfleet-") as scratch:
            distances, fine = true_distances(ids, make_reader(by, Path(scratch)), query_vectors, metric)
        order = np.lexsort((ids, fine, distances), axis=1)[:, :k]
        return np.take_along_axis(distances, order, axis=1), np.take_along_axis(ids, order, axis=1)
    order = np.lexsort((ids, distances), axis=1)[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(ids, order, axis=1)


def check_metric(metric: str, *, rescored: bool) -> None:
    """Raise `ConfigError` if there is no such metric, or nothing that it would be of."""
    if metric not in METRICS:
        raise ConfigError(f"expected metric to be one of {', '.join(METRICS)}, got {metric!r}")
    if not rescored and metric != METRICS[0]:
        raise ConfigError(
            f"metric={metric!r} is how candidates are rescored; codes are compared by their bits: "
            "give rescore=, or leave metric out"
        )


def true_distances(
    ids: np.ndarray, reader: BlockReader, queries: np.ndarray, metric: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the squared distances of queries to the vectors of their candidates, read from ``reader``.

    Returns
    -------
    distances : ndarray of float64, shape (q, c)
    fine : ndarray of float64, shape (q, c)
        What tells those apart whose squares are too small for float64: their order is that of
        (distances, fine).
    """
    queries = checked_vectors(queries, len(ids), reader.n_features)
    if metric == "cosine":
        queries = unit_rows(queries.astype(np.float64))[0]
    distances, fine = np.empty(ids.shape), np.zeros(ids.shape)
    step = max(1, _PAIRS_AT_ONCE // max(ids.shape[1], 1))
    for at in range(0, len(ids), step):
        wanted, places = np.unique(ids[at : at + step], return_inverse=True)
        if len(wanted) and wanted[-1] >= reader.n_rows:
            raise ConfigError(f"expected vectors of all codes, row {wanted[-1]} is not there")
        vectors = reader.read(RowIndices(tuple(wanted.tolist()))).vectors
        vectors = unit_rows(vectors.astype(np.float64))[0] if metric == "cosine" else vectors
        part = ids[at : at + step]
        query_rows = np.repeat(np.arange(at, at + len(part)), part.shape[1])
        vector_rows = places.reshape(-1).astype(np.int64)
        try:
            found = pair_distances(queries, vectors, query_rows, vector_rows)
        except ValueError as error:  # overflow
            raise ConfigError(str(error)) from None
        tiny = np.flatnonzero(found < _TINY)
        exact = _enlarged(queries, vectors, query_rows[tiny], vector_rows[tiny])
        found[tiny] = np.ldexp(exact, -2 * _ENLARGED)
        fine[at : at + step].flat[tiny] = exact
        distances[at : at + step] = found.reshape(part.shape)
    return distances, fine


def _enlarged(
    queries: np.ndarray, vectors: np.ndarray, query_rows: np.ndarray, vector_rows: np.ndarray
) -> np.ndarray:
    """Return squared distances of pairs that are so near that their squares vanish, times 2^(2 · 500)."""
    found = np.empty(len(query_rows))
    step = max(1, _NUMBERS_AT_ONCE // max(queries.shape[1], 1))
    for at in range(0, len(found), step):
        some = slice(at, at + step)
        apart = queries[query_rows[some]].astype(np.float64) - vectors[vector_rows[some]]
        apart = np.ldexp(apart, _ENLARGED)
        pairs = np.arange(len(apart))
        found[some] = pair_distances(apart, np.zeros((1, apart.shape[1])), pairs, np.zeros_like(pairs))
    return found


def _decoded(ids: np.ndarray, decoder: Decoder, queries: np.ndarray, packed: np.ndarray) -> np.ndarray:
    distances = np.empty(ids.shape)
    step = max(1, _PAIRS_AT_ONCE // max(ids.shape[1], 1))
    for at in range(0, len(ids), step):
        part = ids[at : at + step]
        wanted, places = np.unique(part, return_inverse=True)
        codes = packed[wanted]
        query_rows = np.repeat(np.arange(len(part)), part.shape[1])
        tables = decoder.tables(queries[at : at + step])
        found = tables.distances(codes, decoder.norms(codes), query_rows, places.reshape(-1))
        distances[at : at + step] = found.reshape(part.shape)
    return distances
