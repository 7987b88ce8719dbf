"""Candidate refinement: decoders fitted to a model's codes, and what an evaluation wants of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..cluster.serial import SerialExecutor
from ..cluster.threads import one_blas_thread
from ..storage.errors import DataRefused, StorageError
from ..storage.places import temporary_place
from ..tasks.decoder import DecoderSums, fit, space_of
from ..tasks.leaves import base_rows
from ..tasks.protocols import LeafPlan
from ..tasks.refine import thresholding_of
from .errors import ConfigError
from .evaluate_inputs import folder_for, opened, rows_of
from .model import Model, ModelLike, as_model

if TYPE_CHECKING:
    from ..tasks.protocols import Executor
    from .arrays import Vectors


def fit_decoder(
    model: ModelLike,
    data: Vectors,
    *,
    ridge: float = 1.0,
    scheduler: Any = None,
    executor: Executor | None = None,
) -> Model:
    """Return the model with a linear decoder of its codes, fitted in one pass over ``data``.

    The decoder makes `evaluate` with ``refine=`` possible, and ``model.decode(codes)``.  It is saved with the
    model; codes made before it was fitted remain the model's.

    Parameters
    ----------
    model : Model, path, or fitted estimator
    data : Dataset, path, or array of shape (n, d)
        The training rows, or more: all that will be searched is best.
    ridge : float, default 1.0
        Added to the diagonal of ``HᵀH``, which counts common bits.  0 takes the pseudo-inverse, in which
        eigenvalues of ``HᵀH`` of at most ``n_bits * 2**-50`` times the largest count as zero.
    scheduler : str or distributed.Client, optional
        Where to compute, as in `bitfleet.train`; this process by default.
    executor : Executor, optional
        Instead of ``scheduler``: an executor that is there already.

    Returns
    -------
    Model
        In memory; ``save`` it.

    Raises
    ------
    ConfigError
        If ``ridge`` is negative, or the data has no rows or another width than the model.
    DataRefused
        If rows hold NaN or infinity, or numbers so large that their squares overflow float64.

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(200, 8))
    >>> model = bf.fit_decoder(bf.POSH(n_bits=64, n_active=4, random_state=0).fit(X), X)
    >>> model.decode(model.encode(X)).shape
    (200, 8)
    """
    model = as_model(model)
    if isinstance(ridge, bool) or not isinstance(ridge, int | float) or not 0 <= ridge < float("inf"):
        raise ConfigError(f"expected ridge to be a number >= 0, got {ridge!r}")
    encoder = model.encoder()
    with (
        temporary_place(folder_for(model, scheduler)) as scratch,
        opened(executor, scheduler, scratch) as chosen,
    ):
        in_process = isinstance(chosen, SerialExecutor)
        reader = rows_of(data, "data", scratch, in_process=in_process).reader
        if not reader.n_rows or reader.n_features != encoder.n_features:
            raise ConfigError(
                f"expected rows of {encoder.n_features} features to fit a decoder to, "
                f"got {reader.n_rows} of {reader.n_features}"
            )
        stored = model
        if model.path is None and not in_process:
            stored = replace(model, path=model.save(scratch / "model.zarr"))
        leaves = LeafPlan(reader.n_rows, base_rows(reader.n_features)).leaves()
        try:
            summary = chosen.reduce(reader, leaves, DecoderSums(model.method), stored.reference())
        except (StorageError, ConfigError):
            raise
        except ValueError as error:
            raise DataRefused(f"no decoder can be fitted to these rows: {error}") from error
    with one_blas_thread():
        space = space_of(model.state, encoder.n_features)
        decoder = fit(summary, space, dense=encoder.n_active is None, ridge=float(ridge))
    return replace(model, decoder=decoder, path=None)


@dataclass(frozen=True)
class Refinement:
    """How candidates are refined: ``factor`` times as many as wanted, decoded with ``n_sbiht`` steps."""

    factor: int
    n_sbiht: int = 0

    def attributes(self) -> dict[str, Any]:
        """Return what a result says of it."""
        steps = f" and {self.n_sbiht} steps of Algorithm 4" if self.n_sbiht else ""
        ordered = f"by the distance to the linear reconstruction{steps}"
        return {
            "refine": self.factor,
            "n_sbiht": self.n_sbiht,
            "refinement": f"of n items the {self.factor}n nearest codes, ordered {ordered}",
        }


def check_refinement(model: Model, factor: int | None, n_sbiht: int) -> Refinement | None:
    """Return the refinement that a caller asked for, None for none.

    Raises
    ------
    ConfigError
        If the numbers make no sense, or the model cannot do it.
    """
    for name, value, least in (("refine", factor, 1), ("n_sbiht", n_sbiht, 0)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ConfigError(f"expected {name} to be an integer >= {least}, got {value!r}")
    if factor is None:
        if n_sbiht:
            raise ConfigError("n_sbiht= decodes candidates: it needs refine=")
        return None
    decoder = model.needed_decoder()
    if n_sbiht:
        try:
            thresholding_of(model.method, model.state, decoder)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    return Refinement(factor, n_sbiht)
