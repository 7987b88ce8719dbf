"""Estimators of our own sparse codes: bits chosen one by one, each knowing what the others have said.

Each class is what the method's dataclass in ``tasks/methods`` is, with ``random_state`` in addition and
scikit-learn's interface; a test holds parameters and defaults of the two equal.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from .estimators import BinaryHasher


@dataclass(eq=False, repr=False)
class PursuitHash(BinaryHasher):
    """Sparse codes by greedy pursuit over a balanced dictionary; ours, not a published method.

    Each bit that is switched on takes what it explains from the others, so the next one says something new:
    all bits are used, and true neighbours are found far better than by winner-take-all.

    Parameters
    ----------
    n_bits : int
        Code length D.
    n_active : int
        Ones per code, α.
    beta : float, optional
        How much of what it explains a bit takes from the others: 0 is winner-take-all, less favours labels,
        more true neighbours; by default ``(n_active / 32)^0.45``, at most 1.8.
    n_rounds : int, optional
        In how many rounds bits are switched on; one by one by default.
    dictionary : {"kmeans", "rows"}
        Balanced spherical k-means, or training rows drawn at random.
    n_epochs : int
        Passes over the data of "kmeans".
    n_refine : int, optional
        Passes after that which move atoms towards what codes leave unexplained; by default one of "kmeans"
        with at most ``n_bits / 16`` ones, else none.
    n_balance : int
        Passes after that which even out how often bits are used.
    n_components : int or float, optional
        PCA in front: this many components, or this share of the variance.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    Attributes
    ----------
    effective_atoms_ : float
        Of "kmeans": ``(Σ u)² / Σ u²`` of how many rows each atom won in the last step: so many evenly
        used atoms.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import PursuitHash
    >>> X = np.random.default_rng(0).normal(size=(200, 8))
    >>> PursuitHash(n_bits=64, n_active=4, random_state=0).fit(X).encode(X).shape
    (200, 8)
    """

    _method: ClassVar[str] = "pursuit_hash"
    _reported: ClassVar[dict[str, str]] = {"effective_atoms_": "effective_atoms"}
    n_bits: int = 1024
    _: KW_ONLY
    n_active: int = 32
    beta: float | None = None
    n_rounds: int | None = None
    dictionary: str = "kmeans"
    n_epochs: int = 5
    n_refine: int | None = None
    n_balance: int = 0
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None


@dataclass(eq=False, repr=False)
class SparseCoding(BinaryHasher):
    """Sets of atoms whose sum is the row's direction: fewest bytes for real queries; ours.

    For `bitfleet.ActiveIndex`; by Hamming distance its codes are worse than those of `PursuitHash`.

    Parameters
    ----------
    n_bits : int
        Number of atoms.
    n_active : int
        Ones per code.  Of 1,024 atoms 18 fit into 16 bytes, 43 into 32, 75 into 48, 114 into 64.
    n_iter : int
        Passes over the data.
    n_exchanges : int
        How often each atom of a code may give way to a better one.
    n_components : int or float, optional
        PCA in front: this many components, or this share of the variance.
    center : bool
        Subtract the mean; False for neighbours by cosine.
    random_state : int, RandomState or None

    Attributes
    ----------
    objective_ : float
        Mean squared error of rows of length one in the last pass.

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(400, 16))
    >>> coder = bf.SparseCoding(n_bits=64, n_active=8, random_state=0).fit(X)
    >>> distances, ids = bf.ActiveIndex(coder).add(X).search(X[:3], k=5)
    """

    _method: ClassVar[str] = "sparse_coding"
    _reported: ClassVar[dict[str, str]] = {"objective_": "objective"}
    n_bits: int = 1024
    _: KW_ONLY
    n_active: int = 43
    n_iter: int = 5
    n_exchanges: int = 1
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None
