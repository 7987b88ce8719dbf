"""How much memory workers have."""

from __future__ import annotations

from dask.system import CPU_COUNT
from dask.utils import parse_bytes
from distributed import get_worker
from distributed.system import MEMORY_LIMIT


def n_bytes(text: str) -> int:
    """Return the bytes of text such as ``"2 GiB"``; `ValueError` if it is none."""
    return int(parse_bytes(text))


def machine_share(threads: int) -> int:
    """Return the memory limit that workers of so many threads get on this machine unless told otherwise."""
    return int(MEMORY_LIMIT * min(1.0, threads / CPU_COUNT))


def this_worker() -> tuple[str, int, int | None]:
    """Inside a task: return name, threads and memory limit (None = none) of its worker."""
    worker = get_worker()
    limit = worker.memory_manager.memory_limit
    return f"{worker.name} at {worker.address}", worker.state.nthreads, int(limit) if limit else None
