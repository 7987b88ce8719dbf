"""Estimators of the dense methods that others are commonly compared with, each after its own paper."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from .estimators import BinaryHasher


@dataclass(eq=False, repr=False)
class IsoHash(BinaryHasher):
    """Isotropic hashing: principal components rotated until all have the same variance (lift and projection).

    Parameters
    ----------
    n_bits : int
        Code length b.
    n_iter : int
        Alternations at most.
    n_components : int or float, optional
        Principal components in front, min(n_bits, d) by default.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    References
    ----------
    Kong, Li, *Isotropic hashing*, NIPS 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import IsoHash
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> IsoHash(n_bits=4, random_state=0).fit(X).transform(X).shape
    (100, 4)
    """

    _method: ClassVar[str] = "isohash"
    n_bits: int = 64
    _: KW_ONLY
    n_iter: int = 300
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None


@dataclass(eq=False, repr=False)
class CBE(BinaryHasher):
    """Circulant binary embedding: signs of a circulant projection, random or learned.

    Parameters
    ----------
    n_bits : int
        Code length b; more bits than features take several circulant matrices.
    learned : bool
        Fit the projection to the data; else it stays random.
    n_iter : int
        Rounds of learning, a pass over the data each.
    penalty : float
        λ, on the distance of the projection from an orthogonal one.
    n_components : int or float, optional
        Principal components to work in; by default all features.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    Notes
    -----
    Codes are those of the matrix product; that it could be taken by a Fourier transform is not made use of.

    References
    ----------
    Yu, Kumar, Gong, Chang, *Circulant binary embedding*, ICML 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import CBE
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> CBE(n_bits=8, random_state=0).fit(X).transform(X).shape
    (100, 8)
    """

    _method: ClassVar[str] = "cbe"
    n_bits: int = 64
    _: KW_ONLY
    learned: bool = True
    n_iter: int = 10
    penalty: float = 1.0
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None


@dataclass(eq=False, repr=False)
class SKLSH(BinaryHasher):
    """Locality-sensitive codes from a Gaussian kernel: random Fourier features, cut at random thresholds.

    Parameters
    ----------
    n_bits : int
        Code length b.
    gamma : float, optional
        Of the kernel exp(-γ² ‖x - y‖² / 2); None: 1 over the root mean square distance of two rows.
    n_components : int or float, optional
        Principal components to work in; by default all features.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    References
    ----------
    Raginsky, Lazebnik, *Locality-sensitive binary codes from shift-invariant kernels*, NIPS 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import SKLSH
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> SKLSH(n_bits=16, random_state=0).fit(X).encode(X).shape
    (100, 2)
    """

    _method: ClassVar[str] = "sklsh"
    n_bits: int = 64
    _: KW_ONLY
    gamma: float | None = None
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None
