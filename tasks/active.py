"""Distances of real queries to sparse codes by look-up in one table a query.

A set h of atoms stands for the vector ``x̂ = m + D h`` (see `decoder`; D and m in the coordinates that the
decoder decodes to).  With ``t = D' q`` and ``S`` the sum of t over h, three distances need no decoding, only
``n = ‖D h‖`` (cosine: ``‖m + D h‖``), which the code itself gives by the Gram matrix of D:

    "cosine":                2 - 2 (q · m + S) / n               between rows of length one
    "euclidean", lengths:    ‖q - m‖² + s² - 2 s S / n           s the row's length, stored beside the code
    "euclidean", without:    ‖q - m‖² + n² - 2 S                 to the decoded vector

The first two take the direction alone from the code: what a few atoms leave out makes a decoded vector too
short, and by more for some rows than for others.  Lengths take a byte, sixteen steps an octave, eight octaves
up and down from a unit that the decoder gives; byte 0 is length zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .kernels.active_scan import nearest_sets, squared_norms
from .kernels.decoding import row_squares
from .kernels.exact import fixed_product
from .unit import unit_rows

if TYPE_CHECKING:
    from .decoder import Decoder

METRICS = ("euclidean", "cosine")
_STEPS = 16  # of an octave
_MIDDLE = 128
_QUERIES_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class ActiveDistances:
    """What search by look-up needs beside the rows.

    Attributes
    ----------
    decoder : Decoder
        Of sparse codes.
    n_active : int
    metric : {"euclidean", "cosine"}
    lengths : bool
        Rows end in a byte of their length; Euclidean only.
    """

    decoder: Decoder
    n_active: int
    metric: str
    lengths: bool

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"expected metric to be one of {', '.join(METRICS)}, got {self.metric!r}")
        if self.lengths and self.metric == "cosine":
            raise ValueError("cosine takes no lengths: only directions count")
        if self.decoder.dense:
            raise ValueError("expected a decoder of sparse codes, got one of dense codes")

    def length_bytes(self, vectors: np.ndarray) -> np.ndarray:
        """Return the stored lengths of rows, uint8, shape (m,)."""
        lengths = np.sqrt(row_squares(self.decoder.coordinates(vectors)))
        with np.errstate(divide="ignore"):
            steps = np.rint(_STEPS * np.log2(lengths / self._unit))
        return np.where(lengths > 0, np.clip(steps + _MIDDLE, 1, 255), 0).astype(np.uint8)

    def lengths_of(self, stored: np.ndarray) -> np.ndarray:
        """Return the lengths that bytes stand for, float64."""
        grid = self._unit * np.exp2((np.arange(256) - _MIDDLE) / _STEPS)
        grid[0] = 0.0
        return grid[stored]

    def norms(self, places: np.ndarray) -> np.ndarray:
        """Return the squared lengths of what sets are decoded to, float32, shape (m,)."""
        gram, start = self._gram
        return squared_norms(places, gram, start).astype(np.float32)

    def lists(self, places: np.ndarray) -> np.ndarray:
        """Return sets in the fewest bytes that need no unpacking, unsigned, shape (m, n_active)."""
        return places.astype(np.min_scalar_type(self.decoder.n_bits - 1))

    def nearest(
        self,
        queries: np.ndarray,
        rows: np.ndarray,
        k: int,
        norms: np.ndarray | None = None,
        lists: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the k rows nearest to each query, the earlier row first among equals.

        Parameters
        ----------
        queries : ndarray of float, shape (q, d)
        rows : ndarray of uint8, shape (n, n_bytes)
            Ranked sets, and a byte of length if there are lengths.
        k : int
            At most n.
        norms : ndarray of float32, shape (n,), optional
            What `norms` returns of the rows; else computed as the rows are read, with the same results.
        lists : ndarray of unsigned integers, shape (n, n_active), optional
            What `lists` returns of the rows; else they are unpacked, with the same results.

        Returns
        -------
        distances : ndarray of float64, shape (q, k)
            Squared; of cosine between rows of length one.
        rows : ndarray of int64, shape (q, k)

        Raises
        ------
        ValueError
            If a squared distance overflows.
        """
        found = [
            self._nearest(queries[at : at + _QUERIES_AT_ONCE], rows, k, norms, lists)
            for at in range(0, len(queries), _QUERIES_AT_ONCE)
        ]
        empty = np.empty((0, k)), np.empty((0, k), np.int64)
        values, places = zip(empty, *found, strict=True)
        return np.concatenate(values), np.concatenate(places)

    def _nearest(
        self,
        queries: np.ndarray,
        rows: np.ndarray,
        k: int,
        norms: np.ndarray | None,
        lists: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        tables, scales, offsets, constants = self._tables(queries)
        packed = rows[:, :-1] if self.lengths else rows

        def weigh(start: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            part = slice(start, start + len(places))
            squares = self.norms(places) if norms is None else norms[part]
            return self._weigh(squares.astype(np.float64), rows[part, -1] if self.lengths else None)

        with np.errstate(over="ignore", invalid="ignore"):
            values, found = nearest_sets(packed, self.n_active, tables, scales, offsets, weigh, k, lists)
        distances = values + constants[:, None]
        _refuse_overflow(distances)
        return distances, found

    def _weigh(self, squares: np.ndarray, stored: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return what a row's value to a query is made of: ``a - b (S u + c)``."""
        if self.metric == "euclidean" and stored is None:
            return squares, np.full(len(squares), 2.0)
        with np.errstate(divide="ignore"):
            towards = np.where(squares > 0, 2 / np.sqrt(np.maximum(squares, 0)), 0.0)
        if stored is None:
            return np.zeros(len(squares)), towards
        lengths = self.lengths_of(stored)
        return lengths * lengths, lengths * towards

    def _tables(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return tables of whole numbers, what one of them is, and what is the same for all rows."""
        front = self.decoder.front
        if self.metric == "cosine":
            directions = unit_rows(queries.astype(np.float64))[0]
            inner = self._turn(directions)
            offsets = fixed_product(directions, np.ascontiguousarray(front.mean[:, None], np.float64))[:, 0]
            constants = np.full(len(queries), 2.0)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                inner = self.decoder.coordinates(queries)
                offsets, constants = np.zeros(len(queries)), row_squares(inner)
            _refuse_overflow(constants)
        with np.errstate(over="ignore", invalid="ignore"):
            reals = fixed_product(inner, self._atoms)
        most = np.abs(reals).max(axis=1, initial=0.0)
        _refuse_overflow(most)
        places = 30 - (self.n_active - 1).bit_length() - np.frexp(most)[1]
        tables = np.rint(np.ldexp(reals, places[:, None])).astype(np.int32)
        return tables, np.ldexp(1.0, -places), offsets, constants

    def _turn(self, vectors: np.ndarray) -> np.ndarray:
        components = self.decoder.front.components
        if components is None:
            return vectors
        return fixed_product(vectors, np.ascontiguousarray(components, np.float64))

    @cached_property
    def _atoms(self) -> np.ndarray:
        """Return D with a column for each atom, laid out for `fixed_product`."""
        return np.ascontiguousarray(self.decoder.matrix.T)

    @cached_property
    def _gram(self) -> tuple[np.ndarray, float]:
        """Return the Gram matrix whose sum over a set, with a number, is the squared length."""
        matrix, front = self.decoder.matrix, self.decoder.front
        gram = fixed_product(matrix, self._atoms)
        if self.metric != "cosine":
            return gram, 0.0
        mean = np.ascontiguousarray(front.mean, np.float64)[None]
        gram[np.diag_indices(len(gram))] += 2 * fixed_product(matrix, self._turn(mean).T.copy())[:, 0]
        return gram, float(row_squares(mean)[0])

    @cached_property
    def _unit(self) -> float:
        total = float(row_squares(self.decoder.matrix).sum()) * self.n_active / self.decoder.n_bits
        return float(np.exp2(np.rint(np.log2(total) / 2))) if total > 0 else 1.0


def _refuse_overflow(numbers: np.ndarray) -> None:
    if not np.isfinite(numbers).all():
        raise ValueError("squared distances of the queries overflow float64; rescale the vectors")
