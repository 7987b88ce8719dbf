"""Locality-sensitive hashing: signs of random projections (Charikar, 2002).

``bit_j = [ (x - mean) · w_j >= 0 ]`` with w_j standard normal. Two rows differ in a bit with
probability θ / π, θ the angle between them as seen from the mean. Nothing is learned but the mean and,
if wanted, principal components.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..random import stream
from .base import Front, LinearMethod
from .checks import check_common

if TYPE_CHECKING:
    import numpy as np

    from ..protocols import Arrays


@dataclass(frozen=True)
class LSH(LinearMethod):
    """Signs of random projections.

    Parameters
    ----------
    n_bits : int, default 64
    n_components : int, float or None
        Principal components to project on first, or the share of variance they must explain; by default
        none (tables of the hashing papers use ``n_components=n_bits``).
    center : bool, default True
        Subtract the mean of the training rows.

    Notes
    -----
    One pass over the data, none with ``center=False`` and no components.
    """

    n_bits: int = 64
    n_components: int | float | None = None
    center: bool = True
    name: ClassVar[str] = "lsh"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_common(self)

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw the projection."""
        rng = stream(seed, "lsh.projection")
        return {"weights": rng.standard_normal((front.n_outputs, self.n_bits))}
