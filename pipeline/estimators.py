"""The methods as scikit-learn transformers: what they have in common.

On ordinary arrays ``fit`` runs in this process.  With ``scheduler=`` or ``checkpoint=`` it is a run like any
other: distributed, committed round by round, resumable.  Either way the same data, parameters and seed give
the same bits.  The classes are in the modules ``estimators_*``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .arrays import as_dataset, check_shape, is_dataset, is_lazy, memory_dtype, unwrap
from .config import build_method
from .fitting import fit_in_memory, fit_run
from .opening import recorded_seed

if TYPE_CHECKING:
    import os

    from ..storage.places import Place
    from .arrays import Vectors


class BinaryHasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What all estimators share; use one of the subclasses.

    Attributes
    ----------
    model_ : Model
        What was learned; ``model_.digest`` is the SHA-256 of it.
    mean_ : ndarray of float64, shape (d,)
        Subtracted from every row before it is encoded.
    seed_ : int
        The seed that ``random_state`` came to.
    n_features_in_ : int
    """

    _method: ClassVar[str]
    _reported: ClassVar[dict[str, str]] = {}  # fitted attributes that are scalars of the finished state
    random_state: Any

    def fit(
        self,
        X: Vectors,
        y: Any = None,
        *,
        scheduler: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        preprocess_on: Vectors | None = None,
    ) -> BinaryHasher:
        """Learn from the rows of ``X``.

        Parameters
        ----------
        X : array of shape (n, d), Dataset, or path of a data set
            NumPy, dask, zarr or xarray arrays and DataFrames are all taken; ``X`` is never changed.
        y : ignored
            Estimators that learn from labels say so; theirs are whole numbers, -1 for none.
        scheduler : str or distributed.Client, optional
            ``"local"`` starts a cluster on this machine, ``"tcp://…"`` or a client joins one, None computes
            in this process.
        checkpoint : path, optional
            A run directory.  Every round is committed there; fitting onto an existing one goes on with it.
        preprocess_on : like X, optional
            Take mean and PCA from these rows instead of ``X``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the data holds NaN or infinity, or does not suit the parameters.
        IdentityMismatch
            If ``checkpoint`` holds a run of other parameters or other data.
        """
        params = self.get_params(deep=False)
        random_state = params.pop("random_state")
        method = build_method(self._method, params)
        X = self._with_labels(self._checked(X, reset=True), y)
        if scheduler is None and checkpoint is None:
            seed = seed_of(random_state)
            with tempfile.TemporaryDirectory(prefix="bitfleet-") as scratch:
                model = fit_in_memory(X, method, seed, Path(scratch), preprocess_on=preprocess_on)
        else:
            recorded = recorded_seed(checkpoint) if random_state is None else None
            seed = seed_of(random_state) if recorded is None else recorded
            model = fit_run(
                X, checkpoint, method, scheduler=scheduler, seed=seed, preprocess_on=preprocess_on
            )
        self.model_ = model
        self.seed_ = seed
        self.mean_ = np.asarray(getattr(model.encoder(), "mean"))  # noqa: B009
        for attribute, scalar in self._reported.items():
            if scalar in model.state.scalars:
                setattr(self, attribute, model.state.scalars[scalar])
        self._n_features_out = model.n_bits
        return self

    def transform(self, X: Vectors) -> Any:
        """Return the codes as bits.

        Parameters
        ----------
        X : like in `fit`, shape (m, d)

        Returns
        -------
        ndarray or dask array of uint8, shape (m, n_bits)
            Zeros and ones; a dask array if ``X`` is one.
        """
        check_is_fitted(self)
        return self.model_.transform(self._checked(X, reset=False))

    def encode(self, X: Vectors) -> Any:
        """Return the codes packed, eight bits a byte.

        Parameters
        ----------
        X : like in `fit`, shape (m, d)

        Returns
        -------
        ndarray or dask array of uint8, shape (m, ceil(n_bits / 8))
            LSB first (``numpy.packbits(..., bitorder="little")``), padding bits zero.
        """
        check_is_fitted(self)
        return self.model_.encode(self._checked(X, reset=False))

    def save(self, path: str | os.PathLike[str]) -> Place:
        """Write the model to ``path``; `bitfleet.load` reads it back.

        Raises
        ------
        DestinationExists
            If something is at ``path`` already.
        """
        check_is_fitted(self)
        return self.model_.save(path)

    def _with_labels(self, X: Vectors, y: Any) -> Any:
        """Return ``X``, or the pair of ``X`` and its labels where these are learned from."""
        return X

    def _checked(self, X: Vectors, *, reset: bool) -> Vectors:
        """Validate ``X`` as scikit-learn does; what is on disk or to be computed is checked as it is read."""
        if is_dataset(X):
            X = as_dataset(X)
            width = X.n_features
        else:
            inner = unwrap(X)
            if not is_lazy(inner):
                if inner.dtype.kind not in "biufcO":  # scikit-learn would make numbers of dates and text
                    memory_dtype(inner.dtype)
                plain = X if hasattr(X, "iloc") else inner  # a DataFrame keeps its column names
                with np.errstate(over="ignore", invalid="ignore"):
                    return validate_data(self, plain, reset=reset, dtype=[np.float32, np.float64], order="C")
            check_shape(inner)
            X = inner
            width = int(X.shape[1])
        if reset:
            self.n_features_in_ = width
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        elif width != self.n_features_in_:
            raise ValueError(
                f"X has {width} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def seed_of(random_state: Any) -> int:
    """Return the seed: an int as it is, anything else by drawing one."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(f"expected random_state >= 0, got {random_state}")
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
