"""The numbers of cells: small files, written whole or not at all, and one file of all that the page shows.

The latter, `measured/nibh.json`, belongs to the repository: it has a line for each cell. Delete lines to have
their cells computed anew.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nibh_fits import FOLDER

RECORDED = Path(__file__).resolve().parent / "measured" / "nibh.json"
_DIGITS = 6


@dataclass(frozen=True)
class Cell:
    """One method's numbers.

    Attributes
    ----------
    table : str
        What is measured, see `nibh_tables`.
    data : str
    row : str
        A key of `nibh_cells.METHODS`.
    bits : int
    size : int
        Training rows.
    seed : int
    """

    table: str
    data: str
    row: str
    bits: int
    size: int
    seed: int

    @property
    def name(self) -> str:
        """What the cell is called in files."""
        return f"{self.table}/{self.data}/{self.row}-{self.bits}-bits-{self.size}-rows-seed{self.seed}"

    @property
    def file(self) -> Path:
        """Where the numbers are kept."""
        return FOLDER / f"{self.name}.json"


def saved(cell: Cell) -> dict[str, Any] | None:
    """Return a cell's numbers, None if it was not computed yet."""
    try:
        return json.loads(cell.file.read_text())
    except FileNotFoundError:
        return _recorded().get(cell.name)


def keep(cell: Cell, values: dict[str, Any]) -> dict[str, Any]:
    """Keep a cell's numbers to six digits, whole or not at all, and return them."""
    values = _short(values)
    cell.file.parent.mkdir(parents=True, exist_ok=True)
    partial = cell.file.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(values))
    partial.replace(cell.file)
    return values


def record(done: dict[Cell, dict[str, Any]]) -> None:
    """Write the numbers of all cells to the repository's file."""
    lines = sorted(f"{json.dumps(cell.name)}: {json.dumps(values)}" for cell, values in done.items())
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


@functools.cache
def _recorded() -> dict[str, dict[str, Any]]:
    return json.loads(RECORDED.read_text()) if RECORDED.is_file() else {}


def _short(value: Any) -> Any:
    """Return the same with numbers rounded."""
    match value:
        case float():
            return float(f"{value:.{_DIGITS}g}")
        case list():
            return [_short(one) for one in value]
        case dict():
            return {key: _short(one) for key, one in value.items()}
    return value
