"""Estimators of dense codes by affinities: to anchors, or along single dimensions.

Each class is what the method's dataclass in ``tasks/methods`` is, with ``random_state`` in addition and
scikit-learn's interface; a test holds parameters and defaults of the two equal.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..tasks.methods.ssbc import affinities_of
from ..tasks.online import Monitor
from ..tasks.protocols import DataInfo
from .arrays import load, unwrap
from .config import build_method
from .estimators import BinaryHasher, seed_of
from .model import Model

if TYPE_CHECKING:
    import numpy as np

    from .arrays import Vectors


@dataclass(eq=False, repr=False)
class SSBC(BinaryHasher):
    """Streaming spectral binary coding: signs of the leading directions of affinities to anchors.

    A row's affinities are ``exp(-‖x - a‖² / σ²)`` to anchors a, rows drawn from the data; all rows' are
    added up in one pass, exactly or by Frequent Directions.

    Parameters
    ----------
    n_bits : int
        Code length b.
    n_anchors : int
        Rows drawn as anchors.
    sketch_size : int, optional
        Rows l of the sketch, twice ``n_bits`` by default; up to 8 l anchors the sums are exact.
    sigma : float or "auto"
        "auto": 1.4 times the mean distance of a row to its nearest anchor.
    center : bool
        Subtract the mean affinities; without it the first bit is the same for all rows.
    sketch_rows : {"all", "train"}
        Learn from all rows, or from the anchors alone.
    drop_first : int
        Leading directions left out.
    sketch_dtype : {"float64", "float32"}
        Precision of the sketch.
    mode : {"streaming", "online"}
        Directions as they are at the end, or aligned on the way and frozen, so that codes made early stay
        comparable: see `partial_fit_encode`.
    random_state : int, RandomState or None

    Attributes
    ----------
    sigma_ : float
    certificate_, slack_ : float
        What the sketch may have lost in any direction, and rounding in addition, as shares of the sum
        of squares of all affinities.
    n_directions_ : int
        Directions with any variance; bits beyond them are mixtures.
    n_frozen_ : int
        mode "online": after how many rows codes became final, -1 if they have not.
    monitor_ : Monitor
        mode "online": what the stream says of the codes.

    References
    ----------
    Ghashami, Abdullah, *Binary coding in stream* (2015).

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import SSBC
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> SSBC(n_bits=16, random_state=0).fit(X).encode(X).shape
    (100, 2)
    """

    _method: ClassVar[str] = "ssbc"
    _reported: ClassVar[dict[str, str]] = {
        "sigma_": "sigma",
        "certificate_": "certificate",
        "slack_": "slack",
        "n_directions_": "n_directions",
    }
    n_bits: int = 64
    _: KW_ONLY
    n_anchors: int = 1000
    sketch_size: int | None = None
    sigma: float | str = "auto"
    center: bool = True
    sketch_rows: str = "all"
    drop_first: int = 0
    sketch_dtype: str = "float64"
    mode: str = "streaming"
    random_state: Any = None

    def partial_fit(self, X: Vectors, y: Any = None) -> SSBC:
        """Learn from more rows, in addition to all before.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows of the first call, if `fit` has not been called, are also those from which anchors,
            width and mean are taken: give some thousands.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the rows hold NaN or infinity or have another width.
        """
        rows, method, state = self._more(X)
        if self.mode == "online":
            self._coder.push(rows)
            return self._became(method, method.coded(state, self._coder, state.round + 1))
        sketch = method.sketch(state)
        for _, tile in affinities_of(state).tiles(rows, rows.dtype):
            sketch.partial_fit(tile)
        return self._became(method, method.finished(state, sketch, state.round + 1))

    def partial_fit_encode(self, X: Vectors) -> tuple[np.ndarray, np.ndarray]:
        """Code rows one after the other, each before the next is seen, and learn from them.

        Parameters
        ----------
        X : like in `partial_fit`

        Returns
        -------
        codes : ndarray of uint8, shape (n, ceil(n_bits / 8))
        versions : ndarray of int32, shape (n,)
            Which projection each code is of.  The last ones are final once ``n_frozen_ >= 0``; code the rows
            before, ``n_frozen_`` of them, once more with `encode`.

        Raises
        ------
        ValueError
            As `partial_fit`, or with mode "streaming", whose codes are not comparable before the end.
        """
        if self.mode != "online":
            raise ValueError('expected mode="online": codes of a growing sketch are not comparable otherwise')
        rows, method, state = self._more(X)
        found = self._coder.encode_next(rows)
        self._became(method, method.coded(state, self._coder, state.round + 1))
        return found

    def rebase(self) -> SSBC:
        """Begin a new version of codes with the directions that the sketch has now (mode "online").

        For when ``monitor_.rebase_advised``.  Codes of the versions before are not comparable with those to
        come: make them again with `encode`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the mode is not "online", or nothing has been learned yet.
        """
        if self.mode != "online" or not hasattr(self, "model_"):
            raise ValueError('expected mode="online" and some rows learned from: there is nothing to rebase')
        method: Any = self.model_.method
        if not hasattr(self, "_coder"):
            self._coder = method.coder(self.model_.state)
        self._coder.rebase()
        state = self.model_.state
        return self._became(method, method.coded(state, self._coder, state.round + 1))

    def fit(self, X: Vectors, y: Any = None, **options: Any) -> SSBC:
        """Learn from the rows of ``X``; see `BinaryHasher.fit` for the options."""
        self.__dict__.pop("_coder", None)
        super().fit(X, y, **options)
        return self._report_coder()

    def _more(self, X: Vectors) -> tuple[np.ndarray, Any, Any]:
        """Return rows, checked, method and state; the first rows of all say where the anchors are."""
        if self.sketch_rows != "all":
            raise ValueError('expected sketch_rows="all": with "train" more rows teach nothing')
        first = not hasattr(self, "model_")
        rows = load(unwrap(self._checked(X, reset=first)))
        if first:
            params = self.get_params(deep=False)
            self.seed_ = seed_of(params.pop("random_state"))
            method: Any = build_method(self._method, params)
            state = method.begun(rows, self.seed_)
        else:
            method, state = self.model_.method, self.model_.state
        if self.mode == "online" and not hasattr(self, "_coder"):
            self._coder = method.coder(state)
        return rows, method, state

    def _became(self, method: Any, state: Any) -> SSBC:
        """Take over what was learned."""
        info = DataInfo(state.scalars["n_rows"], state.arrays["anchors"].shape[1], state.scalars["dtype"])
        self.model_ = Model(method, state, info)
        self.mean_ = state.arrays["origin"]
        for attribute, scalar in self._reported.items():
            setattr(self, attribute, state.scalars[scalar])
        self._n_features_out = self.n_bits
        return self._report_coder()

    def _report_coder(self) -> SSBC:
        if self.mode == "online":
            scalars, prefix = self.model_.state.scalars, "monitor_"
            self.n_frozen_ = scalars["n_frozen"]
            values: Any = {k.removeprefix(prefix): v for k, v in scalars.items() if k.startswith(prefix)}
            self.monitor_ = Monitor(**values)
        return self


@dataclass(eq=False, repr=False)
class Nystrom(BinaryHasher):
    """Nyström codes: principal components of a Gaussian kernel's features, rotated as by ITQ.

    Features come from affinities to sampled rows (columns of the kernel matrix), ``(w - μ) K^(-1/2)``.

    Parameters
    ----------
    n_bits : int
        Code length b.
    n_anchors : int
        Columns sampled.
    sketch_size : int, optional
        By default all columns: the sum over the rows is exact.
    sigma : float or "auto"
        "auto": 4 times the mean distance of a row to its nearest anchor.
    center : bool
        Subtract the mean affinities.
    sketch_rows : {"all", "train"}
        Take components of all rows, or of the sampled ones.
    drop_first : int
        Leading components left out.
    sketch_dtype : {"float64", "float32"}
    n_train : int
        Rows, drawn by the seed, that the rotation is learned from.
    n_iter : int
        Rotations learned.
    random_state : int, RandomState or None

    Attributes
    ----------
    sigma_ : float
    n_directions_ : int
        Components with any variance.

    References
    ----------
    Drineas, Mahoney, *On the Nyström method for approximating a Gram matrix*, JMLR 6 (2005).

    Examples
    --------
    >>> import numpy as np
    >>> from bitfleet import Nystrom
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> Nystrom(n_bits=16, n_anchors=50, n_iter=5, random_state=0).fit(X).encode(X).shape
    (100, 2)
    """

    _method: ClassVar[str] = "nystrom"
    _reported: ClassVar[dict[str, str]] = {"sigma_": "sigma", "n_directions_": "n_directions"}
    n_bits: int = 64
    _: KW_ONLY
    n_anchors: int = 1000
    sketch_size: int | None = None
    sigma: float | str = "auto"
    center: bool = True
    sketch_rows: str = "all"
    drop_first: int = 0
    sketch_dtype: str = "float64"
    n_train: int = 10_000
    n_iter: int = 50
    random_state: Any = None
