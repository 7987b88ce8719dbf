"""How far apart codes of true neighbours are, and of other rows, on a sample of what was searched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..storage.errors import StorageError
from ..tasks.kernels.pack import unpack_bits
from . import report_page as html
from .errors import PipelineError
from .model import load
from .report_codes import sample
from .report_gallery import Evaluated, evaluated_dataset
from .report_lines import Line, lines_svg
from .report_pictures import histogram_svg

if TYPE_CHECKING:
    from collections.abc import Sequence

TITLE = "Neighbours and others"
_NEIGHBORS, _QUERIES = 10, 256


def neighbors_section(evaluated: Sequence[Evaluated]) -> html.Markup:
    """Return the section: a histogram of Hamming distances for each run, and one picture of recall curves."""
    figures, lines = [], []
    n_rows = 0
    for run in evaluated:
        try:
            n_bits, distances, ranks = _compared(run)
        except (PipelineError, StorageError, OSError, TypeError, ValueError) as error:
            figures.append((run.label, html.paragraph(f"The codes cannot be compared: {error}")))
            continue
        n_rows = distances.shape[1]
        near, far = distances[ranks < _NEIGHBORS], distances[ranks >= _NEIGHBORS]
        said = (
            f"On average {near.mean():.1f} of {n_bits} bits differ to one of the {_NEIGHBORS} nearest rows, "
            f"{far.mean() if far.size else 0:.1f} to another."
        )
        counts = [np.bincount(part, minlength=n_bits + 1) for part in (near, far)]
        svg = histogram_svg(counts[0], counts[1], f"{len(figures)} {run.label}")
        figures.append((run.label, html.Markup((svg or "") + html.paragraph(said))))
        lines.append(recall_line(run.label, distances, ranks))
    y_label = f"recall of the {_NEIGHBORS} nearest (%)"
    if lines and (curves := lines_svg(lines, "first R rows", y_label, logarithmic=True)):
        figures.append((f"Recall among {n_rows:,} rows", html.Markup(curves)))
    note = (
        f"At most {_QUERIES} of the queries and {n_rows:,} of the rows that were searched. The less the "
        "two histograms overlap, the better Hamming distance tells neighbours."
    )
    return html.section(TITLE, html.paragraph(note), html.figures(figures))


def recall_line(label: str, distances: np.ndarray, ranks: np.ndarray) -> Line:
    """Return the share of true neighbours among the first R rows, in percent, at R = 1, 2, 4, …

    Parameters
    ----------
    label : str
    distances : ndarray of int, shape (q, n)
        Hamming distances; equal ones are ordered by row.
    ranks : ndarray of int, shape (q, n)
        0 for the truly nearest row.
    """
    order = np.argsort(distances, axis=1, kind="stable")
    true = np.take_along_axis(ranks, order, axis=1) < _NEIGHBORS
    found = np.cumsum(true, axis=1).mean(axis=0) / min(_NEIGHBORS, ranks.shape[1])
    at = [2**power for power in range(ranks.shape[1].bit_length()) if 2**power <= ranks.shape[1]]
    return Line(label, at, [100 * float(found[r - 1]) for r in at], [0.0] * len(at))


def _compared(run: Evaluated) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the bits of a code, and Hamming distances and true ranks of sampled rows to sampled queries."""
    model = load(run.path)
    rows = sample(evaluated_dataset(run, "data"))
    queries = evaluated_dataset(run, "queries")
    asked = queries.rows(0, min(_QUERIES, queries.n_rows))
    codes = [unpack_bits(model.encode(part), model.n_bits).astype(np.float32) for part in (asked, rows)]
    ones = [part.sum(axis=1) for part in codes]
    distances = ones[0][:, None] + ones[1] - 2 * codes[0] @ codes[1].T  # whole numbers, so exact
    cosine = "cosine" in str(run.results.get("true_neighbors", ""))
    return model.n_bits, distances.astype(np.int64), _ranks(asked, rows, cosine=cosine)


def _ranks(queries: np.ndarray, rows: np.ndarray, *, cosine: bool) -> np.ndarray:
    """Return for each query the place of each row in the order of true distance, ties by row."""
    queries, rows = (np.asarray(part, np.float64) for part in (queries, rows))
    if cosine:
        queries, rows = (
            part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-300) for part in (queries, rows)
        )
    squares = (queries**2).sum(axis=1)[:, None] + (rows**2).sum(axis=1) - 2 * queries @ rows.T
    order = np.argsort(squares, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(len(rows))[None], axis=1)
    return ranks
