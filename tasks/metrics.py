"""What the retrieval metrics are called, mean and need, and how each is computed for every query.

``map@n``
    AP@n = Σ_k P@k · rel_k / Σ_k rel_k, k = 1…n: precision averaged over the relevant items *retrieved*.
``map_min@n``
    The same sum divided by min(n, R), R = relevant items in the database.
``precision@n``
    Share of relevant items among the n retrieved.
``recallK@R``
    Share of the K true neighbours among the first R retrieved; ``recall@R`` means K = 10.
``overlap_map@k``
    |L ∩ L_H| / k of the k nearest by distance and by Hamming distance, expected over the orders of ties.
``kendall@k``
    Kendall's τ-b between distance and Hamming distance over the k true neighbours.
``gap@k``
    Δ_k: how much farther the (k + 1)-th true neighbour is than the k-th.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_NEIGHBORS = 10
FORMS = (
    "map@N", "map_min@N", "precision@N", "recallK@R", "recall@R", "overlap_map@K", "kendall@K", "gap@K",
)  # fmt: skip

_KINDS = r"map|map_min|precision|overlap_map|kendall|gap|recall(?P<neighbors>[1-9]\d*)?"
_NAME = re.compile(rf"(?P<kind>{_KINDS})@(?P<cutoff>[1-9]\d*)")

_DEFINITIONS = {
    "map": "mean over queries of the precision at each relevant item among the {cutoff} retrieved, "
    "averaged over the relevant items retrieved; 0 where none is",
    "map_min": "mean over queries of the precisions at each relevant item among the {cutoff} retrieved, "
    "summed and divided by min({cutoff}, relevant items in the database); 0 where none is",
    "precision": "mean over queries of the share of relevant items among the first {cutoff} retrieved",
    "recall": "mean over queries of the share of the {neighbors} nearest rows by {distance} distance that "
    "are among the first {cutoff} retrieved",
    "overlap_map": "mean over queries of the share of the {cutoff} nearest rows by {distance} distance that "
    "are among the {cutoff} nearest by Hamming distance, its expected value over all orders of equal ones",
    "kendall": "mean over queries of Kendall's tau-b between {distance} and Hamming distance over the "
    "{cutoff} nearest rows by {distance} distance; 0 where either is constant",
    "gap": "mean over queries of the difference of {distance} distance between the nearest rows number "
    "{cutoff} + 1 and {cutoff}",
}


@dataclass(frozen=True)
class Metric:
    """One metric by name.

    Attributes
    ----------
    name : str
        As asked for, e.g. ``"recall10@100"``.
    kind : str
        ``"map"``, ``"map_min"``, ``"precision"``, ``"recall"``, ``"overlap_map"``, ``"kendall"``, ``"gap"``.
    cutoff : int
        How many retrieved items count (n or R), or k.
    neighbors : int
        The true neighbours looked for; 0 for label metrics.
    """

    name: str
    kind: str
    cutoff: int
    neighbors: int = 0

    @property
    def needs_labels(self) -> bool:
        """Whether relevance is "has the query's label" (else: "is a true neighbour")."""
        return not self.neighbors

    @property
    def retrieves(self) -> bool:
        """Whether it is about the order of what is retrieved."""
        return self.kind in ("map", "map_min", "precision", "recall")

    @property
    def needs_codes(self) -> bool:
        """Whether it is about the Hamming distances of true neighbours."""
        return self.kind in ("overlap_map", "kendall")

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


def overlap_at(distances: np.ndarray, histogram: np.ndarray, k: int) -> np.ndarray:
    """Return each query's share of true neighbours among the k nearest codes, expected over orders of ties.

    AP = |L ∩ L_H| / k of the NIBH paper, where the rows at the k-th smallest Hamming distance take the places
    that nearer ones leave with equal chances.

    Parameters
    ----------
    distances : ndarray of int, shape (q, K)
        Hamming distances of the true neighbours, nearest first; the first k count.
    histogram : ndarray of int, shape (q, M + 1)
        How many rows of the database are at each Hamming distance.
    k : int
        All rows, if there are fewer.

    Returns
    -------
    ndarray of float64, shape (q,)

    Examples
    --------
    >>> overlap_at(np.array([[0, 1]]), np.array([[1, 3]]), 2)  # the second place is one of three rows'
    array([0.66666667])
    """
    k = min(k, int(histogram[:1].sum()))
    reached = np.cumsum(histogram, axis=1)
    last = np.argmax(reached >= k, axis=1)[:, None]
    tied = np.take_along_axis(histogram, last, axis=1)
    nearer = np.take_along_axis(reached, last, axis=1) - tied
    wanted = distances[:, :k]
    chance = np.where(wanted < last, 1.0, np.where(wanted == last, (k - nearer) / np.maximum(tied, 1), 0.0))
    return chance.sum(axis=1) / max(k, 1)


def kendall_at(true_distances: np.ndarray, distances: np.ndarray, k: int) -> np.ndarray:
    """Return Kendall's τ-b of two distances over each query's first k neighbours; 0 where one is constant.

    τ_b = (concordant - discordant) / √(pairs not tied in the one · pairs not tied in the other), as
    `scipy.stats.kendalltau` has it, which is not a number where one is constant.

    Parameters
    ----------
    true_distances : ndarray of float, shape (q, K)
    distances : ndarray of int, shape (q, K)

    Returns
    -------
    ndarray of float64, shape (q,)
    """
    x, y = true_distances[:, :k], distances[:, :k]
    agreeing, apart_x, apart_y = (np.zeros(len(x), np.int64) for _ in range(3))
    for step in range(1, x.shape[1]):
        sign_x = np.sign(x[:, step:] - x[:, :-step]).astype(np.int8)
        sign_y = np.sign(y[:, step:] - y[:, :-step]).astype(np.int8)
        agreeing += (sign_x * sign_y).sum(axis=1, dtype=np.int64)
        apart_x += np.count_nonzero(sign_x, axis=1)
        apart_y += np.count_nonzero(sign_y, axis=1)
    scale = np.sqrt(apart_x.astype(np.float64)) * np.sqrt(apart_y.astype(np.float64))
    return agreeing / np.where(scale > 0, scale, 1.0)


def gap_at(true_distances: np.ndarray, k: int) -> np.ndarray:
    """Return Δ_k = d(x₀, x_{k+1}) - d(x₀, x_k), the NIBH paper's k-order gap of each query.

    Parameters
    ----------
    true_distances : ndarray of float64, shape (q, K)
        Squared, ascending, K > k.

    Returns
    -------
    ndarray of float64, shape (q,)
    """
    return np.sqrt(true_distances[:, k]) - np.sqrt(true_distances[:, k - 1])


def _parse(name: str) -> Metric:
    match = _NAME.fullmatch(name)
    assert match is not None
    kind = match["kind"]
    if kind.startswith("recall"):
        return Metric(name, "recall", int(match["cutoff"]), int(match["neighbors"] or DEFAULT_NEIGHBORS))
    cutoff = int(match["cutoff"])
    neighbors = {"overlap_map": cutoff, "kendall": cutoff, "gap": cutoff + 1}.get(kind, 0)
    return Metric(name, kind, cutoff, neighbors)
