"""The numba loops of decoding; `decoding` calls them and holds their references.

In one file of their own, like the loops of `compiled`, so that numba notices every change.
"""

from __future__ import annotations

from ._numba import jit


@jit
def count_pairs(active, out):  # type: ignore[no-untyped-def]
    """out[j, k] += 1 for each j <= k in a row of ascending indices."""
    for i in range(active.shape[0]):
        for p in range(active.shape[1]):
            j = active[i, p]
            for q in range(p, active.shape[1]):
                out[j, active[i, q]] += 1


@jit
def add_code_rows(codes, table, out):  # type: ignore[no-untyped-def]
    """out[i] += table[j] for each bit j that is set in code i, bits ascending."""
    for i in range(codes.shape[0]):
        for k in range(codes.shape[1]):
            byte = codes[i, k]
            j = 8 * k
            while byte != 0:
                if byte & 1:
                    for c in range(table.shape[1]):
                        out[i, c] += table[j, c]
                byte >>= 1
                j += 1


@jit
def row_squares(vectors, out):  # type: ignore[no-untyped-def]
    """out[i] = the sum of squares of row i, in order."""
    for i in range(vectors.shape[0]):
        total = 0.0
        for c in range(vectors.shape[1]):
            total += vectors[i, c] * vectors[i, c]
        out[i] = total


@jit
def look_up(tables, codes, query_rows, code_rows, out):  # type: ignore[no-untyped-def]
    """out[p] = the sum of the query's table over the bits that are set in the code, bits ascending."""
    for p in range(query_rows.shape[0]):
        table = tables[query_rows[p]]
        code = codes[code_rows[p]]
        total = 0.0
        for k in range(code.shape[0]):
            byte = code[k]
            j = 8 * k
            while byte != 0:
                if byte & 1:
                    total += table[j]
                byte >>= 1
                j += 1
        out[p] = total
