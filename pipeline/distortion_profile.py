"""`bitfleet.distortion_profile`: average distortion and quantiles over all pairs, beside the maximum."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster.serial import SerialExecutor
from ..cluster.threads import one_blas_thread
from ..storage.places import temporary_place
from ..tasks.profile import (
    BINS,
    JointHistogram,
    best_scale_quantile,
    error_quantile,
    least_squares,
    mean_square_error,
)
from ..tasks.protocols import LeafPlan
from .all_pairs import Pass, begin, block_pairs, pair_rows
from .distortion import scratch_folder
from .distortion_inputs import pair_inputs
from .distortion_result import Distortion, from_extremes
from .errors import ConfigError
from .evaluate_inputs import opened
from .shared_arrays import share

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from ..storage.codes import Codes
    from ..tasks.protocols import Executor
    from .arrays import Vectors


@dataclass(frozen=True, eq=False)
class DistortionProfile:
    """How errors of distances predicted from Hamming distances are spread over all pairs.

    Attributes
    ----------
    maximum : Distortion
        The certified extremes.
    summary : mapping of str to ndarray
        ``joint`` int64 (M + 1, bins): pairs by Hamming distance and distance; ``sum``, ``square`` (M + 1,):
        sums of their distances and of their squares.
    edges : ndarray of float64, shape (bins + 1,)
        Of the bins of distances.
    """

    maximum: Distortion
    summary: Mapping[str, np.ndarray]
    edges: np.ndarray

    def mean_square(self, fit: str = "scale") -> float:
        """Return the NIBH paper's average distortion, min_g Σ (g(h) - c)² / pairs, for one kind of g."""
        return mean_square_error(self.summary, least_squares(self.summary, fit))

    def quantile(self, q: float, fit: str = "scale") -> float:
        """Return what |g(h) - c| does not exceed for a share q of the pairs, to half the width of a bin.

        For ``"scale"`` λ makes it least; for the other kinds g is that of least mean square.
        """
        if not 0 < q <= 1:
            raise ConfigError(f"expected a share q with 0 < q <= 1, got {q!r}")
        longest = float(self.edges[-1])
        if fit == "scale":
            return best_scale_quantile(self.summary, longest, q)[0]
        return error_quantile(self.summary, longest, least_squares(self.summary, fit), q)


def distortion_profile(
    codes: Codes | str | os.PathLike[str] | np.ndarray,
    vectors: Vectors,
    *,
    n_bits: int | None = None,
    block_rows: int | None = None,
    scheduler: Any = None,
    executor: Executor | None = None,
) -> DistortionProfile:
    """Return the distribution of distances at each Hamming distance, over all pairs of rows.

    Unlike `max_distortion` this computes every distance, in float64.

    Parameters
    ----------
    codes, vectors, n_bits, block_rows, scheduler, executor
        As in `max_distortion`.

    Returns
    -------
    DistortionProfile

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(300, 16))
    >>> found = bf.distortion_profile(bf.LSH(n_bits=32, random_state=0).fit(X).encode(X), X)
    >>> found.mean_square("monotone") <= found.mean_square("affine") <= found.mean_square("scale")
    True
    >>> bool(found.quantile(0.999) <= found.maximum.delta + found.edges[1])
    True
    """
    with ExitStack() as stack:
        folder = scratch_folder(codes, scheduler, None)
        scratch = stack.enter_context(temporary_place(folder))
        there = stack.enter_context(opened(executor, scheduler, scratch))
        local = isinstance(there, SerialExecutor)
        with one_blas_thread():
            inputs = pair_inputs(codes, vectors, n_bits, scratch, stored=not local)
            n_rows = inputs.vectors.n_rows
            plan = LeafPlan(n_rows, block_rows or pair_rows(n_rows))
            state = Pass(inputs, there, plan.block_rows, None, scratch, local).run()
            maximum = from_extremes(state, inputs.n_bits, n_rows, "scale", "euclidean")
            longest = float(maximum.high.max())
            _, reader = begin(inputs, None if local else scratch)
            given = share({"shift": reader.shift}, None if local else scratch, "bins", {"longest": longest})
            summary = there.reduce(reader, block_pairs(plan), JointHistogram(inputs.n_bits), given)
    return DistortionProfile(maximum, summary, np.linspace(0, longest, BINS + 1))
