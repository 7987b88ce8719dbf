"""Plain sign quantisation, what vector databases call binary quantisation: a bit says where x_j >= 0.

Nothing is learned and by default nothing is read, so that codes of any other program that thresholds
embeddings at zero can be compared with ours. ``center=True`` thresholds at the mean instead, and
``n_components`` takes the signs of principal components (PCA hashing).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..kernels.pack import pack_bits, packed_width
from ..rows import checked_rows
from .base import LinearMethod, data_info
from .checks import check_common

if TYPE_CHECKING:
    from ..protocols import Arrays, DataInfo, Encoder, RoundState
    from .base import Front

_TILE_ROWS = 512


@dataclass(frozen=True)
class Sign(LinearMethod):
    """Signs of the features as they are.

    Parameters
    ----------
    n_bits : int, optional
        None: a bit for each feature (or component).  Fewer: of the first so many features alone, as
        embeddings that are trained to be cut off (Matryoshka) allow; there cannot be more.
    center : bool, default False
        Subtract the mean of the training rows.
    n_components : int, float or None
        Take the signs of so many principal components instead, or of those that explain this share of
        the variance.

    Notes
    -----
    Reads no data with the default parameters, else makes one pass.
    """

    n_bits: int | None = None  # type: ignore[assignment]
    center: bool = False
    n_components: int | float | None = None
    name: ClassVar[str] = "sign"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_common(self, optional_bits=True)

    def check_data(self, info: DataInfo) -> None:
        """Refuse more bits than there are features or components to take the sign of."""
        self._check_bits(self.n_components if isinstance(self.n_components, int) else info.n_features)

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Learn nothing."""
        self._check_bits(front.n_outputs)
        return {}

    def weights(self, state: RoundState) -> np.ndarray:
        """Return the first ``n_bits`` columns of the identity."""
        components = state.arrays.get("components")
        width = data_info(state).n_features if components is None else components.shape[1]
        return np.eye(width, width if self.n_bits is None else self.n_bits)

    def encoder(self, state: RoundState) -> Encoder:
        """Return the encoder of a finished state."""
        if self.done(state) and "components" not in state.arrays:
            return SignEncoder(state.arrays["mean"], self.n_bits)
        return super().encoder(state)

    def _check_bits(self, most: int) -> None:
        if self.n_bits is not None and self.n_bits > most:
            raise ValueError(
                f"sign quantisation makes at most a bit of each of the {most} features or components, "
                f"got n_bits={self.n_bits}; take fewer, or lsh or itq, which make more"
            )


class SignEncoder:
    """Encode rows by the signs of ``x - mean`` in float64, feature by feature.

    Parameters
    ----------
    mean : ndarray of float64, shape (d,)
    n_bits : int, optional
        Of the first so many features; None: of all.
    """

    def __init__(self, mean: np.ndarray, n_bits: int | None = None) -> None:
        self.mean = np.asarray(mean, np.float64)
        self.n_features = len(self.mean)
        self.n_active: int | None = None
        self.n_bits = self.n_features if n_bits is None else n_bits

    @property
    def projection(self) -> np.ndarray:
        """The linear map, shape (d, n_bits), whose signs the bits are: columns of the identity."""
        return np.eye(self.n_features, self.n_bits)

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Return packed codes, uint8, shape (m, ceil(n_bits / 8)), least significant bit first.

        Raises
        ------
        ValueError
            If the shape is wrong or a row holds NaN or infinity.
        """
        vectors = checked_rows(vectors, self.n_features)
        packed = np.empty((len(vectors), packed_width(self.n_bits)), np.uint8)
        for start in range(0, len(vectors), _TILE_ROWS):
            rows = vectors[start : start + _TILE_ROWS].astype(np.float64)
            finite = np.isfinite(rows).all(axis=1)
            if not finite.all():
                row = start + int(np.argmin(finite))
                raise ValueError(f"expected finite vectors, but row {row} holds NaN or infinity")
            packed[start : start + len(rows)] = pack_bits((rows >= self.mean)[:, : self.n_bits])
        return packed
