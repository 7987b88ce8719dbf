"""How much memory workers have."""

from __future__ import annotations

from dask.utils import parse_bytes
from distributed import get_worker


def n_bytes(text: str) -> int:
    """Return the bytes of text such as ``"2 GiB"``; `ValueError` if it is none."""
    return int(parse_bytes(text))


def this_worker() -> tuple[str, int, int | None]:
    """Inside a task: return name, threads and memory limit (None = none) of its worker."""
    worker = get_worker()
    limit = worker.memory_manager.memory_limit
    return f"{worker.name} at {worker.address}", worker.state.nthreads, int(limit) if limit else None
