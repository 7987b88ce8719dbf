"""A run as one page for people: how good, how it got there, what is retrieved, and where it came from.

``report.html`` needs nothing beside itself: no network, no other file.  Its script sorts tables and enlarges
pictures; without it all is there.  It shows what is in the
run at the time; made again, it is up to date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..storage.events import open_events
from ..storage.places import place
from ..storage.rounds import read_chain
from ..storage.run import RunDirectory, status
from ..storage.s3_objects import objects_at
from ..tasks import registry
from . import report_page as html
from .progress import FOLLOWED, counted
from .recording import MEMORY
from .report_codes import codes_section
from .report_gallery import Evaluated, gallery
from .report_neighbors import neighbors_section
from .report_pictures import Curve, curve_svg
from .report_promises import promises
from .results import read_results

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from ..storage.manifest import Manifest
    from ..storage.places import Place

NAME = "report.html"


@dataclass(frozen=True)
class RunFacts:
    """What a report says of one run."""

    path: Place
    config: Mapping[str, Any]
    rounds: Sequence[Manifest]
    results: Mapping[str, Any] | None

    @property
    def label(self) -> str:
        """The method as people call it, with the length of its codes."""
        return method_label(self.method)

    @property
    def method(self) -> Mapping[str, Any]:
        """What the run's configuration, which may be a stranger's, says of the method."""
        table = self.config.get("method")
        return table if isinstance(table, dict) else {}


def write_report(
    run: str | os.PathLike[str],
    *,
    beside: Sequence[str | os.PathLike[str]] = (),
    dest: str | os.PathLike[str] | None = None,
) -> Place:
    """Write a run's report and return its path.

    Parameters
    ----------
    run : path
    beside : sequence of paths
        Other runs to compare with, such as other methods on the same data.
    dest : path, optional
        The file to write, ``report.html`` in the run by default; an earlier report is replaced.

    Raises
    ------
    CorruptObject
        If there is no run, or its configuration or manifests are damaged.
    """
    runs = [_facts_of(path) for path in (run, *beside)]
    target = runs[0].path / NAME if dest is None else place(dest)
    main = runs[0]
    sections = [_metrics(runs), _curves(runs), *promises(runs), *_gallery(runs), _provenance(main)]
    text = html.page(
        f"{main.label} on {str(main.config.get('data', 'data')).rpartition('/')[2]}",
        _subtitle(main),
        sections,
        f"bitfleet report of {main.path.name}; this file needs no network and no other file.",
    )
    objects_at(target.parent).put(target.name, text.encode("utf-8"))
    return target


def method_label(table: Mapping[str, Any]) -> str:
    """Return a method's name and code length, such as ``POSH, 1024 bits, 32 active``."""
    name = str(table.get("name", "unknown method"))
    try:
        parts = [registry.get(name).__name__]
    except ValueError:  # of a package that is not installed here
        parts = [name]
    if "n_bits" in table:
        parts.append(f"{table['n_bits']} bits")
    if "n_active" in table:
        parts.append(f"{table['n_active']} active")
    return ", ".join(parts)


def _facts_of(path: str | os.PathLike[str]) -> RunFacts:
    directory = RunDirectory.open(path)
    rounds = read_chain(objects_at(directory.path))
    return RunFacts(directory.path, directory.config, rounds, read_results(directory.path))


def _subtitle(run: RunFacts) -> list[str]:
    now = status(run.path)
    count = max(len(run.rounds) - 1, 0)
    lines = [f"{now['state']}, {counted(count, 'round')} of learning committed"]
    if run.results is not None:
        n_rows, n_queries = run.results["n_rows"], run.results["n_queries"]
        lines.append(f"{n_queries:,} queries searched {n_rows:,} rows by Hamming distance")
    return lines


def _metrics(runs: Sequence[RunFacts]) -> html.Markup:
    measured = [(run.label, run.results) for run in runs if run.results is not None]
    if not measured:
        return html.section("Metrics", html.paragraph("Nothing has been evaluated yet: bitfleet evaluate."))
    definitions = {m["name"]: m["definition"] for _, results in measured for m in results["metrics"]}
    rows = []
    for label, results in measured:
        cells = {m["name"]: (m["value"], m["standard_error"]) for m in results["metrics"]}
        rows.append((label, [cells.get(name) for name in definitions]))
    notes = (
        "Higher is better; ± is the standard error over queries. Rows at equal distance are ordered at "
        "random, by numbers that depend on seed and row alone."
    )
    return html.section(
        "Metrics",
        html.metric_table(list(definitions), rows),
        html.paragraph(notes),
        html.fold("What the metrics mean", html.definitions(definitions.items())),
    )


def _gallery(runs: Sequence[RunFacts]) -> list[html.Markup]:
    evaluated = [Evaluated(run.label, run.path, run.results) for run in runs if run.results is not None]
    return [neighbors_section(evaluated), codes_section(evaluated), gallery(evaluated)] if evaluated else []


def _curves(runs: Sequence[RunFacts]) -> html.Markup:
    curves = [curve for run in runs if (curve := _curve_of(run)) is not None]
    if not curves:
        text = "These methods learn in one step: there is no curve to show."
        return html.section("Learning curve", html.paragraph(text))
    pictures = []
    for curve in curves:
        first, last = html.short(curve.values[0]), html.short(curve.values[-1])
        ends = f"from {first} to {last} in round {curve.rounds[-1]}"
        svg = curve_svg(curve) or ""
        pictures.append((curve.label, html.Markup(svg + html.paragraph(f"{curve.name} {ends}"))))
    parts = [html.figures(pictures)]
    if not curve_svg(curves[0]):
        parts.append(html.paragraph("Curves are drawn where matplotlib is installed: bitfleet[report]."))
    return html.section("Learning curve", *parts)


def _curve_of(run: RunFacts) -> Curve | None:
    for name in FOLLOWED:
        points = [
            (m.round, float(m.scalars[name]))
            for m in run.rounds
            if isinstance(m.scalars.get(name), int | float)
        ]
        if len(points) > 1:
            rounds, values = zip(*points, strict=True)
            return Curve(run.label, name, rounds, values)
    return None


def _provenance(run: RunFacts) -> html.Markup:
    identity = dict(run.rounds[-1].identity) if run.rounds else {}
    environment = identity.pop("environment", None)
    told = {name: value for name, value in run.config.items() if not name.startswith("format")}
    rows = _flat(told)
    if run.results is not None:
        rows.append(("model", run.results["model"]))
    parts = [html.facts([*rows, *_timings(run), *_memory(run)])]
    if isinstance(environment, Mapping):
        parts.append(html.fold("Environment", html.facts(_flat(environment))))
    if run.rounds:
        commits = [(f"round {m.round}", m.committed_at) for m in run.rounds]
        parts.append(html.fold("Rounds", html.facts(commits)))
    return html.section("Provenance", *parts)


def _timings(run: RunFacts) -> list[tuple[str, str]]:
    rows = []
    if len(run.rounds) > 1:
        first, last = (datetime.fromisoformat(m.committed_at) for m in (run.rounds[0], run.rounds[-1]))
        rows.append(("trained", f"{last:%Y-%m-%d %H:%M} UTC"))
        rows.append(("first to last commit", f"{(last - first).total_seconds():.1f} s"))
    seconds = None if run.results is None else run.results.get("seconds")
    if isinstance(seconds, int | float):
        rows.append(("evaluation", f"{seconds:.1f} s"))
    return rows


def _memory(run: RunFacts) -> list[tuple[str, str]]:
    """Return what processes took of memory at most, as far as the run's events and results tell."""
    told = [event for event in open_events(run.path).read() if event["kind"] == MEMORY]
    last: Mapping[str, Any] = told[-1] if told else {}
    rows = [
        ("peak memory, training", last.get("driver_peak_bytes")),
        ("peak memory, evaluation", (run.results or {}).get("peak_bytes")),
    ]
    workers = last.get("worker_peak_bytes")
    if isinstance(workers, list) and workers and all(isinstance(peak, int) for peak in workers):
        rows.insert(1, (f"peak memory, largest of {len(workers)} workers", max(workers)))
    return [
        (name, f"{peak / 2**20:,.0f} MiB")
        for name, peak in rows
        if isinstance(peak, int) and 0 < peak < 2**60  # a stranger's run may say anything
    ]


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return nested values as (dotted name, value), leaving out what is not set."""
    rows: list[tuple[str, Any]] = []
    for key, item in value.items():
        if isinstance(item, Mapping):
            rows += _flat(item, f"{prefix}{key}.")
        elif item is not None and item != "":
            rows.append((prefix + key, ", ".join(map(str, item)) if isinstance(item, list | tuple) else item))
    return rows
