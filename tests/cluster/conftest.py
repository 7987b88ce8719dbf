"""Clusters shared by all cluster tests, and the toy programs made importable.

Test modules cannot be imported by name; worker processes started from here inherit `sys.path`, so the folder
of this file is put there and `cluster_toys` is an ordinary module for driver and workers alike.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bitfleet.cluster.launch import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", params=[1, 2, 4], ids=lambda n: f"{n}-workers")
def client(request) -> Iterator[Client]:
    """Clusters of 1, 2 and 4 workers, one after the other."""
    with connect(n_workers=request.param, memory_limit="1 GiB") as client:
        yield client


@pytest.fixture(scope="session")
def two() -> Iterator[Client]:
    """A cluster of 2 workers for tests that leave it as it was."""
    with connect("local", n_workers=2, memory_limit="1 GiB") as client:
        yield client
