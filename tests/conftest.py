"""Fixtures for every test: the shared real data, small data, and where things are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout; skips where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not beside this checkout")
    return folder


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """600 rows of 24 features in 5 clusters, with labels."""
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 5, 600)
    centres = rng.normal(size=(5, 24)) * 3
    vectors = (centres[labels] + rng.normal(size=(600, 24))).astype(np.float32)
    return vectors, labels.astype(np.int64)
