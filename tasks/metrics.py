"""What the retrieval metrics are called, mean and need, and how each is computed for every query.

``map@n``
    AP@n = Σ_k P@k · rel_k / Σ_k rel_k, k = 1…n: precision averaged over the relevant items *retrieved*.
``map_min@n``
    The same sum divided by min(n, R), R = relevant items in the database.
``precision@n``
    Share of relevant items among the n retrieved.
``recallK@R``
    Share of the K true neighbours among the first R retrieved; ``recall@R`` means K = 10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_NEIGHBORS = 10
FORMS = ("map@N", "map_min@N", "precision@N", "recallK@R", "recall@R")

_NAME = re.compile(r"(?P<kind>map|map_min|precision|recall(?P<neighbors>[1-9]\d*)?)@(?P<cutoff>[1-9]\d*)")

_DEFINITIONS = {
    "map": "mean over queries of the precision at each relevant item among the {cutoff} retrieved, "
    "averaged over the relevant items retrieved; 0 where none is",
    "map_min": "mean over queries of the precisions at each relevant item among the {cutoff} retrieved, "
    "summed and divided by min({cutoff}, relevant items in the database); 0 where none is",
    "precision": "mean over queries of the share of relevant items among the first {cutoff} retrieved",
    "recall": "mean over queries of the share of the {neighbors} nearest rows by {distance} distance that "
    "are among the first {cutoff} retrieved",
}


@dataclass(frozen=True)
class Metric:
    """One metric by name.

    Attributes
    ----------
    name : str
        As asked for, e.g. ``"recall10@100"``.
    kind : str
        ``"map"``, ``"map_min"``, ``"precision"`` or ``"recall"``.
    cutoff : int
        How many retrieved items count (n or R).
    neighbors : int
        K, the true neighbours looked for; 0 for label metrics.
    """

    name: str
    kind: str
    cutoff: int
    neighbors: int = 0

    @property
    def needs_labels(self) -> bool:
        """Whether relevance is "has the query's label" (else: "is a true neighbour")."""
        return self.kind != "recall"

    def definition(self, distance: str = "Euclidean") -> str:
        """Return the metric in a sentence."""
        return _DEFINITIONS[self.kind].format(cutoff=self.cutoff, neighbors=self.neighbors, distance=distance)


def parse_metrics(names: str | Iterable[str]) -> tuple[Metric, ...]:
    """Return the metrics named, each once, in the order given.

    Parameters
    ----------
    names : str or iterable of str
        ``"map@1000,recall10@100"`` or the names one by one.

    Raises
    ------
    ValueError
        If none is given or any name is unknown; the message lists every bad name and the known forms.

    Examples
    --------
    >>> [m.cutoff for m in parse_metrics("map@1000, recall@100")]
    [1000, 100]
    """
    asked = names.split(",") if isinstance(names, str) else list(names)
    asked = [name.strip() if isinstance(name, str) else name for name in asked]
    bad = [name for name in asked if not (isinstance(name, str) and _NAME.fullmatch(name))]
    if bad or not asked:
        what = "unknown metrics " + ", ".join(repr(name) for name in bad) if bad else "no metric given"
        raise ValueError(
            f"{what}; known are {', '.join(FORMS)} with positive whole numbers, such as 'map@1000'"
        )
    return tuple(_parse(name) for name in dict.fromkeys(asked))


def relevance(retrieved_labels: np.ndarray, query_labels: np.ndarray) -> np.ndarray:
    """Return which retrieved items have their query's label.

    Parameters
    ----------
    retrieved_labels : ndarray of int, shape (q, n)
        Labels in order of retrieval; -1 = none, never relevant.
    query_labels : ndarray of int, shape (q,)

    Returns
    -------
    ndarray of bool, shape (q, n)
    """
    return (retrieved_labels == query_labels[:, None]) & (retrieved_labels >= 0)


def average_precision_at(
    relevant: np.ndarray, cutoff: int, n_relevant: np.ndarray | None = None
) -> np.ndarray:
    """Return each query's average precision among the first ``cutoff`` items.

    Parameters
    ----------
    relevant : ndarray of bool, shape (q, n)
        Relevance in order of retrieval; n may be smaller than ``cutoff`` (a small database).
    cutoff : int
    n_relevant : ndarray of int, shape (q,), optional
        Relevant items in the whole database.  Given, the sum is divided by min(cutoff, n_relevant) instead
        of by the number of relevant items retrieved.

    Returns
    -------
    ndarray of float64, shape (q,)

    Examples
    --------
    >>> average_precision_at(np.array([[True, False, True, False]]), 4)
    array([0.83333333])
    """
    hits = relevant[:, :cutoff]
    precisions = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    total = np.sum(precisions * hits, axis=1)
    count = hits.sum(axis=1) if n_relevant is None else np.minimum(n_relevant, cutoff)
    return total / np.maximum(count, 1)


def precision_at(relevant: np.ndarray, cutoff: int) -> np.ndarray:
    """Return each query's share of relevant items among the first ``cutoff`` (or all, if there are fewer).

    Parameters
    ----------
    relevant : ndarray of bool, shape (q, n)
    cutoff : int

    Returns
    -------
    ndarray of float64, shape (q,)
    """
    hits = relevant[:, :cutoff]
    return hits.sum(axis=1) / max(hits.shape[1], 1)


def recall_at(true_ids: np.ndarray, retrieved_ids: np.ndarray, neighbors: int, cutoff: int) -> np.ndarray:
    """Return each query's share of its true neighbours among the first items retrieved.

    Parameters
    ----------
    true_ids : ndarray of int64, shape (q, K)
        True neighbours, nearest first; the first ``neighbors`` count (all, if the database holds fewer).
    retrieved_ids : ndarray of int64, shape (q, n)
        Retrieved items, best first; the first ``cutoff`` count.

    Returns
    -------
    ndarray of float64, shape (q,)
    """
    wanted, got = true_ids[:, :neighbors], retrieved_ids[:, :cutoff]
    found = [np.isin(w, g, assume_unique=True).sum() for w, g in zip(wanted, got, strict=True)]
    return np.asarray(found, dtype=np.float64) / max(wanted.shape[1], 1)


def _parse(name: str) -> Metric:
    match = _NAME.fullmatch(name)
    assert match is not None
    kind = match["kind"]
    if kind.startswith("recall"):
        return Metric(name, "recall", int(match["cutoff"]), int(match["neighbors"] or DEFAULT_NEIGHBORS))
    return Metric(name, kind, int(match["cutoff"]))
