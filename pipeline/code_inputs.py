"""What a search is given, checked and brought into one shape: packed codes, places of ones, projections."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..storage.codes import Codes, open_codes
from ..tasks.kernels.pack import pack_active, packed_width
from .errors import ConfigError


def checked_projections(queries: Any, n_bits: int | None) -> np.ndarray:
    """Return projections for asymmetric search, or raise unless they are finite floats of the right width."""
    queries = np.asarray(queries)
    if queries.ndim != 2 or queries.dtype.kind != "f" or n_bits not in (None, queries.shape[1]):
        raise ConfigError(
            f"expected projections of type float, shape (q, {n_bits}), for asymmetric search, got "
            f"{queries.dtype} of shape {queries.shape}"
        )
    if not np.isfinite(queries).all():
        raise ConfigError("expected finite projections, got NaN or infinity")
    return queries


def checked_vectors(vectors: Any, n_queries: int, n_features: int) -> np.ndarray:
    """Return the queries' own vectors, or raise unless they are finite numbers of the right shape."""
    vectors = np.asarray(vectors)
    if vectors.shape != (n_queries, n_features) or vectors.dtype.kind not in "buif":
        raise ConfigError(
            f"expected query_vectors of numbers, shape ({n_queries}, {n_features}), a row for each query, "
            f"got {vectors.dtype} of shape {vectors.shape}"
        )
    if not np.isfinite(vectors).all():
        raise ConfigError("expected finite query_vectors, got NaN or infinity")
    return vectors


def stored_codes(codes: Any) -> Any:
    """Open a path of codes; return anything else as it is."""
    return open_codes(codes) if isinstance(codes, str | os.PathLike) else codes


def check_same_model(codes: Any, queries: Any) -> None:
    """Raise `ConfigError` if both are stored codes, and of two models: their bits have nothing in common."""
    digests = [each.model_digest for each in (codes, queries) if isinstance(each, Codes)]
    if len(set(digests)) > 1:
        raise ConfigError(
            f"{codes.path} was encoded by the model {digests[0][:12]}, the queries {queries.path} by "
            f"{digests[1][:12]}: encode both with the same model"
        )


def loaded(codes: Any, n_bits: int | None, n_active: int | None) -> tuple[np.ndarray, int, int | None]:
    """Return packed codes in memory, their bits and the ones of each (None: dense)."""
    codes = stored_codes(codes)
    if isinstance(codes, Codes):
        starts = range(0, codes.n_rows, codes.chunk_rows)
        parts = [codes.rows(at, min(at + codes.chunk_rows, codes.n_rows)) for at in starts]
        empty = np.empty((0, packed_width(codes.n_bits)), np.uint8)
        return np.concatenate([empty, *parts]), codes.n_bits, codes.n_active
    for name, count in (("n_bits", n_bits), ("n_active", n_active)):
        if count is not None:
            check_count(name, count)
    codes = np.asarray(codes)
    if codes.ndim != 2:
        raise ConfigError(
            f"expected codes of two dimensions, a row for each, got shape {codes.shape}; one code alone is "
            "code[None, :]"
        )
    if codes.dtype in (np.int32, np.int64):
        return _from_places(codes, n_bits, n_active)
    if codes.dtype != np.uint8:
        raise ConfigError(
            f"expected packed codes of uint8, or places of ones of int32 or int64, got {codes.dtype}"
        )
    n_bits = 8 * codes.shape[1] if n_bits is None else n_bits
    if codes.shape[1] != packed_width(n_bits):
        raise ConfigError(
            f"expected {packed_width(n_bits)} bytes a code for {n_bits} bits, got {codes.shape[1]}; "
            "pack zeros and ones with numpy.packbits(bits, axis=1, bitorder='little')"
        )
    if n_bits % 8 and len(codes) and (codes[:, -1] >> (n_bits % 8)).any():
        raise ConfigError(f"expected zero padding after bit {n_bits}; pack least significant bit first")
    return np.ascontiguousarray(codes), n_bits, n_active


def _from_places(
    places: np.ndarray, n_bits: int | None, n_active: int | None
) -> tuple[np.ndarray, int, int | None]:
    if n_bits is None:
        raise ConfigError("codes given as places of ones need n_bits=")
    if n_active not in (None, places.shape[1]):
        raise ConfigError(f"expected {n_active} places a code, got {places.shape[1]}")
    if not places.shape[1]:
        raise ConfigError("expected at least one place of a one in every code, got none")
    ordered = np.sort(places, axis=1)
    if len(places) and (ordered[:, 0].min() < 0 or ordered[:, -1].max() >= n_bits):
        raise ConfigError(
            f"expected places from 0 to {n_bits - 1}, got {ordered[:, 0].min()} to {ordered[:, -1].max()}; "
            "packed codes are of type uint8"
        )
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if twice.any():
        raise ConfigError(f"expected every place at most once in a code, row {twice.argmax()} has one twice")
    return pack_active(ordered, n_bits), n_bits, places.shape[1]


def check_count(name: str, value: Any) -> None:
    """Raise `ConfigError` unless ``value`` is an integer of at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ConfigError(f"expected {name} to be an integer >= 1, got {value!r}")
