"""Sets of a fixed size as whole numbers of fewest bytes: ranks, compiled and in NumPy with equal bytes.

A set of ``a`` places out of ``b`` has the rank ``Σ L(p_i, i)``, its places ``p_1 < ... < p_a`` in order,
where ``L(p, i)`` is the binomial coefficient "p choose i" rounded up so that its 32 leading bits hold it
exactly:

    L(p, 0) = 1,   L(p, i) = 0 for p < i,   L(p, i) = up(L(p - 1, i) + L(p - 1, i - 1))

(enumerative coding by quantized binomials, Tomic 2005).  As ``L(p + 1, i) >= L(p, i) + L(p, i - 1)``, the
ranks of different sets differ and all are below ``L(b, a)``; rounding enlarges that by less than a millionth
for a thousand places, while sums and differences touch two words of the rank and no more.  Bytes are those
of the rank, least significant first, as many for every set.
"""

from __future__ import annotations

import functools

import numpy as np

from ._numba import loops

MOST_ENTRIES = 1 << 24  # of a table of coefficients
_WORD = 32


def ranked_width(n_bits: int, n_active: int) -> int:
    """Return the bytes of a ranked set."""
    return _layout(n_bits, n_active)[1]


def rank_sets(places: np.ndarray, n_bits: int) -> np.ndarray:
    """Return the ranks of sets.

    Parameters
    ----------
    places : ndarray of int32, shape (m, n_active)
        Ascending within a row, from 0 to n_bits - 1.
    n_bits : int

    Returns
    -------
    ndarray of uint8, shape (m, ranked_width(n_bits, n_active))
    """
    table, width = _layout(n_bits, places.shape[1])
    if loops() is None:
        return rank_sets_reference(places, n_bits)
    from . import compiled_ranking

    out = np.empty((len(places), width), np.uint8)
    compiled_ranking.rank(np.ascontiguousarray(places), table, out)
    return out


def rank_sets_reference(places: np.ndarray, n_bits: int) -> np.ndarray:
    """Do the same with Python's whole numbers."""
    table, width = _layout(n_bits, places.shape[1])
    ranks = (sum(_value(table[i, p]) for i, p in enumerate(row, start=1)) for row in places.tolist())
    packed = b"".join(rank.to_bytes(width, "little") for rank in ranks)
    return np.frombuffer(packed, np.uint8).reshape(len(places), width).copy()


def unrank_sets(packed: np.ndarray, n_bits: int, n_active: int) -> np.ndarray:
    """Return the sets of ranks, int32, shape (m, n_active), ascending.

    Raises
    ------
    ValueError
        If bytes are no rank of a set; the message names the first such row.
    """
    table, width = _layout(n_bits, n_active)
    if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != width:
        raise ValueError(
            f"expected sets of {n_active} out of {n_bits} as uint8 of shape (m, {width}), "
            f"got {packed.dtype} of shape {packed.shape}"
        )
    places = np.empty((len(packed), n_active), np.int32)
    if loops() is None:
        wrong = _unrank_reference(packed, table, places)
    else:
        from . import compiled_ranking

        wrong = compiled_ranking.unrank(np.ascontiguousarray(packed), table, places)
    if wrong >= 0:
        raise ValueError(f"row {wrong} is no set of {n_active} out of {n_bits}: its bytes are damaged")
    return places


def _unrank_reference(packed: np.ndarray, table: np.ndarray, places: np.ndarray) -> int:
    for row, out in zip(range(len(packed)), places, strict=True):
        rank, last = int.from_bytes(packed[row].tobytes(), "little"), table.shape[1] - 1
        for i in range(places.shape[1], 0, -1):
            if rank >= _value(table[i, last]):
                return row
            last = int(np.searchsorted(table[i, :last], _key(rank), side="right")) - 1
            rank -= _value(table[i, last])
            out[i - 1] = last
    return -1


def coefficients(n_bits: int, n_active: int) -> np.ndarray:
    """Return ``L(p, i)`` for i up to n_active and p up to n_bits, uint64, shape (n_active + 1, n_bits + 1).

    An entry holds 32 leading bits, and above them by how many places these are to be shifted: so entries are
    in the order of their values.
    """
    return _layout(n_bits, n_active)[0]


@functools.lru_cache(maxsize=16)
def _layout(n_bits: int, n_active: int) -> tuple[np.ndarray, int]:
    if not 1 <= n_active < n_bits or n_bits * n_active > MOST_ENTRIES:
        raise ValueError(
            f"expected 1 <= n_active < n_bits and n_bits * n_active <= {MOST_ENTRIES:,}, "
            f"got n_bits={n_bits}, n_active={n_active}"
        )
    table = np.zeros((n_active + 1, n_bits + 1), np.uint64)
    table[0] = 1
    values = [1] * (n_bits + 1)
    for i in range(1, n_active + 1):
        total, row = 0, [0]
        for p in range(n_bits):
            total = _rounded(total + values[p])
            row.append(total)
        values = row
        table[i] = [_key(value) for value in row]
    table.flags.writeable = False
    return table, -(-max(1, (values[-1] - 1).bit_length()) // 8)


def _rounded(value: int) -> int:
    shift = max(0, value.bit_length() - _WORD)
    return -(-value >> shift) << shift


def _key(value: int) -> np.uint64:
    shift = max(0, value.bit_length() - _WORD)
    return np.uint64(shift << _WORD | value >> shift)


def _value(key: np.uint64) -> int:
    return (int(key) & 0xFFFFFFFF) << (int(key) >> _WORD)
