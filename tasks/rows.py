"""What every encoder asks of the rows that it is given."""

from __future__ import annotations

import numpy as np


def checked_rows(vectors: np.ndarray, n_features: int) -> np.ndarray:
    """Return vectors as an array.

    Raises
    ------
    ValueError
        If they are no real numbers, or not rows of ``n_features``.
    """
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or vectors.shape[1] != n_features:
        alone = "; a single vector is x[None, :]" if vectors.ndim == 1 else ""
        raise ValueError(f"expected vectors of shape (m, {n_features}), got {vectors.shape}{alone}")
    if vectors.dtype.kind not in "buif":
        raise ValueError(f"expected real numbers, got dtype {vectors.dtype}")
    return vectors
