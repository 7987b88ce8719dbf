"""From codes back to vectors by a linear map, and distances of queries to what codes stand for.

With rows x in the coordinates that the method sees, ``(x - mean) @ components``, and codes h the decoder is

    D = argmin Σ ‖x_i - D h_i‖² + ridge ‖D‖²   (POSH paper, equation 15)

Sparse codes are taken as {0, 1}, dense ones as {-1, 1}.  One pass adds up ``HᵀH`` and ``HᵀX``; bits that no
row switches on make the first singular, hence the ridge or the pseudo-inverse.

The distance of a query to a decoded code takes no decoding: with the table ``x_q Dᵀ`` of one number per bit

    ‖x_q - D h‖² = ‖x_q‖² - 2 Σ_{j in h} (x_q Dᵀ)_j + ‖D h‖²

is a look-up for each one of the code, and a number kept per code.  All sums run in fixed order: a distance is
a function of query and code alone.

In the coordinates of a few principal components the distance leaves out the query's length outside of
them, which is the same for all codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .kernels.accumulate import add_rows
from .kernels.decoding import count_pairs, look_up, row_squares, sum_rows
from .kernels.exact import fixed_product
from .kernels.pack import packed_width, unpack_bits
from .least_squares import solve_gram
from .methods.base import Front
from .sums import Sums, refuse_infinite

if TYPE_CHECKING:
    from .protocols import Arrays, Block, Method, RoundState

_TILE_ROWS = 1024


@dataclass(frozen=True)
class DecoderSums:
    """What a decoder is fitted from: the program whose summary `fit` takes.

    The summary holds ``gram`` = HᵀH (b, b), ``cross`` = HᵀX (b, r), ``square`` = Σ‖x‖² and ``count``, all
    float64 but the count.
    """

    method: Method

    def accumulator(self, state: RoundState) -> DecoderAccumulator:
        """Build the accumulator with the encoder of a finished state."""
        encoder: Any = self.method.encoder(state)
        return DecoderAccumulator(encoder, space_of(state, encoder.n_features))


class DecoderAccumulator(Sums):
    """Accumulator of ``HᵀH``, ``HᵀX``, ``Σ‖x‖²`` and the number of rows, in float64."""

    def __init__(self, encoder: Any, front: Front) -> None:
        self.encoder = encoder
        self.front = front

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        n_bits = self.encoder.n_bits
        return {
            "gram": np.zeros((n_bits, n_bits)),
            "cross": np.zeros((n_bits, self.front.n_outputs)),
            "square": np.zeros(()),
            "count": np.zeros((), np.int64),
        }

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        for start in range(0, len(block.vectors), _TILE_ROWS):
            vectors = block.vectors[start : start + _TILE_ROWS]
            (rows,) = self.front.tiles(vectors, np.float64)
            if self.encoder.n_active is None:
                signs = signs_of(self.encoder.encode(vectors), self.encoder.n_bits)
                state["gram"] += np.triu(signs.T @ signs)  # whole numbers, exact in float32 up to 2²⁴ rows
                state["cross"] += signs.T.astype(np.float64) @ rows
            else:
                active = self.encoder.active(vectors)
                count_pairs(active, state["gram"])
                add_rows(state["cross"], active, rows)
            state["square"] += np.einsum("ij,ij->", rows, rows)
        state["count"] += len(block.vectors)
        return state

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums, the Gram matrix whole; refuse what is not finite."""
        refuse_infinite(state, "square", "cross")
        return {**state, "gram": state["gram"] + np.triu(state["gram"], 1).T}


@dataclass(frozen=True, eq=False)
class Decoder:
    """A fitted linear decoder.

    Attributes
    ----------
    matrix : ndarray of float64, shape (b, r)
        Dᵀ: a row per bit.
    front : Front
        The coordinates that ``matrix`` decodes to.
    dense : bool
        Codes are taken as {-1, 1} (dense) or {0, 1} (sparse).
    ridge : float
        What it was fitted with.
    """

    matrix: np.ndarray
    front: Front
    dense: bool
    ridge: float

    def __post_init__(self) -> None:
        mean, components = self.front.mean, self.front.components
        matrix = np.ascontiguousarray(self.matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != self.front.n_outputs:
            raise ValueError(
                f"expected a decoder of shape (n_bits, {self.front.n_outputs}), got {matrix.shape}"
            )
        if mean.ndim != 1 or (components is not None and components.shape != (len(mean), matrix.shape[1])):
            raise ValueError(
                "expected a decoder's mean of shape (d,) and components of shape (d, r), got "
                f"{mean.shape} and {None if components is None else components.shape}"
            )
        for name, array in (("matrix", matrix), ("mean", mean), ("components", components)):
            if array is not None and not (array.dtype.kind == "f" and np.isfinite(array).all()):
                raise ValueError(f"expected a decoder of finite numbers, its {name} holds others")
        object.__setattr__(self, "matrix", matrix)

    @property
    def n_bits(self) -> int:
        """Bits of the codes that it decodes."""
        return len(self.matrix)

    def coordinates(self, vectors: np.ndarray) -> np.ndarray:
        """Return rows in the decoder's coordinates, float64, shape (m, r), each a function of its row."""
        centred = np.subtract(vectors, self.front.mean, dtype=np.float64)
        if self.front.components is None:
            return centred
        return fixed_product(centred, np.ascontiguousarray(self.front.components, dtype=np.float64))

    def reconstruct(self, codes: np.ndarray) -> np.ndarray:
        """Return ``D h`` of packed codes in the decoder's coordinates, float64, shape (m, r)."""
        table, start = self._table()
        return sum_rows(check_codes(codes, self.n_bits), table, start)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return vectors like those that were encoded, float64, shape (m, d)."""
        return self.to_vectors(self.reconstruct(codes))

    def to_vectors(self, coordinates: np.ndarray) -> np.ndarray:
        """Turn the decoder's coordinates into vectors."""
        if self.front.components is None:
            return coordinates + self.front.mean
        return fixed_product(coordinates, np.ascontiguousarray(self.front.components.T)) + self.front.mean

    def tables(self, vectors: np.ndarray) -> QueryTables:
        """Return what the distances of these queries to any code are looked up in."""
        rows = self.coordinates(vectors)
        table, start = self._table()
        look_ups = -2 * fixed_product(rows, np.ascontiguousarray(table.T))
        constants = row_squares(rows) - 2 * fixed_product(rows, np.ascontiguousarray(start[:, None]))[:, 0]
        return QueryTables(look_ups, constants)

    def norms(self, codes: np.ndarray) -> np.ndarray:
        """Return ``‖D h‖²`` of packed codes, float64, shape (m,): the number to keep per code."""
        return row_squares(self.reconstruct(codes))

    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (T, t) with ``D h = t + Σ_{j: bit j is one} T_j``."""
        if not self.dense:
            return self.matrix, np.zeros(self.matrix.shape[1])
        return 2 * self.matrix, -self.matrix.sum(axis=0)


@dataclass(frozen=True, eq=False)
class QueryTables:
    """Look-up tables of queries: ``look_ups`` (q, b) and ``constants`` (q,), both float64."""

    look_ups: np.ndarray
    constants: np.ndarray

    def distances(
        self, codes: np.ndarray, norms: np.ndarray, query_rows: np.ndarray, code_rows: np.ndarray
    ) -> np.ndarray:
        """Return ``‖x_q - D h‖²`` of each listed pair of query and code, float64, shape (p,).

        Parameters
        ----------
        codes : ndarray of uint8, shape (m, n_bytes)
        norms : ndarray of float64, shape (m,)
            `Decoder.norms` of the codes.
        query_rows, code_rows : ndarray of int64, shape (p,)
        """
        found = look_up(self.look_ups, codes, query_rows, code_rows)
        found += self.constants[query_rows]
        found += norms[code_rows]
        return found


def fit(summary: Arrays, front: Front, *, dense: bool, ridge: float = 1.0) -> Decoder:
    """Return the decoder of a `DecoderSums` summary.

    ``ridge=0`` takes the pseudo-inverse; its cut-off is that of `least_squares.solve_gram`.
    """
    if summary["count"] == 0:
        raise ValueError("expected at least one row to fit a decoder to, got none")
    return Decoder(solve_gram(summary["gram"], summary["cross"], ridge), front, dense, float(ridge))


def space_of(state: RoundState, n_features: int) -> Front:
    """Return the coordinates that a method works in, all features as they are where its state names none."""
    mean = state.arrays.get("mean")
    return Front(np.zeros(n_features) if mean is None else mean, state.arrays.get("components"))


def signs_of(codes: np.ndarray, n_bits: int) -> np.ndarray:
    """Return packed codes as -1 and 1, float32, shape (m, n_bits)."""
    return unpack_bits(codes, n_bits) * np.float32(2) - np.float32(1)


def check_codes(codes: np.ndarray, n_bits: int) -> np.ndarray:
    """Return packed codes as they are; refuse other types, widths, and ones in the padding."""
    codes = np.asarray(codes)
    if codes.dtype != np.uint8 or codes.ndim != 2 or codes.shape[1] != packed_width(n_bits):
        raise ValueError(
            f"expected packed codes, uint8 of shape (m, {packed_width(n_bits)}), "
            f"got {codes.dtype} of shape {codes.shape}"
        )
    spare = 8 * codes.shape[1] - n_bits
    if spare and (codes[:, -1] >> (8 - spare)).any():
        raise ValueError(f"expected the padding bits of codes of {n_bits} bits to be zero, got ones")
    return np.ascontiguousarray(codes)
