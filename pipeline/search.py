"""`bitfleet.search`: the nearest codes of a collection that may be too large for one machine's memory.

Every block of codes is searched where it is read, and only the k best of every query travel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster.serial import SerialExecutor
from ..storage.codes import Codes
from ..storage.places import temporary_place
from ..storage.run import is_stream
from ..tasks.asymmetric import NearestProjections
from ..tasks.encode import ProjectionEncoder
from ..tasks.methods.sign import SignEncoder
from ..tasks.protocols import LeafPlan
from ..tasks.search import NearestCodes
from .active_index import ActiveIndex, is_index
from .arrays import make_reader
from .code_index import CodeIndex
from .code_inputs import check_count, check_same_model, checked_projections, loaded, stored_codes
from .errors import ConfigError
from .evaluate_inputs import opened
from .model import Model, ModelLike, as_model
from .rescore import check_metric, rescored
from .shared_arrays import scratch_beside, share
from .stream import open_stream

if TYPE_CHECKING:
    import os

    from ..storage.places import Place
    from ..tasks.protocols import Executor, Program
    from .arrays import Vectors

_HELD = 2**23  # list entries held at once: more queries take several passes


def search(
    codes: Codes | str | os.PathLike[str] | np.ndarray,
    queries: Any,
    k: int,
    *,
    model: ModelLike | None = None,
    asymmetric: bool = False,
    rescore: Vectors | None = None,
    oversample: int = 4,
    metric: str = "euclidean",
    scheduler: Any = None,
    executor: Executor | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k nearest codes of each query, nearest first; equal distances by id.

    For many searches of codes that fit into memory, a `CodeIndex` is faster.

    Parameters
    ----------
    codes : Codes, path of codes or of a stream, or ndarray of uint8, shape (n, n_bytes)
        What is searched; packed, least significant bit first.  Of a `stream` what is committed by now, with
        its own model unless one is given.  Or the path of an `ActiveIndex`: queries are vectors then,
        distances and rescoring those of its metric.
    queries : like codes, or vectors if a ``model`` is given
        What is looked for.  With ``asymmetric`` and no model: projections, float of shape (q, n_bits).
    k : int
        If there are fewer codes, all are returned.
    model : Model, path, or fitted estimator, optional
        Encodes the queries; must be the one that made stored codes.
    asymmetric : bool
        Weigh every bit that disagrees by the absolute value of the query's projection.
    rescore : Dataset, path, or array of shape (n, d), optional
        Order ``oversample * k`` candidates by the distance of their vectors to the query's; needs a model.
    oversample : int, default 4
    metric : {"euclidean", "cosine"}
        Of rescoring; without it codes are compared by their bits alone, and "cosine" is refused.
    scheduler : str or distributed.Client, optional
        Where to search stored codes, as in `bitfleet.train`; this process by default.
    executor : Executor, optional
        Instead of ``scheduler``: an executor that is there already.

    Returns
    -------
    distances : ndarray, shape (q, min(k, n))
        int32 Hamming distances; float64 if asymmetric; float64, squared, if rescored.
    ids : ndarray of int64, shape (q, min(k, n))

    Raises
    ------
    ConfigError
        If codes and queries do not fit each other.

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(300, 16))
    >>> model = bf.ITQ(n_bits=16, random_state=0).fit(X)
    >>> bf.search(model.encode(X), X[:3], k=2, model=model)[1][:, 0].tolist()
    [0, 1, 2]
    """
    check_count("k", k)
    check_count("oversample", oversample)
    check_metric(metric, rescored=rescore is not None)
    if is_index(codes):
        if scheduler is not None or executor is not None:
            raise ConfigError("an index is searched in this process alone: leave scheduler out")
        packed = ActiveIndex.open(codes, model)  # type: ignore[arg-type]
        return packed.search(queries, k, rescore=rescore, oversample=oversample)
    if is_stream(codes):
        streamed = open_stream(codes)  # type: ignore[arg-type]
        codes, model = streamed.codes(), streamed.model if model is None else model
    stored = stored_codes(codes)
    model = None if model is None else as_model(model)
    n_bits = stored.n_bits if isinstance(stored, Codes) else None if model is None else model.n_bits
    with temporary_place(scratch_beside(stored, scheduler)) as scratch:
        probes, vectors = _probes(stored, queries, model, n_bits, scratch, asymmetric=asymmetric)
        if rescore is not None and vectors is None:
            raise ConfigError(
                "rescoring compares vectors: give queries as vectors, and the model= of the codes"
            )
        if not isinstance(stored, Codes):
            if scheduler is not None or executor is not None:
                raise ConfigError(
                    "a cluster searches codes in files: write them with encode(…, dest=); arrays and streams "
                    "are searched in this process alone: leave scheduler out"
                )
            n_active = None if model is None else model.encoder().n_active
            width = probes.shape[1] if asymmetric else n_bits
            index = CodeIndex(stored, n_active, n_bits=width)
            return index.search(
                probes, k, asymmetric=asymmetric, query_vectors=vectors, rescore=rescore,
                oversample=oversample, metric=metric,
            )  # fmt: skip
        if model is not None and stored.model_digest != model.encoder_digest:
            raise ConfigError(
                f"{stored.path} was encoded by the model {stored.model_digest[:12]}, "
                f"not by {model.encoder_digest[:12]}"
            )
        wanted = min(k, stored.n_rows)
        depth = wanted if rescore is None else min(wanted * oversample, stored.n_rows)
        with opened(executor, scheduler, scratch) as there:
            shared = None if isinstance(there, SerialExecutor) else scratch
            distances, ids = _search(stored, there, probes, depth, shared, asymmetric=asymmetric)
    if rescore is None:
        return distances, ids
    return rescored(ids, wanted, rescore, vectors, None, metric=metric)


def projections(model: ModelLike, vectors: Any) -> np.ndarray:
    """Return the numbers whose signs are a model's codes: what `CodeIndex.search` takes with ``asymmetric``.

    Parameters
    ----------
    model : Model, path, or fitted estimator
        Of dense codes.
    vectors : array of shape (m, d)

    Returns
    -------
    ndarray of float64, shape (m, n_bits)

    Raises
    ------
    ConfigError
        If the model's codes are no signs of projections.

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(300, 16))
    >>> itq = bf.ITQ(n_bits=16, random_state=0).fit(X)
    >>> bool(((bf.projections(itq, X) >= 0) == itq.transform(X)).all())
    True
    """
    encoder = as_model(model).encoder()
    if not isinstance(encoder, ProjectionEncoder | SignEncoder) or encoder.n_active is not None:
        raise ConfigError("the codes of this model are not signs of projections: search without asymmetric=")
    return (np.asarray(vectors, np.float64) - encoder.mean) @ encoder.projection


def _search(
    codes: Codes,
    executor: Executor,
    probes: np.ndarray,
    k: int,
    scratch: Place | None,
    *,
    asymmetric: bool,
) -> tuple[np.ndarray, np.ndarray]:
    program: Program = NearestProjections(k) if asymmetric else NearestCodes(k, n_active=codes.n_active)
    if not k or not len(probes):
        dtype = np.float64 if asymmetric else np.int32
        return np.empty((len(probes), k), dtype), np.empty((len(probes), k), np.int64)
    leaves = LeafPlan(codes.n_rows, codes.chunk_rows).leaves()
    name = "query_projections" if asymmetric else "query_codes"
    found = []
    step = max(1, _HELD // k)
    for at in range(0, len(probes), step):
        reference = share({name: probes[at : at + step]}, scratch, "queries")
        found.append(executor.reduce(codes.reader(), leaves, program, reference))
    return np.concatenate([part["distance"] for part in found]), np.concatenate([p["id"] for p in found])


def _probes(
    stored: Any, queries: Any, model: Model | None, n_bits: int | None, scratch: Place, *, asymmetric: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the queries as codes or projections, and as vectors if that is what they were."""
    if model is None:
        if asymmetric:
            return checked_projections(queries, n_bits), None
        queries = stored_codes(queries)
        packed, found, _ = loaded(queries, n_bits, None)
        if n_bits not in (None, found):
            raise ConfigError(
                f"expected queries of {n_bits} bits, got {found}: encode both with the same model"
            )
        check_same_model(stored, queries)
        return packed, None
    reader = make_reader(queries, scratch / "queries")
    encoder = model.encoder()
    if reader.n_features != encoder.n_features:
        raise ConfigError(
            f"the model encodes rows of {encoder.n_features} features, the queries have {reader.n_features}"
        )
    vectors = reader.read(LeafPlan(reader.n_rows, max(reader.n_rows, 1)).leaf(0)).vectors
    return (projections(model, vectors) if asymmetric else encoder.encode(vectors)), vectors
