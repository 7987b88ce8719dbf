"""What an evaluation ranks by: codes, the queries' real numbers, and better distances of candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tasks.refine import refined_order
from .errors import ConfigError
from .refine import check_refinement
from .rescore import METRICS
from .search import projections

if TYPE_CHECKING:
    from ..tasks.metrics import Metric
    from .model import Model
    from .neighbors import BlockSearch
    from .refine import Refinement


@dataclass(frozen=True)
class Ways:
    """How a query ranks rows.

    Attributes
    ----------
    distance : str
        ``"euclidean"`` or ``"cosine"``: of vectors.
    asymmetric : bool
        Weigh bits by the query's projection.
    refinement : Refinement or None
        Order candidates by what their codes stand for.
    rescore : int or None
        Order so many times the wanted items by their vectors.
    """

    distance: str = "euclidean"
    asymmetric: bool = False
    refinement: Refinement | None = None
    rescore: int | None = None

    @property
    def factor(self) -> int:
        """Candidates for each item."""
        return self.refinement.factor if self.refinement else self.rescore or 1

    @property
    def measure(self) -> str:
        """The name of the distance that candidates are found by."""
        return "asymmetric_distance" if self.asymmetric else "hamming"

    def attributes(self) -> dict[str, Any]:
        """Return what a result says of it, beyond plain Hamming distance."""
        said: dict[str, Any] = {} if self.refinement is None else self.refinement.attributes()
        if self.asymmetric:
            said["asymmetric"] = True
        if self.rescore is not None:
            said["rescore"] = self.rescore
            said["rescoring"] = (
                f"of n items the {self.rescore}n nearest codes, ordered by {self.distance} distance of the "
                "vectors"
            )
        return said


def check_ways(
    model: Model,
    asked: tuple[Metric, ...],
    *,
    distance: str,
    asymmetric: bool,
    refine: int | None,
    n_sbiht: int,
    rescore: int | None,
) -> Ways:
    """Return how a caller wants rows ranked.

    Raises
    ------
    ConfigError
        If the numbers make no sense, the model cannot do it, or a metric is of plain codes alone.
    """
    if distance not in METRICS:
        raise ConfigError(f"expected distance to be one of {', '.join(METRICS)}, got {distance!r}")
    if rescore is not None and (isinstance(rescore, bool) or not isinstance(rescore, int) or rescore < 1):
        raise ConfigError(f"expected rescore to be an integer >= 1, got {rescore!r}")
    if rescore is not None and refine is not None:
        raise ConfigError("expected rescore= (by the vectors themselves) or refine= (by a decoder), got both")
    refinement = check_refinement(model, refine, n_sbiht)
    if asymmetric:
        projections(model, np.zeros((0, model.encoder().n_features)))  # says if there are none
    plain = [metric.name for metric in asked if metric.needs_codes]
    if plain and (asymmetric or rescore is not None):
        raise ConfigError(
            f"{', '.join(plain)} compare Hamming distances: leave asymmetric= and rescore= out, or ask for "
            "recallK@R"
        )
    return Ways(distance, bool(asymmetric), refinement, rescore)


@dataclass(frozen=True)
class Ranking:
    """What a batch of queries retrieved: lists of candidates and, where they are ordered anew, by what."""

    found: dict[str, np.ndarray]
    better: np.ndarray | None = None
    factor: int = 1

    def first(self, name: str, n: int) -> np.ndarray:
        """Return ``"id"`` or ``"distance"`` (of the codes) of the first n items, shape (q, n)."""
        if self.better is None:
            return self.found[name][:, :n]
        return np.take_along_axis(self.found[name], refined_order(self.better, n, self.factor), axis=1)


def rank(search: BlockSearch, queries: np.ndarray, n: int, ways: Ways) -> Ranking:
    """Search the n best of each query."""
    found = search.by_code(queries, n * ways.factor, asymmetric=ways.asymmetric)
    if ways.refinement is not None:
        better = search.by_decoder(queries, found["id"], ways.refinement.n_sbiht)
    elif ways.rescore is not None:
        better = search.by_original(queries, found["id"], ways.distance)
    else:
        return Ranking(found)
    return Ranking(found, better, ways.factor)
