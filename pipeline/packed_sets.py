"""Sparse codes in the fewest bytes: what `ActiveIndex` keeps, for codes of any method."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tasks.kernels.pack import list_active
from ..tasks.kernels.ranking import rank_sets, unrank_sets
from .code_inputs import check_count, loaded
from .errors import ConfigError


def pack_active(codes: Any, n_bits: int | None = None, n_active: int | None = None) -> np.ndarray:
    """Return sparse codes as the ranks of their sets, in the fewest whole bytes that hold any of them.

    18 ones of 1,024 take 16 bytes, 112 take 64; as packed bits they all take 128.

    Parameters
    ----------
    codes : Codes, path of codes, or array
        Places of the ones, int32 or int64 of shape (n, n_active); or packed bits, uint8 of shape
        (n, ceil(n_bits / 8)), of which ``n_active`` must be said.
    n_bits, n_active : int, optional
        Stored codes know both.

    Returns
    -------
    ndarray of uint8, shape (n, n_bytes)
        `unpack_active` has the codes back exactly.  See `tasks.kernels.ranking` for the format.

    Raises
    ------
    ConfigError
        If these are no sparse codes with as many ones each.

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> places = np.array([[0, 7, 1023], [5, 6, 7]])
    >>> packed = bf.pack_active(places, 1024)
    >>> packed.shape, bool((bf.unpack_active(packed, 1024, 3) == places).all())
    ((2, 4), True)
    """
    packed, n_bits, n_active = loaded(codes, n_bits, n_active)
    if n_active is None:
        raise ConfigError("expected sparse codes: say how many ones each has with n_active=")
    try:
        return rank_sets(list_active(packed, n_active), n_bits)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def unpack_active(packed: np.ndarray, n_bits: int, n_active: int) -> np.ndarray:
    """Return the places of the ones of codes that `pack_active` packed.

    Returns
    -------
    ndarray of int32, shape (n, n_active)
        Ascending.

    Raises
    ------
    ConfigError
        If the type, the width or any row's bytes are not those of ``n_active`` ones of ``n_bits``.

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> places = np.array([[0, 5, 9], [2, 3, 4]], np.int32)
    >>> bf.unpack_active(bf.pack_active(places, 10), 10, 3).tolist()
    [[0, 5, 9], [2, 3, 4]]
    """
    check_count("n_bits", n_bits)
    check_count("n_active", n_active)
    try:
        return unrank_sets(np.asarray(packed), n_bits, n_active)
    except ValueError as error:
        raise ConfigError(str(error)) from None
