"""The tables of docs/performance.md, from what `run.py --keep` leaves in benchmarks/measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).resolve().parent / "measured"
PAGE = MEASURED.parents[1] / "docs" / "performance.md"
NAMES = ("kernels", "growth", "peers")
METHODS = {"lsh": "LSH, 64 bits", "itq": "ITQ, 64 bits, 5 rotations", "posh": "POSH, 32 of 1,024, 1 epoch"}


def summary(measured: Path = MEASURED) -> dict[str, str]:
    """Return a Markdown table for each benchmark that was kept."""
    kept = {name: measured / f"{name}.jsonl" for name in NAMES}
    lines = {
        name: [json.loads(line) for line in path.read_text().splitlines()]
        for name, path in kept.items()
        if path.exists()
    }
    return {name: _TABLES[name](found) for name, found in lines.items()}


def write(page: Path = PAGE, measured: Path = MEASURED) -> None:
    """Put the tables between their marks in the page."""
    text = page.read_text(encoding="utf-8")
    for name, table in summary(measured).items():
        start, stop = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(start)
        if stop not in rest:
            raise ValueError(f"expected the marks {start} and {stop} in {page}")
        text = f"{before}{start}\n\n{table}\n\n{stop}" + rest.partition(stop)[2]
    page.write_text(text, encoding="utf-8")


def _kernels(lines: list[dict[str, Any]]) -> str:
    rows = [
        f"| {r['kernel']} | {r['case']} | {1000 * r['seconds']:.1f} | {1000 * r['limit_seconds']:.1f} "
        f"| {r['limit']} | **{r['ratio']:.2f}** |"
        for r in lines
    ]
    rates: dict[str, float] = {}
    for line in lines:
        for unit, rate in line["rates_per_second"].items():
            rates[unit] = max(rate, rates.get(unit, 0.0))
    told = "; ".join(f"{unit} {rate / 1e9:.3g} · 10⁹" for unit, rate in rates.items())
    return _table(
        ["kernel", "case", "ms", "limit, ms", "limit by", "share of the limit"],
        rows,
        f"Rates of this run, a second: {told}. {_setting(lines)}",
    )


def _growth(lines: list[dict[str, Any]]) -> str:
    sizes = list(lines[0]["microseconds_per_row"])
    rows = [
        f"| {METHODS[r['method']]}: {what} | "
        + " | ".join(f"{r['microseconds_per_row'][n][what]:.2f}" for n in sizes)
        + f" | {r['growth'][what]:.2f} |"
        for r in lines
        for what in r["growth"]
    ]
    head = ["µs a row, at n =", *(f"{int(n):,}" for n in sizes), "last / before"]
    return _table(head, rows, _setting(lines))


def _peers(lines: list[dict[str, Any]]) -> str:
    rows = [
        f"| {r['task']} | {r['beside']}: {r['case']} | {r['seconds']:.3f} | {r['peer_seconds']:.3f} | "
        f"**{r['ratio']:.2f}** |"
        for r in lines
    ]
    head = ["task", "beside", "ours, s", "theirs, s", "theirs / ours"]
    return _table(head, rows, f"{lines[0]['rows']:,} × {lines[0]['features']} float32. {_setting(lines)}")


def _table(head: list[str], rows: list[str], below: str) -> str:
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows, "", below])


def _setting(lines: list[dict[str, Any]]) -> str:
    loads = [line["load"] for line in lines]
    return f"One thread; NumPy {lines[0]['numpy']}; load of the machine {min(loads)} to {max(loads)}."


_TABLES = {"kernels": _kernels, "growth": _growth, "peers": _peers}
