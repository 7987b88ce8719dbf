"""How well codes keep neighbours and distances: what the tables of near-isometric hashing are made of."""

from __future__ import annotations

from dataclasses import dataclass

import bitfleet as bf
import numpy as np
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.nibh_measure import ByHamming, through_origin
from bitfleet.tasks.metrics import kendall_at, overlap_at

_BLOCK = 4000  # rows of the collection at once: no table of all queries and rows is ever whole


@dataclass(frozen=True, eq=False)
class Judge:
    """Queries and their true neighbours in a collection.

    Attributes
    ----------
    rows : ndarray of float32, shape (n, d)
        The collection.
    queries : ndarray of float32, shape (q, d)
    own : ndarray of int64, shape (q,)
        Each query's own row, which is not its neighbour; -1 where it has none.
    nearest : ndarray of int64, shape (q, most)
        Row numbers, nearest first.
    distances : ndarray of float64, shape (q, most + 1)
        Of them and of the next one, squared.
    """

    rows: np.ndarray
    queries: np.ndarray
    own: np.ndarray
    nearest: np.ndarray
    distances: np.ndarray

    @classmethod
    def among(cls, rows: np.ndarray, n_queries: int, most: int) -> Judge:
        """Take evenly spaced rows of a set as queries to the others."""
        own = np.arange(0, len(rows), max(1, len(rows) // n_queries))[:n_queries]
        return cls.against(rows, rows[own], most, own)

    @classmethod
    def against(
        cls, rows: np.ndarray, queries: np.ndarray, most: int, own: np.ndarray | None = None
    ) -> Judge:
        """Search each query's neighbours, block by block; order and distances are of float64."""
        own = np.full(len(queries), -1) if own is None else own
        ids = np.empty((len(queries), 0), np.int64)
        best = np.empty((len(queries), 0), np.float32)
        for at in range(0, len(rows), _BLOCK):
            block = rows[at : at + _BLOCK]
            squares = np.einsum("ij,ij->i", block, block) - 2 * (queries @ block.T)
            inside = np.flatnonzero((own >= at) & (own < at + len(block)))
            squares[inside, own[inside] - at] = np.inf
            best = np.concatenate([best, squares], axis=1)
            numbers = np.broadcast_to(np.arange(at, at + len(block)), squares.shape)
            ids = np.concatenate([ids, numbers], axis=1)
            if best.shape[1] > most + 1:
                kept = np.argpartition(best, most, axis=1)[:, : most + 1]
                best, ids = np.take_along_axis(best, kept, axis=1), np.take_along_axis(ids, kept, axis=1)
        exact = np.empty(ids.shape)
        for query, (row, found) in enumerate(zip(queries, ids, strict=True)):
            difference = rows[found].astype(np.float64) - row
            exact[query] = np.einsum("ij,ij->i", difference, difference)
        exact[ids == own[:, None]] = np.inf
        order = np.argsort(exact, axis=1, kind="stable")
        nearest = np.take_along_axis(ids, order, axis=1)[:, :most]
        return cls(rows, queries, own, nearest, np.take_along_axis(exact, order, axis=1))

    def per_query(
        self,
        bits: np.ndarray,
        cuts: tuple[int, ...],
        ranked: tuple[int, ...],
        *,
        of_queries: np.ndarray | None = None,
        spherical: bool = False,
    ) -> dict[str, np.ndarray]:
        """Return each query's overlap AP ("map@k"), in expectation over ties, and τ-b ("tau@k").

        Parameters
        ----------
        bits : ndarray of uint8, shape (n, b)
            Of the collection, zeros and ones.
        cuts, ranked : tuple of int
            The k of either.
        of_queries : ndarray of uint8, shape (q, b), optional
            By default those of their own rows.
        spherical : bool
            By ``|a xor b| / |a and b|`` instead of Hamming distance.
        """
        asked = (bits[self.own] if of_queries is None else of_queries).astype(np.float32)
        ranks = spherical_ranks(bits.shape[1]) if spherical else None
        n_places = bits.shape[1] + 1 if ranks is None else int(ranks.max()) + 1
        histogram = np.zeros((len(asked), n_places), np.int64)
        starts = n_places * np.arange(len(asked))[:, None]
        for at in range(0, len(bits), _BLOCK):
            block = bits[at : at + _BLOCK].astype(np.float32)
            common = asked @ block.T
            places = _places(asked.sum(axis=1)[:, None] + block.sum(axis=1), common, ranks)
            counted = np.bincount((starts + places).ravel(), minlength=histogram.size)
            histogram += counted.reshape(histogram.shape)
        own = np.flatnonzero(self.own >= 0)
        histogram[own, 0] -= 1
        near = bits[self.nearest].astype(np.float32)
        common = np.einsum("qkb,qb->qk", near, asked)
        places = _places(asked.sum(axis=1)[:, None] + near.sum(axis=2), common, ranks)
        found = {f"map@{k}": overlap_at(places, histogram, k) for k in cuts}
        return found | {f"tau@{k}": kendall_at(self.distances, places, k) for k in ranked}

    def retrieval(
        self,
        bits: np.ndarray,
        cuts: tuple[int, ...] = (10, 50, 500),
        ranked: tuple[int, ...] = (500,),
        *,
        of_queries: np.ndarray | None = None,
        spherical: bool = False,
    ) -> dict[str, float]:
        """Return the means of `per_query`."""
        found = self.per_query(bits, cuts, ranked, of_queries=of_queries, spherical=spherical)
        return {name: float(values.mean()) for name, values in found.items()}


def spherical_ranks(n_bits: int) -> np.ndarray:
    """Return the place of ``apart / common`` among all its values, int64, shape (b + 1, b + 1)."""
    apart, common = np.mgrid[: n_bits + 1, : n_bits + 1].astype(np.float64)
    far = np.where(apart > 0, np.inf, 0.0)
    distances = np.divide(apart, common, out=far, where=common > 0)
    return np.unique(distances, return_inverse=True)[1].reshape(distances.shape)


def pair_errors(codes: np.ndarray, rows: np.ndarray, n_bits: int) -> dict[str, float]:
    """Return δ over all pairs, certified, and 99.9 % quantiles, through the origin and calibrated."""
    profile = bf.distortion_profile(codes, rows, n_bits=n_bits)
    maximum = profile.maximum
    return {
        "delta": maximum.delta,
        "delta_monotone": maximum.refit("monotone").delta,
        "constant": maximum.constant,
        "scale_999": profile.quantile(0.999, "scale"),
        "calibrated_999": profile.quantile(0.999, "monotone"),
    }


def listed_delta(bits: np.ndarray, distances: np.ndarray) -> float:
    """Return δ of few rows, given the distances of all pairs in `scipy.spatial.distance.pdist`'s order."""
    ones = bits.astype(np.float64)
    apart = (ones @ (1 - ones).T + (1 - ones) @ ones.T)[np.triu_indices(len(bits), 1)].astype(np.int64)
    found = ByHamming.of_pairs(apart, distances, bits.shape[1])
    return through_origin(found.least, found.largest)[0]


def _places(ones: np.ndarray, common: np.ndarray, ranks: np.ndarray | None) -> np.ndarray:
    apart = (ones - 2 * common).astype(np.int64)
    return apart if ranks is None else ranks[apart, common.astype(np.int64)]


def bits_of(codes: np.ndarray, n_bits: int) -> np.ndarray:
    """Return zeros and ones, uint8, shape (n, b)."""
    return unpack_bits(codes, n_bits)
