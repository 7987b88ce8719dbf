"""What methods that promise something have learned of it: the distortion of distances, or a sketch's loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import report_page as html
from .misgivings import facts, misgivings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .report import RunFacts

_DISTORTION = {
    "delta": "δ, the greatest |λh − c|",
    "delta_monotone": "δ of the best nondecreasing g(h)",
    "constant_T": "T, δ of one constant for all pairs",
    "critical_bits": "M*, bits that δ near 0 takes at least",
    "lower_bound": "δ ≥, whatever the codes of so many bits",
    "n_bits": "M, bits",
}
_OF_PAIRS = (
    "Of the pairs of training rows: NIBHCG's δ and T are certified over all of them, NIBH's are of those it "
    "was measured on. bitfleet distortion certifies them for any codes and rows."
)
_OF_DIRECTIONS = (
    "A sketch keeps the leading directions of all rows' affinities to the anchors. In no direction does it "
    "lose more than the certificate, as a share of the sum of squares; 0 says that nothing is lost."
)


def promises(runs: Sequence[RunFacts]) -> list[html.Markup]:
    """Return a section on distortion and one on sketches, as far as the runs know of any."""
    return [*_distortion(runs), *_sketches(runs)]


def _distortion(runs: Sequence[RunFacts]) -> list[html.Markup]:
    """Return what methods that promise to keep distances have learned of their distortion, or nothing."""
    tables, warnings = [], []
    for run in runs:
        scalars = run.rounds[-1].scalars if run.rounds else {}
        n_bits = run.method.get("n_bits")
        n_bits = n_bits if isinstance(n_bits, int) else 0
        if found := facts(scalars, n_bits):
            rows = [(_DISTORTION[name], html.short(value)) for name, value in found.items()]
            tables.append((run.label, html.facts(rows)))
            warnings += [f"Warning, {run.label}: {said}." for said in misgivings(scalars, n_bits)]
    if not tables:
        return []
    return [html.section("Distortion", html.figures(tables), *map(html.paragraph, (*warnings, _OF_PAIRS)))]


def _sketches(runs: Sequence[RunFacts]) -> list[html.Markup]:
    """Return what sketches have lost at most, or nothing."""
    tables = []
    for run in runs:
        scalars: Mapping[str, Any] = run.rounds[-1].scalars if run.rounds else {}
        lost, slack = scalars.get("certificate"), scalars.get("slack")
        if isinstance(lost, float) and isinstance(slack, float):
            rows = [("certificate", f"{lost:.4%}"), ("allowance for rounding", f"{slack:.1e}")]
            tables.append((run.label, html.facts(rows)))
    return [html.section("Sketch", html.figures(tables), html.paragraph(_OF_DIRECTIONS))] if tables else []
