"""Vectors with labels: pairs that a caller gives, and what methods need that learn from labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import is_dataset
from .errors import ConfigError

if TYPE_CHECKING:
    from ..tasks.protocols import Method


def split(data: Any, name: str) -> tuple[Any, Any]:
    """Return vectors, and the labels that came with them as a pair; None for others."""
    if not isinstance(data, tuple):
        return data, None
    if len(data) != 2:
        raise ConfigError(f"expected {name} as vectors or as a pair (vectors, labels), got {len(data)} items")
    return data


def bare(data: Any, labels: Any) -> None:
    """Raise `ConfigError` if labels are given beside a data set, which brings its own."""
    if labels is not None and is_dataset(data):
        raise ConfigError(
            "a data set brings its own labels: leave others out, or ingest it again with labels=…"
        )


def checked(labels: Any, n_rows: int, name: str) -> np.ndarray | None:
    """Return labels as int64, shape (n,), or None for None.

    Raises
    ------
    ConfigError
        If they are not as many integers as rows.
    """
    if labels is None:
        return None
    if np.ma.is_masked(labels):
        raise ConfigError(f"labels of the {name} are masked; give rows without a label the label -1")
    labels = np.asarray(labels)
    if labels.dtype == np.uint64 and labels.max(initial=0) > np.iinfo(np.int64).max:
        raise ConfigError(f"labels of the {name} do not fit 64 bits with a sign: number them anew")
    if labels.shape != (n_rows,) or labels.dtype.kind not in "biu":
        raise ConfigError(
            f"expected {n_rows} integer labels of the {name}, got {labels.dtype} of shape {labels.shape}"
        )
    return labels.astype(np.int64)


def check_needed(method: Method, *, there: bool) -> None:
    """Raise `ConfigError` if the method learns from labels and there are none."""
    if getattr(method, "needs_labels", False) and not there:
        raise ConfigError(
            f"{method.name} learns from labels and the data have none; give labels: ingest --labels, a pair "
            "(vectors, labels), or y to fit; rows without one have -1"
        )


def whole_numbers(y: Any) -> np.ndarray:
    """Return the labels that an estimator is given: whole numbers of any type.

    Raises
    ------
    ValueError
        If they are none.
    """
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"expected y of shape (n,), one label for each row, got shape {labels.shape}")
    if labels.dtype.kind == "O" and all(isinstance(label, int | np.integer) for label in labels.flat):
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "f" and (np.isfinite(labels) & (labels == np.rint(labels))).all():
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "biu":
        raise ValueError(
            f"expected y to hold whole numbers, -1 for rows without a label, got {labels.dtype}; "
            "sklearn.preprocessing.LabelEncoder makes numbers of names"
        )
    return labels
