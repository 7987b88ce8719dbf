"""Estimators of near-isometric codes: Hamming distances that follow distances of vectors.

Each class is what the method's dataclass in ``tasks/methods`` is, with ``random_state`` in addition and
scikit-learn's interface; a test holds parameters and defaults of the two equal.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .estimators import BinaryHasher

if TYPE_CHECKING:
    import numpy as np


@dataclass(eq=False, repr=False)
class NIBH(BinaryHasher):
    """Near-isometric binary hashing: Hamming distances that follow the distances of the vectors.

    Parameters
    ----------
    n_bits : int
        Code length b.
    preset : {"paper", "isometric", "calibrated"}
        "paper": the least ``max |λ h - ‖x - x'‖|`` over all pairs.  "calibrated", recommended for
        retrieval: the least ``Σ |g(h) - ‖x - x'‖|^p`` with a nondecreasing g that is learned too.
        "isometric": between the two.
    solver : {"smooth", "admm"}
        "admm" is the paper's, for at most ``batch_size`` points.
    target : {"euclidean", "sqeuclidean"}
        Which distance h follows.
    slope : float, optional
        Of the sigmoids that stand for signs in training.
    p : int, optional
        Even power; None: 8, or the maximum with "paper".
    w : float, optional
        Share of squared error through the origin in the calibrated presets; None: ¼, or ½ with "isometric".
    n_iter, n_steps : int
        Rounds, and steps in each.
    batch_size : int
        Points whose pairs make one step.
    n_train : int, optional
        Learn from so many rows, drawn by the seed; None: 10,000.
    n_components : int or float, optional
        Principal components to work in; None: 128 or n_bits, whatever is more, at most d.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    Attributes
    ----------
    calibration_ : ndarray of float64, shape (n_bits + 1,)
        g(h): the distance to expect between two vectors whose codes differ in h bits.
    distortion_ : float
        δ over the training points.

    References
    ----------
    Aghazadeh, Lan, Shrivastava, Baraniuk, *Near-isometric binary hashing for large-scale datasets*, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import NIBH
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> est = NIBH(n_bits=16, random_state=0).fit(X)
    >>> est.encode(X).shape, est.calibration_.shape
    ((100, 2), (17,))
    """

    _method: ClassVar[str] = "nibh"
    _reported: ClassVar[dict[str, str]] = {"distortion_": "distortion"}
    n_bits: int = 64
    _: KW_ONLY
    preset: str = "paper"
    solver: str = "smooth"
    target: str = "euclidean"
    slope: float | None = None
    p: int | None = None
    w: float | None = None
    n_iter: int = 10
    n_steps: int | None = None
    batch_size: int = 1000
    n_train: int | None = None
    center: bool = True
    n_components: int | float | None = None
    random_state: Any = None

    @property
    def calibration_(self) -> np.ndarray:
        """Return g(h) for h = 0 … n_bits."""
        table: np.ndarray = self.model_.state.arrays["calibration"]
        return table


@dataclass(eq=False, repr=False)
class NIBHCG(BinaryHasher):
    """Near-isometric hashing by column generation: all pairs are searched, few are solved for.

    Parameters
    ----------
    n_bits : int
        Code length b.
    solver : {"smooth", "admm"}
    slope : float
        Of the sigmoids that stand for signs in training.
    n_iter, n_steps : int
        Stages, each after a search of all pairs, and steps in each.
    violators : {"soft", "hard"}
        Whose residuals say which pairs bind: those of the sigmoids, or of the signs (as in the paper).
    threshold : float
        Share of the largest residual above which a pair is a candidate, and stays active.
    max_age : int
        Stages below the threshold after which a pair is dropped.
    max_secants : int, optional
        Active pairs at most; None: a quarter of all, at most 10,000.
    start_share : float
        How many pairs, as a share of max_secants, are drawn at random at the beginning.
    fix_scale : bool
        Keep λ after the first stage, as the paper does.
    n_warm : int
        Steps on batches of points, as `NIBH` makes them, before the first search.
    n_polish, n_moves : int
        Rounds of discrete polish that follow, and moves tried in each: lower δ of the training rows, not of
        others.
    n_components : int or float, optional
        Principal components to work in; None: 128 or n_bits, whatever is more, at most d.
    center : bool
        Subtract the mean.
    random_state : int, RandomState or None

    Attributes
    ----------
    calibration_ : ndarray of float64, shape (n_bits + 1,)
        g(h): the distance to expect between two vectors whose codes differ in h bits.
    distortion_ : float
        δ over all pairs of training rows.

    References
    ----------
    Aghazadeh, Lan, Shrivastava, Baraniuk, *Near-isometric binary hashing for large-scale datasets*, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import NIBHCG
    >>> X = np.random.default_rng(0).normal(size=(60, 8))
    >>> NIBHCG(n_bits=16, n_iter=10, random_state=0).fit(X).encode(X).shape
    (60, 2)
    """

    _method: ClassVar[str] = "nibh_cg"
    _reported: ClassVar[dict[str, str]] = {"distortion_": "distortion"}
    n_bits: int = 64
    _: KW_ONLY
    solver: str = "smooth"
    slope: float = 8.0
    n_iter: int = 120
    n_steps: int = 5
    violators: str = "soft"
    threshold: float = 0.6
    max_age: int = 3
    max_secants: int | None = None
    start_share: float = 0.2
    fix_scale: bool = False
    n_warm: int = 0
    n_polish: int = 0
    n_moves: int = 500
    center: bool = True
    n_components: int | float | None = None
    random_state: Any = None

    @property
    def calibration_(self) -> np.ndarray:
        """Return g(h) for h = 0 … n_bits."""
        table: np.ndarray = self.model_.state.arrays["calibration"]
        return table
