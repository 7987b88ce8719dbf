"""Search by the spherical Hamming distance of spherical hashing (Heo et al., 2012)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..tasks.kernels.hamming import as_words
from .code_inputs import loaded
from .errors import ConfigError

if TYPE_CHECKING:
    import os

    from ..storage.codes import Codes

_WORDS_AT_ONCE = 2**20
_QUERIES_AT_ONCE = 64


def spherical_hamming(
    codes: np.ndarray | Codes | str | os.PathLike[str],
    queries: np.ndarray | Codes | str | os.PathLike[str],
    k: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return each query's ``k`` nearest codes by ``|a xor b| / |a and b|``.

    Two rows that lie in the same spheres are near, while plain Hamming distance, that of `CodeIndex`, takes
    lying outside of the same spheres for as good a sign.

    Parameters
    ----------
    codes, queries : ndarray of uint8, shape (n, w) and (q, w), Codes, or path
        Packed dense codes, as `SHD` makes them.
    k : int
        All of them where there are not so many.

    Returns
    -------
    distances : ndarray of float64, shape (q, k)
        Ascending.  Equal codes have 0, even without a one; others that share no one are infinitely far.
    ids : ndarray of int64, shape (q, k)
        Numbers of the codes, ascending among equal distances.

    Raises
    ------
    ConfigError
        If ``k`` is less than 1, or codes and queries are not dense codes of the same width.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import spherical_hamming
    >>> spherical_hamming(np.array([[6], [7], [8]], np.uint8), np.array([[3]], np.uint8), 2)
    (array([[0.5, 2. ]]), array([[1, 0]]))
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ConfigError(f"expected k to be an integer >= 1, got {k!r}")
    (base, n_bits, active), (asked, asked_bits, asked_active) = (
        loaded(a, None, None) for a in (codes, queries)
    )
    if n_bits != asked_bits or active is not None or asked_active is not None:
        raise ConfigError(
            f"expected dense codes of the same width, got {_words(n_bits, active)} to search and queries "
            f"of {_words(asked_bits, asked_active)}"
        )
    words, wanted, k = as_words(base), as_words(asked), min(int(k), len(base))
    distances, ids = np.empty((len(wanted), k)), np.empty((len(wanted), k), np.int64)
    for start in range(0, len(wanted), _QUERIES_AT_ONCE):
        part = slice(start, start + _QUERIES_AT_ONCE)
        distances[part], ids[part] = _nearest(words, wanted[part], k)
    return distances, ids


def _nearest(words: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Merge block after block of codes; a stable sort leaves the earlier of equally near ones in front."""
    height = max(_WORDS_AT_ONCE // max(queries.size, 1), 1)
    best = np.empty((len(queries), 0))
    ids = np.empty((len(queries), 0), np.int64)
    for start in range(0, len(words), height):
        block = words[start : start + height]
        numbers = np.broadcast_to(np.arange(start, start + len(block)), (len(queries), len(block)))
        best = np.concatenate([best, _distances(queries, block)], axis=1)
        ids = np.concatenate([ids, numbers], axis=1)
        order = np.argsort(best, axis=1, kind="stable")[:, :k]
        best, ids = np.take_along_axis(best, order, axis=1), np.take_along_axis(ids, order, axis=1)
    return best, ids


def _distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    apart = np.bitwise_count(left[:, None] ^ right).sum(axis=2, dtype=np.int64)
    common = np.bitwise_count(left[:, None] & right).sum(axis=2, dtype=np.int64)
    far = np.where(apart > 0, np.inf, 0.0)
    return np.divide(apart, common, out=far, where=common > 0)


def _words(n_bits: int, n_active: int | None) -> str:
    return f"{n_bits} bits" if n_active is None else f"{n_bits} bits of which {n_active} are ones"
