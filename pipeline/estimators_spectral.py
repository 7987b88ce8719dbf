"""Estimators of dense codes by affinities: to anchors, or along single dimensions.

Each class is what the method's dataclass in ``tasks/methods`` is, with ``random_state`` in addition and
scikit-learn's interface; a test holds parameters and defaults of the two equal.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from .estimators import BinaryHasher


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
    random_state : int, RandomState or None

    Attributes
    ----------
    sigma_ : float
    certificate_, slack_ : float
        What the sketch may have lost in any direction, and rounding in addition, as shares of the sum
        of squares of all affinities.
    n_directions_ : int
        Directions with any variance; bits beyond them are mixtures.

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
    random_state: Any = None
