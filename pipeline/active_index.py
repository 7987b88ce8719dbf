"""`ActiveIndex`: sparse codes in the fewest bytes, searched by real queries."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage import models
from ..storage.errors import CorruptObject, StorageError
from ..storage.places import Place, place
from ..storage.safe import read_group
from ..tasks.active import ActiveDistances
from ..tasks.decoder import Decoder
from ..tasks.kernels.pack import list_active
from ..tasks.kernels.ranking import rank_sets, ranked_width, unrank_sets
from ..tasks.methods.base import Front
from ..tasks.protocols import LeafPlan
from .arrays import as_dataset, is_dataset, make_reader
from .code_inputs import check_count
from .errors import ConfigError
from .model import Model, ModelLike, as_model
from .rescore import rescored

if TYPE_CHECKING:
    from .arrays import Vectors

FORMAT = "bitfleet-active-index"
FORMAT_VERSION = 1
_ROWS_AT_ONCE = 1 << 14


class ActiveIndex:
    """Sparse codes in memory in the fewest bytes, searched by real queries through a decoder.

    Parameters
    ----------
    model : Model, path, or fitted estimator
        Of sparse codes, with a decoder: `SparseCoding` has its own, others get one by `bitfleet.fit_decoder`.
    metric : {"euclidean", "cosine"}
    lengths : bool, optional
        Keep the length of every row, in a byte of its own: by default with ``"euclidean"``, never with
        ``"cosine"``.
    keep_norms : bool, default True
        Keep four bytes more a row in memory, which follow from its code, so that a search of few queries
        need not compute them again.  Results are the same.
    keep_lists : bool, default False
        Keep the rows unpacked, too, in memory: two bytes more for each of their ones (one up to 256 bits,
        four beyond 65,536).  For a search of few queries, which else spends nearly all its time on unpacking.
        Results are the same.

    Attributes
    ----------
    n_rows, n_bytes : int
        Rows, and stored bytes of each.
    rows : ndarray of uint8, shape (n_rows, n_bytes)

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(500, 16))
    >>> model = bf.fit_decoder(bf.PursuitHash(n_bits=64, n_active=8, random_state=0).fit(X), X)
    >>> index = bf.ActiveIndex(model).add(X)
    >>> distances, ids = index.search(X[:3], k=10)
    >>> index.n_bytes, ids.shape
    (6, (3, 10))
    """

    _rows: _Growing
    _norms: _Growing | None
    _lists: _Growing | None

    def __init__(
        self,
        model: ModelLike,
        *,
        metric: str = "euclidean",
        lengths: bool | None = None,
        keep_norms: bool = True,
        keep_lists: bool = False,
    ) -> None:
        self._model: Model | None = as_model(model)
        n_active = self._model.encoder().n_active
        if n_active is None:
            raise ConfigError(
                "expected a model of sparse codes; dense codes take real queries by "
                "CodeIndex.search(projections, k, asymmetric=True)"
            )
        lengths = metric == "euclidean" if lengths is None else lengths
        self._digest = self._model.encoder_digest
        self._begin(self._model.needed_decoder(), n_active, metric, lengths, keep_norms, keep_lists)

    def add(self, vectors: Vectors) -> ActiveIndex:
        """Encode vectors and append their codes; return the index.

        Parameters
        ----------
        vectors : array, Dataset or path, shape (n, d)
        """
        if self._model is None:
            raise ConfigError("this index was opened without the model that encodes: open it with model=")
        with tempfile.TemporaryDirectory(prefix="bitfleet-") as scratch:
            reader = make_reader(vectors, Path(scratch))
            if reader.n_features != self.n_features:
                raise ConfigError(f"expected rows of {self.n_features} features, got {reader.n_features}")
            for leaf in LeafPlan(reader.n_rows, _ROWS_AT_ONCE).leaves():
                tile = reader.read(leaf).vectors
                places = list_active(self._model.encode(tile), self.n_active)
                self._append(places, self._distances.length_bytes(tile) if self.lengths else None)
        return self

    def search(
        self, queries: Any, k: int, *, rescore: Any = None, oversample: int = 4
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the k nearest rows of each query, nearest first; equal distances by id.

        Parameters
        ----------
        queries : array, Dataset or path, shape (q, d)
            Vectors, not codes.
        k : int
            If there are fewer rows, all are returned.
        rescore : Dataset, path, or array of shape (n, d), optional
            Take ``oversample * k`` candidates and order them by the distance of these vectors.
        oversample : int, default 4

        Returns
        -------
        distances : ndarray of float64, shape (q, min(k, n))
            Squared Euclidean, between rows of length one if by cosine.
        ids : ndarray of int64, shape (q, min(k, n))

        Raises
        ------
        ConfigError
            If queries are not finite numbers of the right shape, or squared distances overflow float64.
        """
        check_count("k", k)
        check_count("oversample", oversample)
        queries = _in_memory(queries)
        if queries.ndim != 2 or queries.shape[1] != self.n_features or queries.dtype.kind not in "buif":
            raise ConfigError(
                f"expected queries of numbers, shape (q, {self.n_features}), "
                f"got {queries.dtype} of shape {queries.shape}"
            )
        if not np.isfinite(queries).all():
            raise ConfigError("expected finite queries, got NaN or infinity")
        wanted = min(k, self.n_rows)
        found = wanted if rescore is None else min(wanted * oversample, self.n_rows)
        norms, lists = (None if kept is None else kept.whole() for kept in (self._norms, self._lists))
        try:
            distances, ids = self._distances.nearest(queries, self.rows, found, norms, lists)
        except ValueError as error:  # overflow
            raise ConfigError(str(error)) from None
        if rescore is None:
            return distances, ids
        return rescored(ids, wanted, rescore, queries, None, metric=self.metric)

    def save(self, path: str | os.PathLike[str]) -> Place:
        """Write the index to ``path``, which must not exist yet; `ActiveIndex.open` reads it."""
        decoder = self._distances.decoder
        arrays = {"rows": self.rows, "mean": decoder.front.mean, "matrix": decoder.matrix}
        if decoder.front.components is not None:
            arrays["components"] = decoder.front.components
        header = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "n_active": self.n_active,
            "metric": self.metric,
            "lengths": self.lengths,
            "ridge": decoder.ridge,
            "model_digest": self._digest,
        }
        models.save_model(path, header, arrays)
        return place(path)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        model: ModelLike | None = None,
        *,
        keep_norms: bool = True,
        keep_lists: bool = False,
    ) -> ActiveIndex:
        """Read an index, check every byte against its digest and every row against the format.

        Parameters
        ----------
        path : path
        model : Model, path, or fitted estimator, optional
            Needed to `add`; must be the one that made the index.
        keep_norms, keep_lists : bool
            What is kept in memory beside the rows, as in the constructor.

        Raises
        ------
        ConfigError
            If this is no index, of another format version, or of another model.
        CorruptObject
            If anything is missing, has changed, or is no code.
        """
        header, arrays = models.load_model(path)
        if header.get("format") != FORMAT or header.get("format_version") != FORMAT_VERSION:
            found = f"{header.get('format')} {header.get('format_version')}"
            raise ConfigError(
                f"{path}: expected an index in format {FORMAT_VERSION}, got {found:.60}; make one with: "
                "bitfleet index MODEL DATA INDEX, or use the bitfleet that wrote this one"
            )
        index = cls.__new__(cls)
        try:
            front = Front(arrays["mean"], arrays.get("components"))
            decoder = Decoder(arrays["matrix"], front, dense=False, ridge=float(header["ridge"]))
            kept = keep_norms, keep_lists
            index._begin(decoder, header["n_active"], header["metric"], header["lengths"], *kept)
            rows = arrays["rows"]
            if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != index.n_bytes:
                raise ValueError(f"rows of shape {rows.shape}")
            for at in range(0, len(rows), _ROWS_AT_ONCE):
                part = rows[at : at + _ROWS_AT_ONCE]
                index._append(
                    unrank_sets(part[:, : index._width], index.n_bits, index.n_active),
                    part[:, -1] if index.lengths else None,
                )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptObject(f"{path} has a broken header or broken arrays: {error}") from error
        index._digest = header["model_digest"]
        index._model = None if model is None else as_model(model)
        if index._model is not None and index._model.encoder_digest != index._digest:
            raise ConfigError(
                f"{path} was made by the model {index._digest[:12]}, "
                f"not by {index._model.encoder_digest[:12]}"
            )
        return index

    @property
    def rows(self) -> np.ndarray:
        """Everything that is stored, uint8 of shape (n_rows, n_bytes)."""
        return self._rows.whole()

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return (
            f"ActiveIndex(n_rows={self.n_rows}, n_bits={self.n_bits}, n_active={self.n_active}, "
            f"metric={self.metric!r}, n_bytes={self.n_bytes})"
        )

    def _begin(
        self,
        decoder: Decoder,
        n_active: int,
        metric: str,
        lengths: bool,
        keep_norms: bool,
        keep_lists: bool,
    ) -> None:
        try:
            self._distances = ActiveDistances(decoder, n_active, metric, bool(lengths))
            self._width = ranked_width(decoder.n_bits, n_active)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self.n_bits, self.n_active, self.metric, self.lengths = (
            decoder.n_bits,
            n_active,
            metric,
            bool(lengths),
        )
        self.n_features, self.n_bytes, self.n_rows = len(decoder.front.mean), self._width + self.lengths, 0
        self._rows = _Growing(np.empty((0, self.n_bytes), np.uint8))
        self._norms = _Growing(np.empty(0, np.float32)) if keep_norms else None
        no_places = np.empty((0, n_active), np.int32)
        self._lists = _Growing(self._distances.lists(no_places)) if keep_lists else None

    def _append(self, places: np.ndarray, lengths: np.ndarray | None) -> None:
        rows = np.empty((len(places), self.n_bytes), np.uint8)
        rows[:, : self._width] = rank_sets(places, self.n_bits)
        if lengths is not None:
            rows[:, -1] = lengths
        self._rows.append(rows)
        self.n_rows += len(rows)
        if self._norms is not None:
            self._norms.append(self._distances.norms(places))
        if self._lists is not None:
            self._lists.append(self._distances.lists(places))


class _Growing:
    """Rows of an array that come in parts and are joined when they are wanted."""

    def __init__(self, empty: np.ndarray) -> None:
        self._parts = [empty]

    def append(self, rows: np.ndarray) -> None:
        self._parts.append(rows)

    def whole(self) -> np.ndarray:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]


def is_index(path: Any) -> bool:
    """Tell whether this is the path of an `ActiveIndex`; `ActiveIndex.open` says whether it is whole."""
    if not isinstance(path, str | os.PathLike) or not (place(path) / "zarr.json").is_file():
        return False
    try:
        found: Any = read_group(path).get("bitfleet_model")
        return bool(found["header"]["format"] == FORMAT)
    except (StorageError, TypeError, KeyError):
        return False


def _in_memory(queries: Any) -> np.ndarray:
    if not is_dataset(queries):
        return np.asarray(queries)
    reader = as_dataset(queries).reader()
    return reader.read(LeafPlan(reader.n_rows, max(reader.n_rows, 1)).leaf(0)).vectors
