"""Estimators of dense codes: every bit is a sign.

Each class is what the method's dataclass in ``tasks/methods`` is, with ``random_state`` in addition and
scikit-learn's interface; a test holds parameters and defaults of the two equal.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from .estimators import BinaryHasher


@dataclass(eq=False, repr=False)
class Sign(BinaryHasher):
    """Plain sign quantisation, what vector databases call binary quantisation: is the feature >= 0?

    The baseline that every other method has to beat.

    Parameters
    ----------
    n_bits : int, optional
        None: a bit for each feature (or component).  Fewer: of the first so many; there cannot be more.
    n_components : int or float, optional
        Signs of so many principal components instead, or of those that explain this share of the variance.
    center : bool
        Subtract the mean; by default not, unlike all other methods.
    random_state : int, RandomState or None
        Without effect.

    Examples
    --------
    >>> from bitfleet import Sign
    >>> X = [[0.5, -0.2, 0.1], [-1.0, 0.0, 2.0]]
    >>> Sign().fit(X).transform(X).tolist()
    [[1, 0, 1], [0, 1, 1]]
    """

    _method: ClassVar[str] = "sign"
    n_bits: int | None = None
    _: KW_ONLY
    n_components: int | float | None = None
    center: bool = False
    random_state: Any = None


@dataclass(eq=False, repr=False)
class LSH(BinaryHasher):
    """Random hyperplanes: bit j is the sign of a Gaussian projection (Charikar 2002).

    Parameters
    ----------
    n_bits : int
        Code length b.
    n_components : int, optional
        Project onto this many principal components first; by default the hyperplanes do not see the data.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import LSH
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> LSH(n_bits=16, random_state=0).fit(X).encode(X).shape
    (100, 2)
    """

    _method: ClassVar[str] = "lsh"
    n_bits: int = 64
    _: KW_ONLY
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None


@dataclass(eq=False, repr=False)
class ITQ(BinaryHasher):
    """Iterative quantisation: PCA, then the rotation that brings the rows nearest to their signs.

    Parameters
    ----------
    n_bits : int
        Code length b.
    n_iter : int
        Rounds, each a pass over the data and an orthogonal Procrustes step.
    n_components : int, optional
        Principal components in front, min(n_bits, d) by default.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    References
    ----------
    Gong, Lazebnik, Gordo, Perronnin, *Iterative quantization*, TPAMI 35 (2013).

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import ITQ
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> ITQ(n_bits=4, n_iter=5, random_state=0).fit(X).transform(X).shape
    (100, 4)
    """

    _method: ClassVar[str] = "itq"
    n_bits: int = 64
    _: KW_ONLY
    n_iter: int = 50
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None


@dataclass(eq=False, repr=False)
class KNNH(BinaryHasher):
    """K-nearest-neighbour hashing: ITQ learned from averages of each row's exact nearest neighbours.

    Rows are encoded as they are; only training sees averages.

    Parameters
    ----------
    n_bits : int
        Code length b.
    n_neighbors : int
        Rows that are averaged, the row itself not among them.
    neighbors_from : {"train", "all"}
        Among which rows neighbours are looked for, if ``n_train`` leaves some out.
    n_train : int, optional
        Learn from so many rows, drawn by the seed.  The search takes time O(n_train · n), and their
        averages are kept in memory: at most 2**25 numbers, n_train times the components.
    n_iter : int
        Rounds of ITQ on the averages.
    n_components : int, optional
        Principal components in front, min(n_bits, d) by default.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    References
    ----------
    He, Wang, Cheng, *K-nearest neighbors hashing*, CVPR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import KNNH
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> KNNH(n_bits=4, n_iter=5, random_state=0).fit(X).transform(X).shape
    (100, 4)
    """

    _method: ClassVar[str] = "knnh"
    n_bits: int = 64
    _: KW_ONLY
    n_neighbors: int = 20
    neighbors_from: str = "train"
    n_train: int | None = None
    n_iter: int = 50
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None
