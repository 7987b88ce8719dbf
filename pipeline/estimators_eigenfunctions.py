"""Estimators of codes by eigenfunctions of single coordinates, here principal components.

Each class is what the method's dataclass in ``tasks/methods`` is, with ``random_state`` in addition and
scikit-learn's interface.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sklearn.utils.validation import check_consistent_length

from .arrays import is_dataset, is_lazy
from .estimators import BinaryHasher
from .labelled import whole_numbers

if TYPE_CHECKING:
    import os

    from .arrays import Vectors


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


@dataclass(eq=False, repr=False)
class EigenfunctionSSH(BinaryHasher):
    """Semi-supervised codes: signs of functions that agree with labels and are smooth where rows are dense.

    The functions are mixtures of numerical eigenfunctions of single principal components; each takes half of
    the classes for 1 and half for -1.

    Parameters
    ----------
    n_bits : int
        Code length b.
    n_functions : int, optional
        Eigenfunctions in the mixtures, ``2 * n_bits`` by default.
    n_label_bits : int, optional
        Bits of label functions at most, ``n_bits`` by default; the others are signs of eigenfunctions.
    sigma : float or "auto"
        Width of the graph's affinity; "auto": 0.2 times the root mean squared distance of two rows.
    weight : float
        What the label of a row weighs against smoothness.
    n_bins : int
        Bins of a coordinate's histogram.
    smoothing : float
        Added to the share of rows in every bin.
    clip : float
        Coordinates beyond the quantiles of this share and of one minus it are taken as these.
    n_components : int or float, optional
        Principal components in front, min(n_bits, d) by default.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : ndarray of int64
    sigma_ : float
    n_label_bits_, n_functions_, n_labelled_ : int

    References
    ----------
    Fergus, Weiss, Torralba, *Semi-supervised learning in gigantic image collections*, NIPS 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import EigenfunctionSSH
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(300) % 3
    >>> X = rng.normal(size=(3, 8))[y] * 3 + rng.normal(size=(300, 8))
    >>> y[30:] = -1  # no label
    >>> EigenfunctionSSH(n_bits=16, random_state=0).fit(X, y).encode(X).shape
    (300, 2)
    """

    _method: ClassVar[str] = "eigenfunction_ssh"
    _reported: ClassVar[dict[str, str]] = {
        "sigma_": "sigma",
        "n_label_bits_": "n_label_bits",
        "n_functions_": "n_functions",
        "n_labelled_": "n_labelled",
    }
    n_bits: int = 64
    _: KW_ONLY
    n_functions: int | None = None
    n_label_bits: int | None = None
    sigma: float | str = "auto"
    weight: float = 1000.0
    n_bins: int = 50
    smoothing: float = 0.1
    clip: float = 0.025
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None

    def fit(
        self,
        X: Vectors,
        y: Any = None,
        *,
        scheduler: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        preprocess_on: Vectors | None = None,
    ) -> EigenfunctionSSH:
        """Learn from the rows of ``X`` and the labels of some.

        Parameters
        ----------
        X, scheduler, checkpoint, preprocess_on
            As of the other estimators.
        y : array of whole numbers, shape (n,)
            Classes, -1 for rows without a label.  None only for a data set, which brings its own.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there are no labels, or as for the other estimators.
        """
        options = {"scheduler": scheduler, "checkpoint": checkpoint, "preprocess_on": preprocess_on}
        super().fit(X, y, **options)  # type: ignore[arg-type]
        self.classes_ = self.model_.state.arrays["classes"]
        return self

    def _with_labels(self, X: Vectors, y: Any) -> Any:
        if is_dataset(X):
            return X if y is None else (X, y)  # refused where labels are read
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give a label for "
                "each row, -1 where there is none"
            )
        labels = whole_numbers(y)
        if not is_lazy(X):
            check_consistent_length(X, labels)
        return X, labels.reshape(len(labels))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
