"""Coordinate descent of binary reconstructive embeddings: one weight at a time, to its best value.

With all weights but ``W_pq`` fixed, bit p of row i turns where ``W_pq`` passes one number, so that there are
at most n + 1 different codes to choose from. In order of these numbers the objective's change from one to the
next is a sum over the pairs of one row: with ``R = h/b - c`` over all other bits, a pair whose bits p differ
adds ``(R + 1/b)² - R² = 2 R / b + 1 / b²``. One pass over all pairs thus finds the best interval.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..kernels.walk import walk
from ..unit import unit_rows


class Pairs(NamedTuple):
    """Pairs of rows and the distances that codes are to have."""

    left: np.ndarray  # (m,), int64
    right: np.ndarray  # (m,), int64
    distances: np.ndarray  # (m,), float64

    @classmethod
    def of(cls, rows: np.ndarray, scale: float, n_pairs: int, rng: np.random.Generator) -> Pairs:
        """Draw ``n_pairs`` partners for each row, of length one or zero; or take all pairs there are."""
        n = len(rows)
        if n_pairs >= n - 1:
            left, right = np.triu_indices(n, 1)
        else:
            partners = rng.integers(n - 1, size=(n, n_pairs))
            own = np.arange(n)[:, None]
            partners += partners >= own
            keys = np.unique(np.minimum(own, partners) * n + np.maximum(own, partners))
            left, right = np.divmod(keys, n)
        squares = np.empty(len(left))
        for start in range(0, len(left), 4096):
            part = slice(start, start + 4096)
            apart = rows[left[part]] - rows[right[part]]
            squares[part] = np.einsum("ij,ij->i", apart, apart)
        return cls(left.astype(np.int64), right.astype(np.int64), scale * squares)


class Descent:
    """Weights of all bits, and what they make of the pairs.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, r)
        Brought to length one; zero rows stay zero.
    anchors : ndarray of int64, shape (b, s)
        Numbers of the rows that each bit is a mixture of.
    mixtures : ndarray of float64, shape (b, s)
        The weights W to begin with.
    scale : float
        Distances are so much of the squared ones.
    n_pairs : int
    rng : Generator
        Which draws the pairs.
    """

    def __init__(
        self,
        rows: np.ndarray,
        anchors: np.ndarray,
        mixtures: np.ndarray,
        scale: float,
        n_pairs: int,
        rng: np.random.Generator,
    ) -> None:
        self.rows = unit_rows(rows)[0]
        self.anchors = anchors
        self.mixtures = mixtures.copy()
        self.pairs = Pairs.of(self.rows, scale, n_pairs, rng)
        left, right, _ = self.pairs
        ends = np.concatenate([left, right])
        self._by_row = np.argsort(ends, kind="stable")
        self._neighbors = np.concatenate([right, left])[self._by_row]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=len(rows)))]).astype(
            np.int64
        )
        self.bits = np.stack([self._kernel(p) @ self.mixtures[p] >= 0 for p in range(len(anchors))]).astype(
            np.uint8
        )
        self._hamming = sum((self._differ(bits) for bits in self.bits), np.zeros(len(left)))

    @property
    def objective(self) -> float:
        """The mean over all pairs of ``(h / b - scale · ‖x̂ - ŷ‖²)²``."""
        if not len(self.pairs.left):
            return 0.0
        return float(np.square(self._hamming / len(self.bits) - self.pairs.distances).mean())

    @property
    def projections(self) -> np.ndarray:
        """The bits' weights on features, shape (r, b)."""
        columns = [self.rows[a].T @ w for a, w in zip(self.anchors, self.mixtures, strict=True)]
        return np.stack(columns, axis=1)

    def sweep(self, rng: np.random.Generator) -> None:
        """Go through all weights, bit after bit, those of a bit in random order."""
        for p in range(len(self.anchors)):
            self.descend(p, rng.permutation(self.anchors.shape[1]))

    def descend(self, p: int, order: np.ndarray) -> None:
        """Set some weights of bit ``p``, one after the other, to the best values that they can have."""
        kernel, b = self._kernel(p), len(self.bits)
        others = self._hamming - self._differ(self.bits[p])
        gains = 2 * (others / b - self.pairs.distances) / b + 1 / b**2
        both = np.concatenate([gains, gains])[self._by_row]
        for q in order.tolist():
            self._set(p, q, kernel, gains, both)
        self._hamming = others + self._differ(self.bits[p])

    def _set(self, p: int, q: int, kernel: np.ndarray, gains: np.ndarray, both: np.ndarray) -> None:
        """Move one weight to the middle of the best interval, unless that is no better."""
        slopes, weight = kernel[:, q], self.mixtures[p, q]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            turns = weight - (kernel @ self.mixtures[p]) / slopes
        order = np.argsort(turns, kind="stable")
        order = order[np.isfinite(turns[order])]
        if not len(order):
            return
        first = self.bits[p].copy()
        first[order] = slopes[order] < 0
        costs = walk(order, self._starts, self._neighbors, both, first)
        found = _middle(turns[order], costs)
        if found == weight:
            return
        mixture = self.mixtures[p].copy()
        mixture[q] = found
        bits = (kernel @ mixture >= 0).astype(np.uint8)
        before, after = (float(gains @ self._differ(b)) for b in (self.bits[p], bits))
        if after < before - 1e-12 * float(np.abs(gains).sum()):
            self.mixtures[p], self.bits[p] = mixture, bits

    def _kernel(self, p: int) -> np.ndarray:
        return np.asarray(self.rows @ self.rows[self.anchors[p]].T)

    def _differ(self, bits: np.ndarray) -> np.ndarray:
        return (bits[self.pairs.left] != bits[self.pairs.right]).astype(np.float64)


def _middle(turns: np.ndarray, costs: np.ndarray) -> float:
    """Return the middle of the interval between turns, ascending, that costs the least."""
    gaps = np.concatenate([[True], turns[1:] > turns[:-1], [True]])
    best = int(np.where(gaps, costs, np.inf).argmin())
    beyond = 0.1 * max(float(turns[-1] - turns[0]), float(np.abs(turns[[0, -1]]).max())) or 1.0
    if best == 0:
        return float(turns[0]) - beyond
    if best == len(turns):
        return float(turns[-1]) + beyond
    return float(turns[best - 1] + (turns[best] - turns[best - 1]) / 2)
