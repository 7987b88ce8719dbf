"""The page on performance holds the tables of what was measured, and nothing else between its marks."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def test_the_pages_tables_are_those_of_the_kept_lines(root: Path, tmp_path: Path) -> None:
    report = runpy.run_path(str(root / "benchmarks" / "performance_report.py"))
    page = tmp_path / "performance.md"
    page.write_bytes(report["PAGE"].read_bytes())
    report["write"](page)
    assert page.read_bytes() == report["PAGE"].read_bytes()
    tables = report["summary"]()
    assert set(tables) == set(report["NAMES"])
    assert all(table in page.read_text() for table in tables.values())
