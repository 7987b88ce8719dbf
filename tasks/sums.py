"""Accumulators that are plain sums: what they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping


class Sums:
    """Base of accumulators whose state is arrays that add, and nothing else."""

    sequential: ClassVar[bool] = False

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Add two sums."""
        for key in left:
            left[key] += right[key]
        return left


def refuse_infinite(sums: Mapping[str, np.ndarray], *names: str) -> None:
    """Raise `ValueError` unless the named sums are finite."""
    if not all(np.isfinite(sums[name]).all() for name in names):
        raise ValueError("expected finite sums, but the vectors hold NaN, infinity or huge numbers")
