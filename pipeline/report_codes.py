"""How the codes of evaluated runs use their bits, on a sample of the rows that were searched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from ..storage.errors import StorageError
from ..tasks.kernels.pack import unpack_bits
from . import report_page as html
from .describe import describe_codes
from .errors import PipelineError
from .model import load
from .report_gallery import Evaluated, evaluated_dataset
from .report_pictures import png_uri
from .sweep_cells import bytes_per_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..storage.datasets import Dataset

TITLE = "How bits are used"
_SAMPLE, _STRETCHES = 2048, 4
_MOST_BITS = 4096  # of longer codes the pairs of bits would be too many to count for a page
_SHOWN_BITS = 256


def codes_section(evaluated: Sequence[Evaluated]) -> html.Markup:
    """Return the section: what `describe_codes` counts of a run, and a picture of its bits' correlations."""
    figures = []
    for run in evaluated:
        try:
            figures.append((run.label, _described(run)))
        except (PipelineError, StorageError, OSError, TypeError, ValueError) as error:
            figures.append((run.label, html.paragraph(f"The codes cannot be described: {error}")))
    note = (
        f"Of at most {_SAMPLE:,} of the rows that were searched. Pictures: how far bits say the same or the "
        f"opposite, black is always; the {_SHOWN_BITS} busiest bits, alike ones side by side."
    )
    return html.section(TITLE, html.paragraph(note), html.figures(figures))


def _described(run: Evaluated) -> html.Markup:
    """Return the picture of one run's codes above their numbers."""
    model, dataset = load(run.path), evaluated_dataset(run, "data")
    if model.n_bits > _MOST_BITS:
        return html.paragraph(f"{model.n_bits:,} bits are too many for this page: bitfleet describe CODES.")
    codes = model.encode(sample(dataset))
    n_active = getattr(model.method, "n_active", None)
    found = describe_codes(codes, n_bits=model.n_bits, n_active=n_active)
    least = bytes_per_vector({"n_bits": model.n_bits, "n_active": n_active})
    places = f", {least} as places of ones" if least < codes.shape[1] else ""
    postings = found.postings_per_query / found.n_rows * dataset.n_rows
    rows = [
        ("bytes of a code", f"{codes.shape[1]}{places}"),
        ("bits that are ever on", f"{found.n_live_bits:,} of {found.n_bits:,}"),
        ("effective bits", f"{found.effective_bits:,.0f}"),
        ("busiest bit", f"on in {found.busiest_bit:.1%}"),
        ("entropy", f"{found.entropy:,.0f} bits"),
        ("independent directions (participation ratio)", f"{found.participation_ratio:,.0f}"),
        ("entries in a query's inverted lists", f"{postings:,.0f} for {dataset.n_rows:,} rows"),
    ]
    picture = png_uri(correlation_picture(unpack_bits(codes, model.n_bits)))
    alt = f"correlations of the bits of {run.label}"
    return html.join([html.image(picture, alt, "bits"), html.facts(rows)])


def sample(dataset: Dataset) -> np.ndarray:
    """Return some rows, from evenly spaced stretches."""
    length = min(_SAMPLE, dataset.n_rows) // _STRETCHES
    if length * _STRETCHES < _SAMPLE:
        return dataset.rows(0, dataset.n_rows)
    starts = np.linspace(0, dataset.n_rows - length, _STRETCHES).astype(int).tolist()
    return np.concatenate([dataset.rows(start, start + length) for start in starts])


def correlation_picture(bits: np.ndarray) -> np.ndarray:
    """Return the bits' correlations as grey levels, black for 1 and -1.

    Parameters
    ----------
    bits : ndarray of {0, 1}, shape (n, n_bits)

    Returns
    -------
    ndarray of uint8, shape (m, m)
        Of the 256 bits at most that are on most often, in the order of average linkage.  Bits that never
        change are like no other.
    """
    busiest = np.sort(np.argsort(-bits.sum(axis=0, dtype=np.int64), kind="stable")[:_SHOWN_BITS])
    values = bits[:, busiest].astype(np.float64)
    values -= values.mean(axis=0)
    lengths = np.linalg.norm(values, axis=0)
    values /= np.where(lengths > 0, lengths, 1.0)
    alike = np.clip(np.abs(values.T @ values), 0.0, 1.0)
    np.fill_diagonal(alike, 1.0)
    if len(alike) > 2:
        order = leaves_list(linkage(squareform(1 - alike, checks=False), "average"))
        alike = alike[np.ix_(order, order)]
    return np.round(255 * (1 - alike)).astype(np.uint8)
