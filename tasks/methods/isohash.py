"""Isotropic hashing (Kong and Li, 2012): rotate principal components until all have the same variance.

With Λ the components' variances (k of them) a rotation Q is sought such that all diagonal entries of ``Qᵀ Λ
Q`` are their mean a; then no bit has to carry more than another. Such rotations exist for any Λ (Horn,
1954). Lift and projection alternates between the matrices that have Λ as spectrum and those that have a on
their diagonal::

    T = Z with diagonal a,     Z = V Λ Vᵀ with the eigenvectors V of T, values in the order of Λ

and ends with ``Q = Vᵀ``. Nothing is learned beyond the covariance, so one pass over the data is all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.linalg

from ..procrustes import random_orthonormal
from ..random import stream
from .base import Front, LinearMethod
from .checks import check_common, check_count

if TYPE_CHECKING:
    from ..protocols import Arrays, DataInfo

_CLOSE = 1e-12  # of the largest variance: the diagonal is isotropic


@dataclass(frozen=True)
class IsoHash(LinearMethod):
    """Signs of principal components rotated to equal variance, by lift and projection.

    Parameters
    ----------
    n_bits : int, default 64
    n_iter : int, default 300
        Alternations at most; they end earlier once all variances are equal.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components, or the share of variance they must explain; at most, and by default,
        ``min(n_bits, d)``.

    Notes
    -----
    With more bits than components the rotated components are mixed once more, at random.
    """

    n_bits: int = 64
    n_iter: int = 300
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "isohash"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_common(self)
        check_count(self, "n_iter")

    def wanted_components(self, info: DataInfo) -> int | float:
        """Return ``min(n_bits, d)`` unless told otherwise."""
        return self.most_components(info) if self.n_components is None else self.n_components

    def most_components(self, info: DataInfo) -> int:
        """Return ``min(n_bits, d)``: a rotation cannot make fewer bits than components."""
        return min(self.n_bits, info.n_features)

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Find the rotation."""
        assert front.components is not None
        assert moments is not None
        moment = moments["covariance"]
        if not self.center:
            moment = moment + np.outer(moments["mean"], moments["mean"])
        variances = np.einsum("ij,ij->j", front.components, moment @ front.components)
        rng = stream(seed, "isohash.rotation")
        start = random_orthonormal(rng, len(variances), len(variances))
        weights = isotropic_rotation(np.sort(variances)[::-1], start, self.n_iter)
        if self.n_bits > len(variances):
            weights = weights @ random_orthonormal(rng, len(variances), self.n_bits)
        return {"weights": weights}


def isotropic_rotation(variances: np.ndarray, start: np.ndarray, n_iter: int) -> np.ndarray:
    """Return Q with ``Qᵀ diag(variances) Q`` of constant diagonal, as nearly as ``n_iter`` alternations get.

    Parameters
    ----------
    variances : ndarray of float64, shape (k,)
        Falling.
    start : ndarray of float64, shape (k, k)
        A rotation to begin with.
    n_iter : int

    Returns
    -------
    ndarray of float64, shape (k, k)
        Orthogonal.
    """
    largest = float(np.abs(variances).max(initial=0.0))
    if largest == 0:
        return start
    spectrum, rotation = variances / largest, start
    mean = spectrum.mean()
    for _ in range(n_iter):
        lifted = (rotation.T * spectrum) @ rotation
        if np.abs(np.diagonal(lifted) - mean).max() <= _CLOSE:
            break
        np.fill_diagonal(lifted, mean)
        vectors = scipy.linalg.eigh(lifted, driver="evr", check_finite=False)[1]
        rotation = np.ascontiguousarray(vectors[:, ::-1].T)
    return rotation
