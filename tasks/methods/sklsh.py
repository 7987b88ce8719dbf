"""Locality-sensitive codes from shift-invariant kernels (Raginsky and Lazebnik, 2009).

With w normal of variance γ², b uniform on [0, 2π) and t uniform on [-1, 1] a bit is

    cos(w · x + b) + t >= 0,

and the share of bits in which two codes differ tends to a function of the kernel ``K(s) = exp(-γ² s² / 2)``
of the distance s alone::

    8/π² Σ_{m >= 1} (1 - K(m s)) / (4 m² - 1)

Nothing is learned; γ is by default 1 over the root mean square distance of two rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..arc_encoder import ArcEncoder
from ..kernels.exact import fixed_product
from ..random import stream
from .base import Front, LinearMethod, front_of
from .checks import check_common, check_finished, check_number

if TYPE_CHECKING:
    from ..protocols import Arrays, DataInfo, RoundState


@dataclass(frozen=True)
class SKLSH(LinearMethod):
    """Random Fourier features, cut at random thresholds.

    Parameters
    ----------
    n_bits : int, default 64
    gamma : float, optional
        γ.
    center : bool, default True
        Subtract the mean of the training rows; codes of the same seed are then others, their distances alike.
    n_components : int, float or None
        Principal components to work in, or the share of variance they must explain; by default all features.
    """

    n_bits: int = 64
    gamma: float | None = None
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "sklsh"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_common(self)
        check_number(self, "gamma", above=True)

    def needs_covariance(self, info: DataInfo) -> bool:
        """Say yes where γ or components come from it."""
        return self.gamma is None or self.n_components is not None

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw w, b and t."""
        gamma = self.gamma
        if gamma is None:
            assert moments is not None
            square = 2 * float(np.trace(moments["covariance"]))
            gamma = 1 / np.sqrt(square) if square > 0 else 1.0
        rng = stream(seed, "sklsh.features")
        weights = rng.standard_normal((front.n_outputs, self.n_bits)) * (gamma / (2 * np.pi))
        offset, threshold = rng.random(self.n_bits), rng.uniform(-1, 1, self.n_bits)
        return {"weights": weights, "offset": offset, "width": np.arccos(-threshold) / (2 * np.pi)}

    def encoder(self, state: RoundState) -> ArcEncoder:  # type: ignore[override]
        """Return the encoder of a finished state."""
        check_finished(self, state)
        front, arrays = front_of(state), state.arrays
        projection = arrays["weights"]
        if front.components is not None:
            projection = fixed_product(np.ascontiguousarray(front.components), projection)
        return ArcEncoder(front.mean, projection, arrays["offset"], arrays["width"])
