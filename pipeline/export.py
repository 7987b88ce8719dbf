"""`bitfleet.export`: codes and models as files for other programs, and model cards for people.

A file appears under its name when it is whole, and never over another one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.codes import Codes, open_codes
from ..storage.files import whole_file
from ..storage.places import local
from ..storage.run import is_stream
from .code_index import CodeIndex
from .code_inputs import loaded
from .errors import ConfigError
from .export_codes import Packed, write_npy, write_parquet, write_pgvector
from .export_faiss import write_clustered, write_index
from .inspection import kind_of
from .model import Model, as_model
from .model_card import card, write_encoder, write_json, write_markdown
from .stream import Streamed, open_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray

#: formats of codes, and of models, with the ends of names that stand for them
CODES: dict[str, tuple[str, Callable[[Packed, Path], None]]] = {
    "numpy": (".npy", write_npy),
    "parquet": (".parquet", write_parquet),
    "faiss": (".faiss", write_index),
    "pgvector": (".csv", write_pgvector),
}
MODELS: dict[str, str] = {"encoder": ".npz", "card": ".md", "card-json": ".json"}
FORMATS = (*CODES, *MODELS)


def export(
    source: Any,
    dest: str | os.PathLike[str],
    format: str | None = None,
    *,
    ids: Any = None,
    n_bits: int | None = None,
    n_active: int | None = None,
    results: xarray.Dataset | None = None,
) -> Path:
    """Write codes or a model as one file for other programs.

    Parameters
    ----------
    source : Codes, CodeIndex, Streamed, packed codes, Model, fitted estimator, or path
        What is exported.  Paths are of codes, streams (their codes), models, or runs (their model).
    dest : path
        The new file; its folder must exist.
    format : str, optional
        By default what the end of ``dest`` says.  Of codes:

        - ``"numpy"`` (.npy): uint8 of shape (n, ceil(n_bits / 8)), least significant bit first;
        - ``"parquet"`` (.parquet): columns ``id`` and ``code`` (fixed size binary);
        - ``"faiss"`` (.faiss): an ``IndexBinaryFlat``, with an id map if ``ids`` are given; of a `CodeIndex`
          with clusters an ``IndexBinaryIVF``.  Bits are filled up to whole bytes;
        - ``"pgvector"`` (.csv): lines ``id,bits`` for PostgreSQL's COPY into a column of type
          ``bit(n_bits)``; character j is bit j.

        Of models:

        - ``"encoder"`` (.npz): ``mean`` (d,) and ``projection`` (d, n_bits): bit j of x is
          ``(x - mean) @ projection[:, j] >= 0``, of a sparse code the ``n_active`` largest are ones;
        - ``"card"`` (.md), ``"card-json"`` (.json): what the model is, what it learned from, how accurate it
          was measured to be.
    ids : array of int or str, shape (n,), optional
        Names of the rows, their numbers by default.
    n_bits, n_active : int, optional
        Of packed codes whose last byte is not full, and of sparse ones; stored codes know theirs.
    results : xarray.Dataset, optional
        For a card: what `bitfleet.evaluate` returned; by default what the run keeps.

    Returns
    -------
    Path
        ``dest``.

    Raises
    ------
    ConfigError
        If the format is unknown or does not suit the source, ids are not one for each row and different, or
        a library is missing.
    DestinationExists
        If anything is at ``dest``; nothing is changed.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> itq = bf.ITQ(n_bits=16, random_state=0).fit(X)
    >>> folder = tempfile.mkdtemp()
    >>> path = bf.export(itq.encode(X), folder + "/codes.npy")
    >>> bool((np.load(path) == itq.encode(X)).all())
    True
    >>> print(bf.export(itq, folder + "/card.md").read_text().splitlines()[0])
    # ITQ, 16 bits
    """
    path = local(dest, "an exported file")
    chosen = _format(path, format)
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent} for {path.name}; make it first")
    if chosen in MODELS:
        model, run = _model(source, chosen)
        with whole_file(path) as file:
            if chosen == "encoder":
                write_encoder(model, file)
            else:
                content = card(model, run, results)
                (write_markdown if chosen == "card" else write_json)(content, file)
        return path
    with whole_file(path) as file:
        if chosen == "faiss" and isinstance(source, CodeIndex) and source.n_clusters and ids is None:
            write_clustered(source.to_faiss(), file)
        else:
            CODES[chosen][1](_codes(source, chosen, ids, n_bits, n_active), file)
    return path


def _format(path: Path, format: str | None) -> str:
    ends = {end: name for name, (end, _) in CODES.items()} | {end: name for name, end in MODELS.items()}
    if format is None and path.suffix in ends:
        return ends[path.suffix]
    if format not in FORMATS:
        known = ", ".join(f"{name} ({end})" for end, name in ends.items())
        what = f"a name ending like {path.name!r}" if format is None else repr(format)
        raise ConfigError(f"unknown format: expected one of {known}, got {what}")
    return format


def _kind(source: Any) -> str:
    """Return ``"codes"``, ``"model"``, or what a path holds."""
    if isinstance(source, str | os.PathLike):
        if is_stream(Path(source)):
            return "stream"
        return kind_of(source)
    if isinstance(source, Model) or isinstance(getattr(source, "model_", None), Model):
        return "model"
    return "codes"


def _model(source: Any, format: str) -> tuple[Model, Any]:
    """Return the model to be written, and its run if it has one."""
    kind = _kind(source)
    if kind not in ("model", "run", "stream"):
        raise ConfigError(
            f"the format {format!r} is of models, got {kind}; of codes there are {', '.join(CODES)}"
        )
    model = as_model(source)
    return model, source if kind == "run" else None


def _codes(source: Any, format: str, ids: Any, n_bits: int | None, n_active: int | None) -> Packed:
    kind = _kind(source)
    if kind not in ("codes", "stream"):
        hint = "encode a data set with it first (bitfleet encode RUN DATA CODES)"
        if kind == "dataset":
            hint = "encode it with a model first (bitfleet encode RUN DATA CODES)"
        raise ConfigError(f"the format {format!r} is of codes, got a {kind}; {hint}")
    if kind == "stream":
        source = open_stream(source)
    if isinstance(source, Streamed):
        found = Packed(source.codes(), source.model.n_bits, None)
    elif isinstance(source, CodeIndex):
        found = Packed(source.to_numpy(), source.n_bits, source.n_active)
    elif isinstance(source, Codes | str | os.PathLike):
        codes = source if isinstance(source, Codes) else open_codes(source)
        found = Packed(codes, codes.n_bits, codes.n_active)
    else:
        found = Packed(*loaded(source, n_bits, n_active))
    return Packed(found.codes, found.n_bits, found.n_active, _checked_ids(ids, found.n_rows))


def _checked_ids(ids: Any, n_rows: int) -> np.ndarray | None:
    if ids is None:
        return None
    ids = np.asarray(ids)
    if ids.shape != (n_rows,) or ids.dtype.kind not in "iuU":
        raise ConfigError(
            f"expected ids as {n_rows} whole numbers or texts, one for each code, got {ids.dtype} of "
            f"shape {ids.shape}"
        )
    if ids.dtype.kind == "u" and ids.max(initial=0) > np.iinfo(np.int64).max:
        raise ConfigError(f"expected ids of at most 2^63 - 1, got {ids.max()}; give greater ones as texts")
    values, counts = np.unique(ids, return_counts=True)
    if len(values) != n_rows:
        twice = values[counts.argmax()]
        raise ConfigError(f"expected an id of its own for each code, got {twice!s:.40} {counts.max()} times")
    return ids
