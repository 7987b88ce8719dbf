"""What methods share that learn functions of single principal components from their histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .base import Front, LinearMethod
from .checks import check_common, check_count, check_number, check_share

if TYPE_CHECKING:
    from ..curves import Grid
    from ..protocols import Arrays, DataInfo

_APART = 6.5  # widths at which an affinity is less than 10⁻⁹
AUTO = 0.2  # of the root mean squared distance of two rows


class CoordinateMethod(LinearMethod):
    """Base of methods whose bits are functions of single coordinates, with a width ``sigma``."""

    sigma: float | str
    n_bins: int
    clip: float

    def check_coordinates(self) -> None:
        """Refuse what no such method can use; `ValueError` names it."""
        check_common(self)
        check_count(self, "n_bins", 2)
        check_share(self, "clip", zero=True)
        if self.clip >= 0.5:
            raise ValueError(f"expected clip to be in [0, 0.5), got {self.clip!r}")
        if self.sigma != "auto":
            check_number(self, "sigma", above=True, optional=False)

    def check_width(self, grid: Grid, n_functions: int) -> None:
        """Refuse a width that was given and leaves nothing that tells rows apart; `ValueError` says why."""
        steps = grid.step[grid.varied]
        if self.sigma == "auto" or not len(steps):
            return
        advice = f'the widest coordinate extends over {steps.max() * grid.n_bins:g}: take sigma="auto"'
        if _APART * float(self.sigma) < steps.min():
            raise ValueError(
                f"sigma={self.sigma:g} is so small that bins have no affinity to the next ones; {advice}, or "
                "more bins"
            )
        if not n_functions:
            raise ValueError(f"sigma={self.sigma:g} is so large that all bins are alike; {advice}")

    def wanted_components(self, info: DataInfo) -> int | float:
        """Return ``min(n_bits, d)`` unless told otherwise."""
        return self.most_components(info) if self.n_components is None else self.n_components

    def most_components(self, info: DataInfo) -> int:
        """Return ``min(n_bits, d)``."""
        return min(self.n_bits, info.n_features)

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Begin with the width alone."""
        assert moments is not None
        spread = np.sqrt(2 * np.trace(moments["covariance"]))
        width = (AUTO * spread or 1.0) if self.sigma == "auto" else self.sigma
        return {"width": np.array(width, np.float64)}
