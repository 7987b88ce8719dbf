"""`bitfleet.max_distortion`: how far Hamming distances are from true ones at worst, over all pairs of rows.

All pairs are looked at, in blocks that any executor works through; the extremes that decide are found by
certified screening (`bitfleet.tasks.extremes`).  A pass is cut into windows, and each is committed.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster.serial import SerialExecutor
from ..cluster.threads import one_blas_thread
from ..storage.codes import Codes, open_codes
from ..storage.places import Place, make_folder, place, temporary_place
from ..tasks.distortion import FITS, TARGETS
from ..tasks.extremes import Violators, extremes_of
from ..tasks.kernels.screened_rows import hamming_pairs, word_rows
from ..tasks.protocols import LeafPlan, RoundState
from ..tasks.random import stream
from .all_pairs import Pass, begin, block_pairs, exact_squares, pair_rows
from .distortion_inputs import PairInputs, pair_inputs
from .distortion_result import Distortion, from_extremes
from .errors import ConfigError
from .evaluate_inputs import opened
from .executors import choose
from .shared_arrays import share

if TYPE_CHECKING:
    from ..tasks.protocols import Executor
    from .arrays import Vectors


def max_distortion(
    codes: Codes | str | os.PathLike[str] | np.ndarray,
    vectors: Vectors,
    fit: str = "scale",
    *,
    target: str = "euclidean",
    n_bits: int | None = None,
    pairs: int | None = None,
    confidence: float = 0.999,
    seed: int = 0,
    block_rows: int | None = None,
    scheduler: Any = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Distortion:
    """Return δ, the least possible greatest error of distances predicted from Hamming distances.

    δ = inf_g max |g(h) - c| over all pairs of rows, c their distance and h that of their codes.  The result
    is exact and the same to the bit for every block size, number of workers and order of work.

    Parameters
    ----------
    codes : Codes, path of codes, or array of shape (n, n_bits) or (n, ceil(n_bits / 8))
        Zeros and ones, or packed bytes.
    vectors : Dataset, path, or array of shape (n, d)
        The rows that the codes stand for.
    fit : {"scale", "affine", "monotone"}
        What g may be: λh with λ ≥ 0 (the NIBH paper's δ), λh + b, or anything that does not decrease.
    target : {"euclidean", "sqeuclidean"}
        c is the distance, or its square.
    n_bits : int, optional
        Of packed codes whose last byte is padded.
    pairs : int, optional
        Look at so many pairs drawn at random instead of all.  The result then is a lower bound of δ, and
        `Distortion.coverage` says for how many of all pairs it holds.
    confidence : float, default 0.999
        Of that statement.
    seed : int
        Of what is drawn; a result over all pairs does not depend on it.
    block_rows : int, optional
        Rows of a block; the result does not depend on it.
    scheduler : str or distributed.Client, optional
        Where to compute, as in `bitfleet.train`; this process by default.
    executor : Executor, optional
        Instead of ``scheduler``: an executor that is there already.
    checkpoint : path, optional
        A folder in which the pass is committed sixteen times, so that it goes on after an interruption.

    Returns
    -------
    Distortion

    Raises
    ------
    ConfigError
        If codes and vectors do not fit each other, or there are fewer than two rows.
    DataRefused
        If vectors hold NaN or infinity.
    IdentityMismatch
        If ``checkpoint`` holds a pass over other data or codes.

    Notes
    -----
    Aghazadeh et al., *Near-isometric binary hashing for large-scale datasets*: δ = inf_{λ>0} ‖λv - c‖_∞.

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(300, 16))
    >>> found = bf.max_distortion(bf.ITQ(n_bits=32, random_state=0).fit(X).encode(X), X)
    >>> found.certified, found.n_pairs
    (True, 44850)
    >>> found.refit("affine").delta <= found.delta
    True
    """
    _check(fit, target, pairs, confidence)
    with ExitStack() as stack:
        folder = scratch_folder(codes, scheduler, checkpoint)
        scratch = stack.enter_context(temporary_place(folder))
        there = stack.enter_context(opened(executor, scheduler, scratch))
        local = isinstance(there, SerialExecutor)
        kept = None if checkpoint is None else place(checkpoint)
        with one_blas_thread():
            inputs = pair_inputs(
                codes, vectors, n_bits, kept or scratch, stored=not local or kept is not None
            )
            if pairs is not None:
                if kept is not None or not local:
                    raise ConfigError(
                        "a sample of pairs is drawn in this process: leave scheduler and checkpoint"
                    )
                return _sampled(inputs, pairs, confidence, seed, fit, target)
            task = Pass(inputs, there, block_rows or pair_rows(inputs.vectors.n_rows), kept, scratch, local)
            return from_extremes(task.run(), inputs.n_bits, inputs.vectors.n_rows, fit, target)


def violators(
    codes: Codes | str | os.PathLike[str] | np.ndarray,
    vectors: Vectors,
    scale: float,
    delta: float,
    offset: float = 0.0,
    *,
    n_bits: int | None = None,
    most: int = 1_000_000,
    block_rows: int | None = None,
    scheduler: Any = None,
    executor: Executor | None = None,
) -> dict[str, np.ndarray]:
    """Return all pairs of rows with |scale · h + offset - c| > delta, c their Euclidean distance.

    Parameters
    ----------
    codes, vectors, n_bits, block_rows, scheduler, executor
        As in `max_distortion`.
    scale, delta, offset : float
    most : int
        If there are more, it is an error.

    Returns
    -------
    dict
        ``pair`` int64 of shape (p, 2), ascending, the smaller row first; ``bits`` and ``square``, shape (p,):
        Hamming and squared Euclidean distance.
    """
    with ExitStack() as stack:
        folder = scratch_folder(codes, scheduler, None)
        scratch = stack.enter_context(temporary_place(folder))
        there = stack.enter_context(opened(executor, scheduler, scratch))
        local = isinstance(there, SerialExecutor)
        with one_blas_thread():
            inputs = pair_inputs(codes, vectors, n_bits, scratch, stored=not local)
            n_rows = inputs.vectors.n_rows
            start, reader = begin(inputs, None if local else scratch, narrow=True)
            line = scale * np.arange(inputs.n_bits + 1) + offset
            limits = {
                "low": np.where(line > delta, (line - delta) ** 2, -1.0),
                "high": np.where(line >= -delta, (line + delta) ** 2, -1.0),
                "counts": start.arrays["counts"],
                "levels": start.arrays["levels"],
            }
            state = share(limits, None if local else scratch, "limits", start.scalars)
            plan = LeafPlan(n_rows, block_rows or pair_rows(n_rows))
            return there.reduce(reader, block_pairs(plan), Violators(most), state)


def _sampled(
    inputs: PairInputs, n_sampled: int, confidence: float, seed: int, fit: str, target: str
) -> Distortion:
    n_rows = inputs.vectors.n_rows
    rng = stream(seed, "distortion.pairs")
    left = rng.integers(0, n_rows, n_sampled)
    right = rng.integers(0, n_rows - 1, n_sampled)
    right += right >= left
    pairs = np.sort(np.stack([left, right], axis=1), axis=1)
    squares = exact_squares(inputs.vectors, pairs)
    rows, places = np.unique(pairs, return_inverse=True)
    words = word_rows(inputs.packed(rows))
    bits = hamming_pairs(words, words, places.reshape(-1, 2))
    distances = np.sqrt(squares)
    moments = np.array([distances.mean(), squares.mean()])
    state = extremes_of(pairs, bits, squares, inputs.n_bits) | {"moments": moments}
    return from_extremes(
        RoundState(0, state), inputs.n_bits, n_rows, fit, target, sampled=n_sampled, confidence=confidence
    )


def _check(fit: str, target: str, pairs: int | None, confidence: float) -> None:
    for name, value, known in (("fit", fit, FITS), ("target", target, TARGETS)):
        if value not in known:
            raise ConfigError(f"expected {name} to be one of {', '.join(known)}, got {value!r}")
    if pairs is not None and (
        isinstance(pairs, bool) or not isinstance(pairs, int | np.integer) or pairs < 1
    ):
        raise ConfigError(f"expected pairs to be an integer >= 1, or None for all, got {pairs!r}")
    if not 0 < confidence < 1:
        raise ConfigError(f"expected confidence between 0 and 1, got {confidence!r}")


def scratch_folder(codes: Any, scheduler: Any, checkpoint: Any) -> Place | None:
    """Return where scratch files go so that every worker sees them; None is this machine's own place."""
    if scheduler is None or choose(scheduler).on_this_machine:
        return None
    if checkpoint is not None:
        make_folder(place(checkpoint))
        return place(checkpoint)
    if isinstance(codes, str | os.PathLike):
        codes = open_codes(codes)
    if not isinstance(codes, Codes):
        raise ConfigError(
            "workers on other machines read codes and vectors from a folder that all of them see: "
            "give checkpoint=, or codes in files"
        )
    return codes.path.parent
