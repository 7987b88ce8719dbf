"""Sums over the ones of packed codes, compiled and in NumPy with equal bits.

Each result is a function of its row (or pair) alone: additions run over the set bits in ascending order,
whatever batch the row was in.
"""

from __future__ import annotations

import numpy as np

from ._numba import loops
from .pack import unpack_bits


def count_pairs(active: np.ndarray, counts: np.ndarray) -> None:
    """Add to ``counts[j, k]``, j <= k, the number of codes with both bits, in place.

    Parameters
    ----------
    active : ndarray of int32, shape (m, n_active)
        The ones of sparse codes, ascending within a row.
    counts : ndarray of float64, shape (b, b)
        Only the upper triangle is touched.
    """
    if loops() is None:
        count_pairs_reference(active, counts)
    else:
        from . import compiled_decoder

        compiled_decoder.count_pairs(active, counts)


def count_pairs_reference(active: np.ndarray, counts: np.ndarray) -> None:
    """Do the same in NumPy."""
    bits = np.zeros((len(active), len(counts)), np.float32)
    np.put_along_axis(bits, active.astype(np.intp), 1, axis=1)
    counts += np.triu(bits.T @ bits)  # exact: fewer than 2²⁴ rows


def sum_rows(codes: np.ndarray, table: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return ``start`` plus the rows of ``table`` that each code switches on, ``start + H @ table``.

    Parameters
    ----------
    codes : ndarray of uint8, shape (m, n_bytes)
        Packed, padding bits zero.
    table : ndarray of float64, shape (b, r)
    start : ndarray of float64, shape (r,)

    Returns
    -------
    ndarray of float64, shape (m, r)
    """
    out = np.tile(start, (len(codes), 1))
    if loops() is None:
        return _sum_rows_reference(codes, table, out)
    from . import compiled_decoder

    compiled_decoder.add_code_rows(codes, table, out)
    return out


def _sum_rows_reference(codes: np.ndarray, table: np.ndarray, out: np.ndarray) -> np.ndarray:
    bits = unpack_bits(codes, len(table)).astype(bool)
    for j, row in enumerate(table):
        out[bits[:, j]] += row
    return out


def row_squares(vectors: np.ndarray) -> np.ndarray:
    """Return the squared length of each row, float64, columns added in order."""
    out = np.zeros(len(vectors))
    if loops() is None:
        for column in vectors.T:
            out += column * column
        return out
    from . import compiled_decoder

    compiled_decoder.row_squares(vectors, out)
    return out


def look_up(
    tables: np.ndarray, codes: np.ndarray, query_rows: np.ndarray, code_rows: np.ndarray
) -> np.ndarray:
    """Return for each listed pair the sum of the query's table over the ones of the code.

    Parameters
    ----------
    tables : ndarray of float64, shape (q, b)
    codes : ndarray of uint8, shape (m, n_bytes)
        Packed, padding bits zero.
    query_rows, code_rows : ndarray of int64, shape (p,)

    Returns
    -------
    ndarray of float64, shape (p,)
    """
    out = np.zeros(len(query_rows))
    if loops() is None:
        bits = unpack_bits(codes, tables.shape[1])[code_rows].astype(bool)
        for j in range(tables.shape[1]):
            hit = bits[:, j]
            out[hit] += tables[query_rows[hit], j]
        return out
    from . import compiled_decoder

    compiled_decoder.look_up(tables, codes, query_rows, code_rows, out)
    return out
