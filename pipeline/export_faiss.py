"""Codes for Faiss: an index in memory, or a file of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from .export_codes import Packed


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
    faiss = _library()
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


def write_index(packed: Packed, path: Path) -> None:
    """Write codes as the file of a flat binary index, with an id map if there are ids.

    Raises
    ------
    ConfigError
        If Faiss is not installed, or the ids are no whole numbers.
    """
    faiss = _library()
    if packed.ids is not None and packed.ids.dtype.kind not in "iu":
        raise ConfigError("Faiss takes whole numbers as ids; give names to Parquet or pgvector")
    index: Any = faiss.IndexBinaryFlat(8 * packed.n_bytes)
    if packed.ids is not None:
        index = faiss.IndexBinaryIDMap(index)  # the Python class keeps what it is made of
    for start, rows in packed.pieces():
        if packed.ids is None:
            index.add(rows)
        else:
            index.add_with_ids(rows, packed.ids[start : start + len(rows)].astype(np.int64))
    faiss.write_index_binary(index, str(path))


def write_clustered(index: Any, path: Path) -> None:
    """Write what ``CodeIndex.to_faiss`` returns."""
    _library().write_index_binary(index, str(path))


def _library() -> Any:
    try:
        import faiss
    except ImportError:
        raise ConfigError("Faiss is not installed; install it with: pip install 'bitfleet[faiss]'") from None
    return faiss
