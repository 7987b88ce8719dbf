"""How good codes are: retrieval of labelled rows and of true neighbours.

The database is never in memory as a whole, nor is it copied: each block is encoded where it is read, and only
the best of every query travel (`neighbors`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster.serial import SerialExecutor
from ..storage.places import temporary_place
from ..tasks.metrics import (
    average_precision_at,
    gap_at,
    kendall_at,
    overlap_at,
    parse_metrics,
    precision_at,
    recall_at,
    relevance,
)
from ..tasks.protocols import LeafPlan
from .evaluate_inputs import check_fit, codes_of, folder_for, opened, rows_of
from .model import ModelLike, as_model
from .neighbors import BlockSearch
from .ranking import check_ways, rank

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import xarray

    from ..storage.codes import Codes
    from ..tasks.metrics import Metric
    from ..tasks.protocols import Executor
    from .arrays import Vectors
    from .evaluate_inputs import Rows
    from .model import Model
    from .ranking import Ranking, Ways

DEFAULT_METRICS = ("map@1000", "precision@1000", "recall10@100")
DEFAULT_WITHOUT_LABELS = ("recall10@10", "recall10@100")
SHOWN = 10  # retrieved items that the result keeps for every query
TIE_RULE = "equal distances in the order of a Philox number addressed by (seed, row), then by row"

_HELD = 2**23  # list entries held at once: more queries take several passes
_SPELLED = {"euclidean": "Euclidean", "cosine": "cosine"}


def evaluate(
    model: ModelLike,
    data: Vectors,
    queries: Vectors,
    metrics: str | Iterable[str] | None = None,
    *,
    codes: Codes | str | os.PathLike[str] | None = None,
    scheduler: Any = None,
    executor: Executor | None = None,
    seed: int = 0,
    distance: str = "euclidean",
    refine: int | None = None,
    n_sbiht: int = 0,
    asymmetric: bool = False,
    rescore: int | None = None,
) -> xarray.Dataset:
    """Measure how well a model's codes retrieve rows of ``data`` for ``queries``.

    Codes at equal Hamming distance are ordered by random numbers addressed by (seed, row), then by row: the
    result is the same for every block size, number of workers and run.

    Parameters
    ----------
    model : Model, path, or fitted estimator
    data : Dataset, path, array of shape (n, d), or pair (array, labels)
        What is searched.
    queries : like data, shape (q, d)
        What is looked for.
    metrics : str or iterable of str, optional
        By default `DEFAULT_METRICS`, or `DEFAULT_WITHOUT_LABELS` where data or queries have no labels.
        ``map@n``, ``map_min@n``, ``precision@n`` (these need labels), ``recallK@R``, ``recall@R`` (K = 10),
        ``overlap_map@k``, ``kendall@k``, ``gap@k`` (see `bitfleet.tasks.metrics`).
    codes : Codes or path, optional
        Codes of ``data`` made with this model; otherwise each block is encoded as it is read.
    scheduler : str or distributed.Client, optional
        Where to compute, as in `bitfleet.train`; this process by default.
    executor : Executor, optional
        Instead of ``scheduler``: an executor that is there already.
    seed : int
        Orders equal distances.
    distance : str
        ``"euclidean"`` or ``"cosine"``: what makes true neighbours, and what ``rescore`` orders by.
    refine : int, optional
        Candidate refinement: for a metric over the first n items, take the ``refine * n`` nearest codes and
        order them by the distance of the query to the vectors that they stand for.  The model needs a
        decoder (`bitfleet.fit_decoder`).
    n_sbiht : int, default 0
        With ``refine``, of sparse codes: decode by so many steps of Algorithm 4 of the POSH paper.
    asymmetric : bool
        Rank codes as `bitfleet.search` does with ``asymmetric=True``: by the queries' projections.
    rescore : int, optional
        For a metric over the first n items, take the ``rescore * n`` nearest codes and order them by the
        distance of their vectors, as `bitfleet.search` does with ``rescore=`` and ``oversample=``.

    Returns
    -------
    xarray.Dataset
        ``value (metric)`` with its ``standard_error (metric)`` over queries, ``per_query (metric, query)``,
        and the first items retrieved: ``retrieved (query, rank)`` row numbers, ``hamming (query, rank)``,
        or ``asymmetric_distance`` (with ``refine`` or ``rescore`` those of the metric over most items).
        The attributes hold each metric's definition, the tie rule, and the digests of model and data.

    Raises
    ------
    ValueError
        If a metric is unknown (all are listed), sizes do not fit, or labels are missing that a metric needs.

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(200, 8))
    >>> lsh = bf.LSH(n_bits=64, random_state=0).fit(X)
    >>> found = bf.evaluate(lsh, X, X[:20], metrics=("recall5@50", "recall5@200"))
    >>> found["metric"].values.tolist(), float(found["value"][1])
    (['recall5@50', 'recall5@200'], 1.0)
    """
    model = as_model(model)
    asked = None if metrics is None else parse_metrics(metrics)
    ways = check_ways(
        model, asked or (), distance=distance, asymmetric=asymmetric, refine=refine, n_sbiht=n_sbiht,
        rescore=rescore,
    )  # fmt: skip
    with (
        temporary_place(folder_for(model, scheduler)) as scratch,
        opened(executor, scheduler, scratch) as chosen,
    ):
        in_process = isinstance(chosen, SerialExecutor)
        database = rows_of(data, "data", scratch, in_process=in_process)
        probes = rows_of(queries, "queries", scratch, in_process=True)
        if asked is None:
            labelled = database.labels is not None and probes.labels is not None
            asked = parse_metrics(default_metrics(labelled=labelled))
        check_fit(model, database, probes, asked)
        stored = None if codes is None else codes_of(codes, model, database)
        search = BlockSearch(model, database.reader, chosen, seed, stored, None if in_process else scratch)
        found = _measure(search, database, probes, asked, ways)
    return _result(found, asked, model, database, probes, seed=seed, ways=ways)


def default_metrics(*, labelled: bool) -> tuple[str, ...]:
    """Return what is measured where nobody says what."""
    return DEFAULT_METRICS if labelled else DEFAULT_WITHOUT_LABELS


@dataclass(frozen=True)
class _Found:
    """Metrics of every query, shape (metric, query), and what it retrieved first, shape (query, rank)."""

    per_query: np.ndarray
    retrieved: np.ndarray
    measured: np.ndarray


def _measure(
    search: BlockSearch,
    database: Rows,
    queries: Rows,
    asked: tuple[Metric, ...],
    ways: Ways,
) -> _Found:
    n_rows = database.reader.n_rows
    depth = min(max([SHOWN, *(metric.cutoff for metric in asked if metric.retrieves)]), n_rows)
    neighbors = min(max(metric.neighbors for metric in asked), n_rows)
    held = max(min(depth * ways.factor, n_rows), neighbors)
    batches = LeafPlan(queries.reader.n_rows, max(1, _HELD // held)).leaves()
    values, retrieved, measured = [], [], []
    for batch in batches:
        vectors = queries.reader.read(batch).vectors
        ranking = rank(search, vectors, depth, ways)
        true = search.by_vector(vectors, neighbors, ways.distance) if neighbors else None
        places = None
        if true is not None and any(metric.needs_codes for metric in asked):
            places = search.by_neighbor(vectors, true["id"])
        labels = None if queries.labels is None else queries.labels[batch.start : batch.stop]
        values.append(_values(asked, ranking, true, places, labels, database.labels))
        retrieved.append(ranking.first("id", depth)[:, :SHOWN])
        measured.append(ranking.first("distance", depth)[:, :SHOWN])
    return _Found(np.concatenate(values, axis=1), np.concatenate(retrieved), np.concatenate(measured))


def _values(
    asked: tuple[Metric, ...],
    ranking: Ranking,
    true: dict[str, np.ndarray] | None,
    places: dict[str, np.ndarray] | None,
    query_labels: np.ndarray | None,
    database_labels: np.ndarray | None,
) -> np.ndarray:
    """Return all metrics of a batch of queries, shape (metric, query)."""
    labels = n_relevant = None
    if query_labels is not None and database_labels is not None:
        labels = database_labels
        names, counts = np.unique(database_labels, return_counts=True)
        place = np.minimum(np.searchsorted(names, query_labels), len(names) - 1)
        n_relevant = np.where(names[place] == query_labels, counts[place], 0)
    rows = []
    for metric in asked:
        if true is not None and metric.neighbors:
            rows.append(_against_neighbors(metric, ranking, true, places))
            continue
        retrieved = ranking.first("id", metric.cutoff)
        assert labels is not None
        assert query_labels is not None
        relevant = relevance(labels[retrieved], query_labels)
        if metric.kind == "precision":
            rows.append(precision_at(relevant, metric.cutoff))
        else:
            among = n_relevant if metric.kind == "map_min" else None
            rows.append(average_precision_at(relevant, metric.cutoff, among))
    return np.stack(rows)


def _against_neighbors(
    metric: Metric, ranking: Ranking, true: dict[str, np.ndarray], places: dict[str, np.ndarray] | None
) -> np.ndarray:
    """Return a metric of true neighbours for a batch of queries, shape (query,)."""
    k = metric.cutoff
    if metric.kind == "recall":
        return recall_at(true["id"], ranking.first("id", k), metric.neighbors, k)
    if metric.kind == "gap":
        return gap_at(true["distance"], k)
    assert places is not None
    if metric.kind == "kendall":
        return kendall_at(true["distance"], places["distance"], k)
    return overlap_at(places["distance"], places["histogram"], k)


def _result(
    found: _Found,
    asked: tuple[Metric, ...],
    model: Model,
    database: Rows,
    queries: Rows,
    *,
    seed: int,
    ways: Ways,
) -> xarray.Dataset:
    import xarray

    n_queries = found.per_query.shape[1]
    spread = found.per_query.std(axis=1, ddof=1) if n_queries > 1 else np.full(len(asked), np.nan)
    attrs = {
        "model": model.digest,
        "method": model.method.name,
        "data": database.digest or "in memory",
        "queries": queries.digest or "in memory",
        "n_rows": database.reader.n_rows,
        "n_queries": n_queries,
        "seed": seed,
        "ties": TIE_RULE,
        "true_neighbors": f"{ways.distance} distance",
    }
    return xarray.Dataset(
        {
            "value": ("metric", found.per_query.mean(axis=1)),
            "standard_error": ("metric", spread / np.sqrt(n_queries)),
            "per_query": (("metric", "query"), found.per_query),
            "retrieved": (("query", "rank"), found.retrieved),
            ways.measure: (("query", "rank"), found.measured),
        },
        coords={
            "metric": [metric.name for metric in asked],
            "query": np.arange(n_queries),
            "rank": np.arange(1, found.retrieved.shape[1] + 1),
        },
        attrs=attrs
        | {metric.name: metric.definition(_SPELLED[ways.distance]) for metric in asked}
        | ways.attributes(),
    )
