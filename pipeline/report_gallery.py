"""What some queries retrieve, method by method, with pictures where the rows are images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..storage.errors import StorageError
from . import report_page as html
from .arrays import as_dataset
from .config import resolve_path
from .report_pictures import image_shape, row_image

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..storage.datasets import Dataset
    from ..storage.places import Place

TITLE = "What is retrieved"


@dataclass(frozen=True)
class Evaluated:
    """A run with the content of its ``results.json``."""

    label: str
    path: Place
    results: Mapping[str, Any]


def gallery(runs: Sequence[Evaluated]) -> html.Markup:
    """Return the section; of ``runs``, those that were evaluated on the same rows as the first."""
    first = runs[0]
    try:
        database, queries = (Pictures(evaluated_dataset(first, name)) for name in ("data", "queries"))
    except (StorageError, OSError, TypeError) as error:
        return html.section(TITLE, html.paragraph(f"The rows cannot be shown: {error}"))
    same = [run for run in runs if all(run.results[k] == first.results[k] for k in ("data", "queries"))]
    blocks = []
    for shown in first.results["shown"]:
        row = shown["query"]
        strips = [
            (run.label, _items(other, database, queries.label(row)))
            for run in same
            for other in run.results["shown"]
            if other["query"] == row
        ]
        blocks.append(html.query_block(f"Query: {queries.caption(row)}", queries.image(row), strips))
    note = "The nearest rows by Hamming distance, best first."
    if queries.has_labels and database.has_labels:
        note += (
            " ✓ in a solid frame: has the query's label; ✗ in a dashed frame: has another, the one below it."
        )
    return html.section(TITLE, html.paragraph(note), *blocks)


class Pictures:
    """Labels, captions and images of a data set's rows."""

    def __init__(self, dataset: Dataset) -> None:
        self.has_labels = dataset.has_labels
        self._dataset = dataset
        self._labels = dataset.labels() if dataset.has_labels else None
        self._shape = image_shape(dataset)

    def label(self, row: int) -> int | None:
        """Return the label, None if there are none."""
        return None if self._labels is None else int(self._labels[row])

    def caption(self, row: int) -> str:
        """Return the label's name, else its number, else the row's number."""
        label = self.label(row)
        if label is None:
            return f"row {row}"
        names = self._dataset.label_names
        return names[label] if 0 <= label < len(names) else str(label)

    def image(self, row: int) -> str | None:
        """Return the row as a ``data:`` address if rows are images."""
        return None if self._shape is None else row_image(self._dataset, row, self._shape)


def _items(shown: Mapping[str, Any], database: Pictures, wanted: int | None) -> list[html.Markup]:
    items = []
    what, distances = "Hamming distance", shown.get("hamming")
    if distances is None:
        what, distances = "asymmetric distance", shown["asymmetric_distance"]
    for row, distance in zip(shown["retrieved"], distances, strict=True):
        label = database.label(row)
        verdict = None if wanted is None or label is None else label == wanted
        title = f"row {row}, {what} {distance:g}"
        items.append(html.retrieved_item(database.caption(row), verdict, database.image(row), title))
    return items


def evaluated_dataset(run: Evaluated, name: str) -> Dataset:
    """Open what a run's results are of, and make sure that it still is what was evaluated."""
    path = run.results["paths"][name]
    if path is None:
        raise TypeError(f"the {name} were evaluated from memory")
    dataset = as_dataset(resolve_path(path, run.path))
    if dataset.digest != run.results[name]:
        raise StorageError(f"{dataset.path} is not the data set that was evaluated")
    return dataset
