"""Estimators of dense codes that are learned from, or through, a sample of the rows.

Each class is what the method's dataclass in ``tasks/methods`` is, with ``random_state`` in addition and
scikit-learn's interface; a test holds parameters and defaults of the two equal.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from .estimators import BinaryHasher


@dataclass(eq=False, repr=False)
class AGH(BinaryHasher):
    """Anchor graph hashing: signs of the leading eigenfunctions of a neighbourhood graph through anchors.

    Parameters
    ----------
    n_bits : int
        Code length b.
    n_anchors : int
        Centres of k-means that the graph goes through, more than ``n_bits``.
    n_nearest : int
        Anchors that a row is attached to.
    n_iter : int
        Rounds of k-means.
    n_layers : {1, 2}
        Bits from each eigenfunction.
    random_state : int, RandomState or None

    Attributes
    ----------
    width_ : float
        Mean distance of a row to the last of its anchors, the kernel's width.
    n_directions_ : int
        Eigenfunctions of the graph; bits beyond them are mixtures.

    References
    ----------
    Liu, Wang, Kumar, Chang, *Hashing with graphs* (2011).

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import AGH
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> AGH(n_bits=16, n_anchors=50, random_state=0).fit(X).encode(X).shape
    (100, 2)
    """

    _method: ClassVar[str] = "agh"
    _reported: ClassVar[dict[str, str]] = {"width_": "width", "n_directions_": "n_directions"}
    n_bits: int = 64
    _: KW_ONLY
    n_anchors: int = 300
    n_nearest: int = 5
    n_iter: int = 5
    n_layers: int = 1
    random_state: Any = None


@dataclass(eq=False, repr=False)
class KLSH(BinaryHasher):
    """Kernelized locality-sensitive hashing: random hyperplanes in the space of a kernel.

    Parameters
    ----------
    n_bits : int
        Code length b.
    n_anchors : int
        Rows drawn, by whose kernel values a row is seen.
    n_subset : int
        Rows of a hyperplane.
    kernel : {"rbf", "linear"}
        ``exp(-‖x - y‖² / σ²)``, or the inner product.
    sigma : float or "auto"
        Width σ; "auto": the root mean squared distance between the rows drawn.
    random_state : int, RandomState or None

    Attributes
    ----------
    sigma_ : float
    n_directions_ : int
        Rank of the kernel matrix of the rows drawn.

    References
    ----------
    Kulis, Grauman, *Kernelized locality-sensitive hashing for scalable image search* (2009).

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import KLSH
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> KLSH(n_bits=16, random_state=0).fit(X).encode(X).shape
    (100, 2)
    """

    _method: ClassVar[str] = "klsh"
    _reported: ClassVar[dict[str, str]] = {"sigma_": "sigma", "n_directions_": "n_directions"}
    n_bits: int = 64
    _: KW_ONLY
    n_anchors: int = 300
    n_subset: int = 30
    kernel: str = "rbf"
    sigma: float | str = "auto"
    random_state: Any = None


@dataclass(eq=False, repr=False)
class SHD(BinaryHasher):
    """Spherical hashing: is a row in the sphere around a pivot, half of the rows in each, a quarter in two?

    For its own distance see `bitfleet.spherical_hamming`.

    Parameters
    ----------
    n_bits : int
        Spheres b.
    n_train : int
        Rows drawn to learn from.
    n_iter : int
        Moves of all pivots at most.
    mean_tolerance, spread_tolerance : float
        When to stop: mean deviation and standard deviation of overlaps from a quarter of the rows, as
        shares of that.
    random_state : int, RandomState or None

    Attributes
    ----------
    overlap_mean_, overlap_spread_ : float
        How far overlaps are from a quarter in the end.
    n_moves_ : int

    References
    ----------
    Heo, Lee, He, Chang, Yoon, *Spherical hashing* (2012).

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import SHD
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> SHD(n_bits=16, random_state=0).fit(X).encode(X).shape
    (100, 2)
    """

    _method: ClassVar[str] = "shd"
    _reported: ClassVar[dict[str, str]] = {
        "overlap_mean_": "overlap_mean",
        "overlap_spread_": "overlap_spread",
        "n_moves_": "n_moves",
    }
    n_bits: int = 64
    _: KW_ONLY
    n_train: int = 10000
    n_iter: int = 100
    mean_tolerance: float = 0.1
    spread_tolerance: float = 0.15
    random_state: Any = None


@dataclass(eq=False, repr=False)
class BRE(BinaryHasher):
    """Binary reconstructive embeddings: signs of mixtures of rows, whose distances reconstruct true ones.

    Parameters
    ----------
    n_bits : int
        Code length b.
    n_train : int
        Rows drawn to learn from, at most 10,000.
    n_pairs : int
        Partners of each of them; from ``n_train - 1`` on, all pairs.
    n_mixed : int
        Rows that a bit is a mixture of.
    n_iter : int
        Sweeps over all weights.
    scale : float
        Factor of squared distances: 1/4, such that opposite rows have 1, or the paper's 1/2.
    center : bool
        Subtract the mean.
    n_components : int or float, optional
        Principal components to work in, or the share of variance they must explain.
    random_state : int, RandomState or None

    Attributes
    ----------
    objective_ : float
        Mean squared difference, over the pairs, of the share of bits that differ and the scaled
        squared distance between rows of length one.

    References
    ----------
    Kulis, Darrell, *Learning to hash with binary reconstructive embeddings* (2009).

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import BRE
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> BRE(n_bits=16, n_mixed=5, random_state=0).fit(X).encode(X).shape
    (100, 2)
    """

    _method: ClassVar[str] = "bre"
    _reported: ClassVar[dict[str, str]] = {"objective_": "objective"}
    n_bits: int = 64
    _: KW_ONLY
    n_train: int = 1000
    n_pairs: int = 100
    n_mixed: int = 50
    n_iter: int = 3
    scale: float = 0.25
    center: bool = True
    n_components: int | float | None = None
    random_state: Any = None
