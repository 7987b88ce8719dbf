"""The functions that users call: ingest, train, resume, encode, load.

Everything that they do is a call to one of the modules beside this one; what they add is the choice between
names, paths and objects.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..storage import claims
from ..storage import ingest as storage_ingest
from ..storage.datasets import ArrayReader, Dataset, open_dataset
from ..storage.places import make_folder, place, temporary_place
from . import runs
from .arrays import as_dataset, content_digest, is_dataset, is_lazy, spool, unwrap
from .arrays import load as load_vectors
from .config import build_method
from .encode import encode_to
from .errors import ConfigError
from .executors import Where, choose, open_executor
from .model import Model, ModelLike, as_model, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..storage.codes import Codes
    from ..storage.places import Place
    from ..tasks.protocols import BlockReader, Method
    from .arrays import Vectors

__all__ = ["encode", "ingest", "load", "open_dataset", "resume", "train"]

PathLike = str | os.PathLike[str]


def ingest(src: PathLike | Sequence[PathLike], dest: PathLike, **options: Any) -> Dataset:
    """Turn a file of vectors, or several as one, into a data set.

    Parameters
    ----------
    src : path or sequence of paths
        npy, npz, idx, fvecs/bvecs/ivecs, HDF5, Parquet or Zarr.
    dest : path or ``s3://bucket/prefix``
        The new data set; must not exist.
    **options
        ``vectors`` and ``labels`` (names of the arrays inside the file), ``nonfinite="refuse" | "drop"``, and
        what else `bitfleet.storage.ingest.ingest` takes.

    Returns
    -------
    Dataset

    Raises
    ------
    DataRefused
        If the content is not acceptable; the message names rows and remedy.
    DestinationExists
        If something is at ``dest``.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> folder = tempfile.mkdtemp()
    >>> np.save(folder + "/vectors.npy", np.eye(4, dtype="float32"))
    >>> data = bf.ingest(folder + "/vectors.npy", folder + "/vectors.zarr")
    >>> data.n_rows, data.n_features
    (4, 4)
    """
    return storage_ingest.ingest(src, dest, **options)


def train(
    data: Vectors,
    run: PathLike,
    method: str | Method,
    *,
    scheduler: Any = None,
    seed: int = 0,
    block_rows: int | None = None,
    fan_in: int = 8,
    preprocess_on: Vectors | None = None,
    n_workers: int | None = None,
    memory_limit: str | None = None,
    allow_environment_change: bool = False,
    **params: Any,
) -> Model:
    """Train a method in a run directory.

    Parameters
    ----------
    data : Dataset, path of one, array of shape (n, d), or pair (array, labels)
        Arrays are first written to ``run/data.zarr``.
    run : path or ``s3://bucket/prefix``
        Where configuration, rounds and model are kept.  If it holds the same run already, that one goes on.
    method : str or Method
        Such as ``"posh"``; its hyper-parameters follow as keywords.
    scheduler : None, str or distributed.Client
        None computes in this process, ``"local"`` starts a cluster on this machine, ``"tcp://…"`` or a client
        joins one.  The result is the same to the bit.
    seed : int
    block_rows, fan_in : int, optional
        How the data is cut into blocks and their sums are merged; part of the run's identity.
    preprocess_on : like data, optional
        Take mean and PCA from these rows.
    n_workers, memory_limit
        Of a local cluster.
    allow_environment_change : bool
        Go on although libraries or processor are others than at the start; the bits may differ.

    Returns
    -------
    Model

    Raises
    ------
    ConfigError
        If a name or value is wrong, or the method does not suit the data.
    IdentityMismatch
        If ``run`` holds a run of another method, seed, tree or data.
    ClusterLost
        If the cluster is lost; the last round is kept.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(200, 8))
    >>> run = tempfile.mkdtemp() + "/run"
    >>> model = bf.train(X, run, "itq", n_bits=4, n_iter=5)
    >>> bf.resume(run).digest == model.digest
    True
    """
    return runs.start(
        data,
        run,
        build_method(method, params) if isinstance(method, str) else _changed(method, params),
        where=choose(scheduler, n_workers=n_workers, memory_limit=memory_limit),
        seed=seed,
        block_rows=block_rows,
        fan_in=fan_in,
        preprocess_on=preprocess_on,
        allow_environment_change=allow_environment_change,
    )


def resume(
    run: PathLike,
    *,
    scheduler: Any = None,
    data: PathLike | None = None,
    allow_environment_change: bool = False,
) -> Model:
    """Go on with a run after any interruption; a finished run returns its model.

    Parameters
    ----------
    run : path
    scheduler : optional
        As in `train`; by default where the run was started.
    data : path, optional
        Where the data is now, if it has moved.
    allow_environment_change : bool
        Go on although libraries or processor have changed; the bits may differ.

    Raises
    ------
    ConfigError
        If there is no run.
    CorruptObject, IdentityMismatch
        If its files, its data or the environment are not what they were.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> run = tempfile.mkdtemp() + "/run"
    >>> model = bf.train(np.random.default_rng(0).normal(size=(50, 8)), run, "lsh", n_bits=8)
    >>> bf.resume(run).digest == model.digest  # nothing was left to do
    True
    """
    where = None if scheduler is None else choose(scheduler)
    return runs.resume(run, where=where, data=data, allow_environment_change=allow_environment_change)


def encode(
    model: ModelLike,
    data: Vectors,
    dest: PathLike | None = None,
    *,
    scheduler: Any = None,
    active: bool = False,
) -> Any:
    """Encode vectors, in memory or into a file of codes.

    Parameters
    ----------
    model : Model, estimator, or path of a model or run
    data : Dataset, path of one, or array of shape (n, d)
    dest : path, optional
        Where the codes go; must not exist.
    scheduler : optional
        As in `train`; needs ``dest``.
    active : bool
        Write the index lists of a sparse code's ones beside the codes.

    Returns
    -------
    ndarray or dask array of uint8, shape (n, ceil(n_bits / 8)), or Codes if ``dest`` is given
        LSB first, padding bits zero.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(50, 8))
    >>> lsh = bf.LSH(n_bits=16, random_state=0).fit(X)
    >>> bf.encode(lsh, X).shape
    (50, 2)
    >>> bf.encode(lsh, X, tempfile.mkdtemp() + "/codes.zarr").n_rows
    50
    """
    model, where = as_model(model), choose(scheduler)
    if dest is None:
        if active or not where.in_process:
            raise ConfigError("scheduler= and active= write codes to a path: give dest=")
        return model.encode(data)
    return encode_into(model, data, dest, where, active=active)


def encode_into(model: Model, data: Vectors, path: PathLike, where: Where, *, active: bool = False) -> Codes:
    """Write the codes of ``data`` to ``path``; what workers need and is only in memory is kept beside it."""
    dest = place(path)
    make_folder(dest.parent)
    beside = f".{dest.name[:50]}-"  # a name may have 255 bytes
    claims.remove_abandoned(dest.parent, beside)
    with temporary_place(dest.parent, beside) as scratch:
        claims.mark(scratch)
        if model.path is None and not where.in_process:
            model = replace(model, path=model.save(scratch / "model.zarr"))
        reader, digest = _source(data, scratch, where)
        with open_executor(where, shared=scratch) as executor:
            return encode_to(model, reader, digest, dest, executor, active=active)


def _source(data: Vectors, scratch: Place, where: Where) -> tuple[BlockReader, str]:
    """Return a reader and the digest of what it reads."""
    if not is_dataset(data):
        vectors = unwrap(data)
        if where.in_process and not is_lazy(vectors):
            vectors = load_vectors(vectors)
            return ArrayReader(vectors), content_digest(vectors)
        data = spool(vectors, scratch / "data.zarr")
    dataset = as_dataset(data)
    return dataset.reader(), dataset.digest


def _changed(method: Method, params: dict[str, Any]) -> Method:
    if not hasattr(method, "accumulator"):
        raise ConfigError(f"expected the name of a method or a method, got {type(method).__name__}")
    if not params:
        return method
    try:
        return replace(method, **params)  # type: ignore[type-var]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{method.name}: {error}") from None
