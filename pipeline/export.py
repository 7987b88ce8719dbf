"""Codes for other search libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import ConfigError


def to_faiss(packed: np.ndarray, clusters: np.ndarray | None, n_clusters: int) -> Any:
    """Return a Faiss index of packed codes: flat, or inverted lists if there are clusters.

    Parameters
    ----------
    packed : ndarray of uint8, shape (n, n_bytes)
    clusters : ndarray of int64, shape (n,), or None
    n_clusters : int

    Raises
    ------
    ConfigError
        If Faiss is not installed.
    """
    try:
        import faiss
    except ImportError:
        raise ConfigError("Faiss is not installed; install it with: pip install 'bitfleet[faiss]'") from None
    n_bits = 8 * packed.shape[1]
    if clusters is None:
        flat = faiss.IndexBinaryFlat(n_bits)
        flat.add(packed)
        return flat
    centroids = np.zeros((n_clusters, packed.shape[1]), np.uint8)
    for c in range(n_clusters):
        members = np.unpackbits(packed[clusters == c], axis=1, bitorder="little")
        centroids[c] = np.packbits(2 * members.sum(axis=0) > len(members), bitorder="little")
    quantizer = faiss.IndexBinaryFlat(n_bits)
    quantizer.add(centroids)
    index = faiss.IndexBinaryIVF(quantizer, n_bits, n_clusters)
    quantizer.this.disown()  # type: ignore[attr-defined]
    index.own_fields = True
    index.is_trained = True
    lists = np.ascontiguousarray(clusters, np.int64)
    core: Any = index
    core.add_core(len(packed), faiss.swig_ptr(packed), None, faiss.swig_ptr(lists))
    return index
