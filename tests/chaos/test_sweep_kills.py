"""A sweep of 120 cells over bundled digits, killed twice: no cell twice, the numbers of one left alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import bitfleet as bf
import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

METRICS = ["recall10@100", "map@100"]
METHODS: list[dict] = [
    {"name": "lsh"},
    {"name": "sklsh"},
    {"name": "itq", "n_iter": 5},
    {"name": "isohash"},
    {"name": "spectral_hashing"},
    {"name": "cbe", "learned": False},
    {"name": "fruit_fly", "n_active": 4},
    {"name": "posh", "n_active": 4, "n_epochs": 1},
]
LENGTHS, SEEDS = [16, 32, 64, 128, 256], [0, 1, 2]
N_CELLS = len(METHODS) * len(LENGTHS) * len(SEEDS)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """8 methods × 5 lengths × 3 seeds; 9,500 digits to search, 500 to ask for."""
    folder = tmp_path_factory.mktemp("digits")
    images, labels = bf.load_digits()
    for name, rows in (("digits", slice(0, 9500)), ("queries", slice(9500, 10000))):
        shape = {"n_features": 784, "dtype": "uint8", "with_labels": True}
        with bf.DatasetWriter(folder / f"{name}.zarr", **shape) as writer:
            writer.append(images[rows], labels[rows])
    return {
        "sweep": {"n_bits": LENGTHS, "seeds": SEEDS, "metrics": METRICS},
        "data": [
            {
                "name": "digits",
                "path": str(folder / "digits.zarr"),
                "queries": str(folder / "queries.zarr"),
            }
        ],
        "method": METHODS,
    }


def toml(plan: dict, out: Path) -> str:
    """The plan as a file: JSON's numbers, texts and lists are TOML's."""

    def lines(table: dict) -> str:
        return "".join(
            f"{key} = {str(value).lower() if isinstance(value, bool) else json.dumps(value)}\n"
            for key, value in table.items()
        )

    tables = [f"[sweep]\n{lines({'path': str(out), **plan['sweep']})}"]
    for name in ("data", "method"):
        tables += [f"[[{name}]]\n{lines(table)}" for table in plan[name]]
    return "\n".join(tables)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_120_cells_killed_twice_are_computed_once(plan: dict, tmp_path: Path) -> None:
    begun = time.monotonic()
    alone = bf.sweep({**plan, "sweep": {**plan["sweep"], "path": str(tmp_path / "alone")}})
    assert alone.attrs["n_done"] == N_CELLS == 120
    print(f"undisturbed, in this process: {time.monotonic() - begun:.0f} s")

    job, cells = tmp_path / "sweep.toml", tmp_path / "killed/cells"
    job.write_text(toml(plan, tmp_path / "killed"))
    command = [sys.executable, "-m", "bitfleet.pipeline.cli", "sweep", str(job), "--workers", "2", "--json"]
    told: list[str] = []
    kept: dict[str, tuple[int, int]] = {}
    for until in (30, 80, N_CELLS):
        begun = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if until < N_CELLS:
            while len(list(cells.glob("*.json"))) < until:
                assert process.poll() is None
                time.sleep(0.01)
            process.kill()
        _, err = process.communicate()
        assert until < N_CELLS or process.returncode == 0, err
        (at_first,) = re.findall(r"^120 cells, (\d+) of them done$", err, re.MULTILINE)
        assert int(at_first) == len(kept)
        told += re.findall(r"^\d+/120 (.*?): ", err, re.MULTILINE)
        now = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in cells.glob("*.json")}
        assert kept.items() <= now.items()  # what was done is the same file, untouched
        print(f"began with {len(kept)} cells, ended with {len(now)}: {time.monotonic() - begun:.0f} s")
        kept = now
    assert len(kept) == N_CELLS
    assert len(told) == len(set(told))  # nobody has told a cell that another one had told
    assert not any((tmp_path / "killed/work").iterdir())

    again = bf.sweep(job)
    for metric in METRICS:
        for name in (metric, f"{metric}_standard_error"):
            np.testing.assert_array_equal(again[name].values, alone[name].values)
    for cell in cells.glob("*.json"):  # the same bits of models and codes, not only the same numbers
        one, other = (json.loads(path.read_text()) for path in (cell, tmp_path / "alone/cells" / cell.name))
        assert (one["model"], one["codes"]) == (other["model"], other["codes"])
