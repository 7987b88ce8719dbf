"""Estimators of codes by eigenfunctions of single coordinates, here principal components.

Each class is what the method's dataclass in ``tasks/methods`` is, with ``random_state`` in addition and
scikit-learn's interface.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from .estimators import BinaryHasher


@dataclass(eq=False, repr=False)
class SpectralHashing(BinaryHasher):
    """Spectral hashing: signs of the lowest eigenfunctions of a box around the principal components.

    Parameters
    ----------
    n_bits : int
        Code length b.
    n_components : int or float, optional
        Principal components in front, min(n_bits, d) by default.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None
        Without effect.

    References
    ----------
    Weiss, Torralba, Fergus, *Spectral hashing*, NIPS 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import SpectralHashing
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> SpectralHashing(n_bits=4).fit(X).transform(X).shape
    (100, 4)
    """

    _method: ClassVar[str] = "spectral_hashing"
    n_bits: int = 64
    _: KW_ONLY
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None


@dataclass(eq=False, repr=False)
class MDSH(BinaryHasher):
    """Multidimensional spectral hashing: signs of numerical eigenfunctions, with weights.

    Search its codes with `bitfleet.weighted_hamming`, which approximates ``exp(-‖x - x'‖² / 2σ²)``.

    Parameters
    ----------
    n_bits : int
        Code length b.
    sigma : float or "auto"
        Width of the affinity; "auto": 0.2 times the root mean squared distance of two rows.
    products : bool
        Make bits of products of functions of several coordinates; else of single functions, whose products
        the affinity adds up.
    n_bins : int
        Bins of a coordinate's histogram.
    clip : float
        Coordinates beyond the quantiles of this share and of one minus it are taken as these.
    n_components : int or float, optional
        Principal components in front, min(n_bits, d) by default.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None
        Without effect.

    Attributes
    ----------
    sigma_ : float
    n_functions_ : int
        Bits that eigenfunctions are left for; more are 1 for all rows.

    References
    ----------
    Weiss, Fergus, Torralba, *Multidimensional spectral hashing*, ECCV 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import MDSH
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> MDSH(n_bits=16).fit(X).encode(X).shape
    (100, 2)
    """

    _method: ClassVar[str] = "mdsh"
    _reported: ClassVar[dict[str, str]] = {"sigma_": "sigma", "n_functions_": "n_functions"}
    n_bits: int = 64
    _: KW_ONLY
    sigma: float | str = "auto"
    products: bool = False
    n_bins: int = 128
    clip: float = 0.025
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None
