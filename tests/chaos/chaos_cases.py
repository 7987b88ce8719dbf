"""The methods that the chaos tests run, and their small real data.

An ordinary module, unlike test modules: ``conftest.py`` puts its folder on the path of driver and workers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

METHODS = {
    "lsh": {"n_bits": 24},
    "itq": {"n_bits": 24, "n_iter": 6},
    "knnh": {"n_bits": 24, "n_iter": 2, "n_neighbors": 5, "n_train": 300, "neighbors_from": "all"},
    "fruit_fly": {"n_bits": 96, "n_active": 6},
    "biohash": {"n_bits": 96, "n_active": 6, "n_epochs": 3},
    "spherical_hash": {"n_bits": 400, "n_active": 6, "n_epochs": 3, "dead_units": "reseed"},
    "posh": {"n_bits": 96, "n_active": 6, "n_epochs": 4},
    "isohash": {"n_bits": 24},
    "spectral_hashing": {"n_bits": 24},
    "mdsh": {"n_bits": 24},
    "eigenfunction_ssh": {"n_bits": 12, "n_label_bits": 8},
    "cbe": {"n_bits": 24, "n_iter": 3},
    "sklsh": {"n_bits": 24},
    "nibh": {"n_bits": 24, "n_iter": 3, "n_steps": 4},
    "nibh-admm": {"n_bits": 24, "n_iter": 2, "n_steps": 2, "solver": "admm", "n_train": 200},
    "ssbc": {"n_bits": 24, "n_anchors": 100},
    "ssbc-sketch": {"n_bits": 12, "n_anchors": 200, "sketch_size": 16},
    "agh": {"n_bits": 12, "n_anchors": 60, "n_iter": 2},
    "klsh": {"n_bits": 24, "n_anchors": 100},
    "shd": {"n_bits": 12, "n_train": 300, "n_iter": 25, "mean_tolerance": 0.0},
    "bre": {"n_bits": 12, "n_train": 200, "n_pairs": 20, "n_mixed": 8, "n_iter": 2},
    "nibh_cg": {"n_bits": 24, "n_iter": 3, "max_secants": 3000},
    "nystrom": {"n_bits": 12, "n_anchors": 100, "n_train": 300, "n_iter": 3},
    "ssbc-online": {"n_bits": 12, "n_anchors": 200, "mode": "online"},
    "bosl": {"n_bits": 96, "n_active": 6, "n_iter": 3, "n_steps": 3},
    "pursuit_hash": {"n_bits": 96, "n_active": 6, "n_epochs": 2, "n_refine": 2, "n_balance": 2},
    "sparse_coding": {"n_bits": 96, "n_active": 6, "n_iter": 2},
    "posh-union": {"n_bits": 96, "n_active": 6, "n_epochs": 2, "schedule": "union"},
    "posh-paper": {"n_bits": 96, "n_active": 6, "n_epochs": 3, "schedule": "paper"},
}
SHORT = ("lsh", "itq", "spherical_hash", "posh", "posh-paper")  # one for each shape of rounds and state
# of the long ones: once on workers in the ordinary suite
BRIEF = ("ssbc-sketch", "knnh", "fruit_fly", "biohash", "bosl", "posh-union")
LONG = tuple(case for case in METHODS if case not in SHORT)  # in the long tests alone
BLOCK_ROWS = 128
PLAN = {"block_rows": BLOCK_ROWS, "fan_in": 3}  # of 1,000 rows: 8 leaves, merged on two levels
DTYPES = {"float32": "uint8", "float64": "float64"}  # in memory: as stored


def digits(n: int, dtype: str = "float32") -> np.ndarray:
    """Return ``n`` of the bundled digits, every 13th pixel: real, small, with constant features.

    As ``float64`` they are fractions that float32 cannot hold.
    """
    from bitfleet.pipeline import demo

    with np.load(Path(demo.__file__).with_name("digits.npz")) as file:
        pixels = file["X"][:n, ::13]
    return pixels / 255 if dtype == "float64" else pixels


def labels(n: int) -> np.ndarray:
    """Return their labels, of every third digit: the others have none."""
    from bitfleet.pipeline import demo

    with np.load(Path(demo.__file__).with_name("digits.npz")) as file:
        return np.where(np.arange(n) % 3 == 0, file["y"][:n].astype(np.int64), -1)


def marked(cases: Iterable[str], *, but: tuple[str, ...] = ()) -> list[Any]:
    """Return the cases as test parameters; those ``but`` are ordinary ones."""
    import pytest

    long = [case for case in LONG if case not in but]
    return [pytest.param(case, marks=pytest.mark.long) if case in long else case for case in cases]


def method_of(case: str) -> tuple[str, dict]:
    """Return name and parameters of a case in METHODS."""
    return case.split("-")[0], METHODS[case]
