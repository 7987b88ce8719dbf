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
    "cbe": {"n_bits": 24, "n_iter": 3},
    "sklsh": {"n_bits": 24},
    "nibh": {"n_bits": 24, "n_iter": 3, "n_steps": 4},
    "nibh-admm": {"n_bits": 24, "n_iter": 2, "n_steps": 2, "solver": "admm", "n_train": 200},
    "ssbc": {"n_bits": 24, "n_anchors": 100},
    "ssbc-sketch": {"n_bits": 12, "n_anchors": 200, "sketch_size": 16},
    "nibh_cg": {"n_bits": 24, "n_iter": 3, "max_secants": 3000},
    "ssbc-online": {"n_bits": 12, "n_anchors": 200, "mode": "online"},
    "bosl": {"n_bits": 96, "n_active": 6, "n_iter": 3, "n_steps": 3},
    "pursuit_hash": {"n_bits": 96, "n_active": 6, "n_epochs": 2},
    "posh-union": {"n_bits": 96, "n_active": 6, "n_epochs": 2, "schedule": "union"},
    "posh-paper": {"n_bits": 96, "n_active": 6, "n_epochs": 3, "schedule": "paper"},
}
