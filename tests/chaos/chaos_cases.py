"""The methods that the chaos tests run, and their small real data.

An ordinary module, unlike test modules: ``conftest.py`` puts its folder on the path of driver and workers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

METHODS = {
    "lsh": {"n_bits": 24},
    "itq": {"n_bits": 24, "n_iter": 6},
    "knnh": {"n_bits": 24, "n_iter": 2, "n_neighbors": 5, "n_train": 300, "neighbors_from": "all"},
    "fruit_fly": {"n_bits": 96, "n_active": 6},
    "biohash": {"n_bits": 96, "n_active": 6, "n_epochs": 3},
    "spherical_hash": {"n_bits": 400, "n_active": 6, "n_epochs": 3, "dead_units": "reseed"},
    "posh": {"n_bits": 96, "n_active": 6, "n_epochs": 4},
    "posh-union": {"n_bits": 96, "n_active": 6, "n_epochs": 2, "schedule": "union"},
    "posh-paper": {"n_bits": 96, "n_active": 6, "n_epochs": 3, "schedule": "paper"},
}
BLOCK_ROWS = 128


def digits(n: int) -> np.ndarray:
    """Return ``n`` of the bundled digits, every 13th pixel: real, small, with constant features."""
    from bitfleet.pipeline import demo

    with np.load(Path(demo.__file__).with_name("digits.npz")) as file:
        return file["X"][:n, ::13]


def method_of(case: str) -> tuple[str, dict]:
    """Return name and parameters of a case in METHODS."""
    return case.split("-")[0], METHODS[case]
