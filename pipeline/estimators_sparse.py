"""Estimators of sparse codes: few ones among many bits, the winners of a competition.

Each class is what the method's dataclass in ``tasks/methods`` is, with ``random_state`` in addition and
scikit-learn's interface; a test holds parameters and defaults of the two equal.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from .estimators import BinaryHasher


@dataclass(eq=False, repr=False)
class BOSL(BinaryHasher):
    """Binary optimal sparse lifting: codes whose overlaps follow the rows' cosines, and a map to them.

    Compares all pairs of training rows, so it takes at most 20,000 of them; anything can be encoded.

    Parameters
    ----------
    n_bits : int
        Code length D.
    n_active : int
        Ones per code, α.
    n_iter : int
        Iterations of ADMM.
    n_steps : int
        Descent steps on the relaxed codes in each.
    penalty : float
        Weight λ of the distance between codes and relaxed codes.
    n_components : int or float, optional
        PCA in front: this many components, or this share of the variance.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    Attributes
    ----------
    n_live_bits_ : int
        Bits that any training row's code used in the last round.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import BOSL
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> BOSL(n_bits=64, n_active=4, n_iter=2, random_state=0).fit(X).encode(X).shape
    (100, 8)
    """

    _method: ClassVar[str] = "bosl"
    _reported: ClassVar[dict[str, str]] = {"n_live_bits_": "live_bits"}
    n_bits: int = 1024
    _: KW_ONLY
    n_active: int = 32
    n_iter: int = 10
    n_steps: int = 10
    penalty: float = 1.0
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None


@dataclass(eq=False, repr=False)
class FruitFly(BinaryHasher):
    """Sparse random expansion and winner-take-all, after the fly's olfactory circuit.

    Parameters
    ----------
    n_bits : int
        Code length D.
    n_active : int
        Ones per code, α.
    density : float
        Share of the input features that each bit sees; of no effect on an orthogonal matrix.
    matrix : {"bernoulli", "orthogonal"}
        Whether the expansion is sparse and binary, or a random matrix with orthonormal columns.
    n_components : int or float, optional
        PCA in front: this many components, or this share of the variance.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    References
    ----------
    Dasgupta, Stevens, Navlakha, *A neural algorithm for a fundamental computing problem*, Science 358 (2017).

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import FruitFly
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> set(FruitFly(n_bits=64, n_active=4, random_state=0).fit(X).transform(X).sum(axis=1).tolist())
    {4}
    """

    _method: ClassVar[str] = "fruit_fly"
    n_bits: int = 1024
    _: KW_ONLY
    n_active: int = 32
    density: float = 0.2
    matrix: str = "bernoulli"
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None


@dataclass(eq=False, repr=False)
class BioHash(BinaryHasher):
    """Competitive Hebbian learning and winner-take-all: units learn the rows that they win.

    Parameters
    ----------
    n_bits : int
        Code length D.
    n_active : int
        Ones per code, α.
    n_epochs : int
        Passes over the data.
    learning_rate : float
        Largest change of a weight in a batch; falls linearly towards 0 over the epochs.
    batch_size : int
        Rows that learn together.
    n_components : int or float, optional
        PCA in front: this many components, or this share of the variance.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    Attributes
    ----------
    n_dead_units_ : int
        Units that won no training row in the last epoch.
    mean_length_ : float
        Mean length of the units' weights: it begins near √d and tends to 1. Where it stays far above,
        learning was stopped early: take more epochs.

    References
    ----------
    Ryali, Hopfield, Grinberg, Krotov, *Bio-inspired hashing for unsupervised similarity search*, ICML 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import BioHash
    >>> X = np.random.default_rng(0).normal(size=(200, 8))
    >>> BioHash(n_bits=64, n_active=4, n_epochs=3, random_state=0).fit(X).encode(X).shape
    (200, 8)
    """

    _method: ClassVar[str] = "biohash"
    _reported: ClassVar[dict[str, str]] = {
        "n_dead_units_": "n_dead_units",
        "mean_length_": "mean_length",
    }
    n_bits: int = 1024
    _: KW_ONLY
    n_active: int = 32
    n_epochs: int = 100
    learning_rate: float = 0.02
    batch_size: int = 100
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None


@dataclass(eq=False, repr=False)
class SphericalHash(BinaryHasher):
    """Spherical k-means with a centre for each bit, and winner-take-all among the centres.

    The best of its kind for very sparse codes, n_active up to 32 of 1024.

    Parameters
    ----------
    n_bits : int
        Code length D, the number of centres.
    n_active : int
        Ones per code, α.
    n_epochs : int
        Passes over the data.
    dead_units : {"zero", "keep", "reseed"}
        What becomes of a centre without rows: the zero vector (as in the paper's code), what it was, or
        the direction of a random training row.
    assign : {"wta", "greedy"}
        How rows are encoded: winner-take-all, or greedy pursuit over the centres.
    beta : float, optional
        As in `PursuitHash`, of "greedy" alone.
    n_components : int or float, optional
        PCA in front: this many components, or this share of the variance.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    Attributes
    ----------
    n_dead_units_ : int
        Centres that no training row was nearest to in the last pass.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import SphericalHash
    >>> X = np.random.default_rng(0).normal(size=(200, 8))
    >>> SphericalHash(n_bits=64, n_active=4, random_state=0).fit(X).encode(X).shape
    (200, 8)
    """

    _method: ClassVar[str] = "spherical_hash"
    _reported: ClassVar[dict[str, str]] = {"n_dead_units_": "n_dead_units"}
    n_bits: int = 1024
    _: KW_ONLY
    n_active: int = 32
    n_epochs: int = 50
    dead_units: str = "zero"
    assign: str = "wta"
    beta: float | None = None
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None


@dataclass(eq=False, repr=False)
class POSH(BinaryHasher):
    """Sparse codes by a projection with orthonormal columns, learned by alternating winner-take-all
    and an orthogonal Procrustes step.

    Parameters
    ----------
    n_bits : int
        Code length D.
    n_active : int
        Ones per code, α.
    schedule : {"auto", "reset", "union", "paper"}
        How often the projection moves: once a pass, once a seeded group of blocks, or the paper's
        Algorithm 1 to the letter.
    n_epochs : int, optional
        Passes over the data; the schedule's own number by default.
    batch_size : int, optional
        Rows per step; the schedule's own number by default.
    forget : float
        What of the earlier sums each step of the schedule ``union`` forgets.
    assign : {"wta", "greedy"}
        How rows are encoded: winner-take-all, or greedy pursuit over the projection's rows, of length one.
    beta : float, optional
        As in `PursuitHash`, of "greedy" alone.
    n_components : int or float, optional
        PCA in front: this many components, or this share of the variance.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    Attributes
    ----------
    n_live_bits_ : int
        Bits that any training row switched on in the last round.
    effective_bits_ : float
        ``(Σ u)² / Σ u²`` of the bits' uses u in that round: so many evenly used bits.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import POSH
    >>> X = np.random.default_rng(0).normal(size=(200, 8))
    >>> POSH(n_bits=64, n_active=4, random_state=0).fit(X).encode(X).shape
    (200, 8)
    """

    _method: ClassVar[str] = "posh"
    _reported: ClassVar[dict[str, str]] = {"n_live_bits_": "live_bits", "effective_bits_": "effective_bits"}
    n_bits: int = 1024
    _: KW_ONLY
    n_active: int = 32
    schedule: str = "auto"
    n_epochs: int | None = None
    batch_size: int | None = None
    forget: float = 0.5
    assign: str = "wta"
    beta: float | None = None
    n_components: int | float | None = None
    center: bool = True
    random_state: Any = None
