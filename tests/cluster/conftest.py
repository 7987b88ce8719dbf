"""The shared clusters by number of workers, and the toy programs made importable.

Test modules cannot be imported by name; worker processes started from here inherit `sys.path`, so the folder
of this file is put there and `cluster_toys` is an ordinary module for driver and workers alike.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from distributed import Client

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=[1, 2, 4], ids=lambda n: f"{n}-workers")
def client(clusters, request) -> Client:
    """Clusters of 1, 2 and 4 workers in turn; tests leave them as they were."""
    return clusters(request.param)


@pytest.fixture
def two(clusters) -> Client:
    """A cluster of 2 workers."""
    return clusters(2)
