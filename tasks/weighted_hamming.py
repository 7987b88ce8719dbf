"""Affinities of codes by weighted bits: what multidimensional spectral hashing compares codes by.

With bits ``y`` of -1 and 1 in groups g, weights w_j and bases c_g the affinity of two codes is

    A(y, y') = Π_g (c_g + Σ_(j in g) w_j y_j y'_j).

Of one group that is a weighted Hamming distance, turned round. Several groups stand for all products of a
bit of each of some groups, without listing these. A factor depends on which bits differ alone, so that it is
looked up, by up to eight bits at a time; tables and products are added up and multiplied in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .kernels.pack import pack_bits, unpack_bits

_BYTE = 8
_PAIRS_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False)
class BitAffinity:
    """Weights and groups of bits.

    Attributes
    ----------
    bases : ndarray of float64, shape (n_groups,)
    weights : ndarray of float64, shape (n_bits,)
    groups : ndarray of int64, shape (n_bits,)
        The group of each bit.
    """

    bases: np.ndarray
    weights: np.ndarray
    groups: np.ndarray

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        return len(self.weights)

    def nearest(self, codes: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k codes of largest affinity to each query, the earlier one first among equals.

        Parameters
        ----------
        codes, queries : ndarray of uint8, shape (n, w) and (q, w)
            Packed.
        k : int
            At most n.

        Returns
        -------
        affinities : ndarray of float64, shape (q, k)
            Falling.
        ids : ndarray of int64, shape (q, k)
        """
        base, asked = self._symbols(codes), self._symbols(queries)
        affinities, ids = np.empty((len(asked), k)), np.empty((len(asked), k), np.int64)
        for q in range(len(asked)):
            found = np.concatenate(
                [
                    self._products(base[start : start + _PAIRS_AT_ONCE] ^ asked[q])
                    for start in range(0, len(base), _PAIRS_AT_ONCE)
                ]
            )
            ids[q] = _largest(found, k)
            affinities[q] = found[ids[q]]
        return affinities, ids

    def of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the affinities of all pairs of packed codes, (n, w) and (m, w) to (n, m)."""
        first, second = self._symbols(left), self._symbols(right)
        return np.stack([self._products(second ^ symbol) for symbol in first])

    @cached_property
    def _parts(self) -> list[tuple[int, np.ndarray]]:
        """Bits in parts of at most eight of the same group, each with its group, groups rising."""
        parts = []
        for group in range(len(self.bases)):
            mine = np.flatnonzero(self.groups == group)
            parts += [(group, mine[at : at + _BYTE]) for at in range(0, len(mine), _BYTE)]
        return parts

    @cached_property
    def _tables(self) -> np.ndarray:
        """What a part adds to its group's factor for each pattern of bits that differ, (n_parts, 256)."""
        differ = unpack_bits(np.arange(256, dtype=np.uint8)[:, None], _BYTE)
        signs = 1.0 - 2.0 * differ
        tables = np.zeros((len(self._parts), 256))
        for table, (_, bits) in zip(tables, self._parts, strict=True):
            for place, bit in enumerate(bits):
                table += signs[:, place] * self.weights[bit]
        return tables

    def _symbols(self, codes: np.ndarray) -> np.ndarray:
        """Return the bits part by part, uint8 of shape (n, n_parts)."""
        bits = unpack_bits(codes, self.n_bits)
        parts = [pack_bits(bits[:, part])[:, 0] for _, part in self._parts]
        return np.stack(parts, axis=1) if parts else np.zeros((len(codes), 0), np.uint8)

    def _products(self, differ: np.ndarray) -> np.ndarray:
        """Return the affinities for patterns of bits that differ, (n, n_parts) to (n,)."""
        product = np.ones(len(differ))
        part = 0
        for group, base in enumerate(self.bases):
            factor = np.full(len(differ), base)
            while part < len(self._parts) and self._parts[part][0] == group:
                factor += self._tables[part][differ[:, part]]
                part += 1
            product *= factor
        return product


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """Return where the k largest values are, falling, the earlier one first among equals."""
    if k < len(values):
        limit = np.partition(values, len(values) - k)[len(values) - k]
        above = np.flatnonzero(values > limit)
        chosen = np.concatenate([above, np.flatnonzero(values == limit)[: k - len(above)]])
    else:
        chosen = np.arange(len(values))
    return chosen[np.lexsort((chosen, -values[chosen]))]
