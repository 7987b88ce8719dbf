"""How much memory a worker will need, found by rehearsing the first rounds on one block.

What a block costs depends on the method: on its tiles, sums and samples.  No formula would stay true, so the
first rounds are gone through with the first of their blocks alone, and what is allocated is counted.
"""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster.ahead import fetched
from ..cluster.threads import one_blas_thread
from ..cluster.tree import depth
from ..cluster.worker import cache_bytes
from ..tasks.protocols import DataInfo
from .errors import ConfigError
from .train import start_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tasks.protocols import Accumulator, BlockReader, LeafPlan, Method, RoundState

MiB = 2**20
PROCESS_BYTES = 320 * MiB  # interpreter, libraries, compiled kernels; 200 to 250 MiB were measured
MAX_FILL = 0.8  # of a worker's memory; Dask lets it rest above
MARGIN = 1.25  # for what libraries allocate behind Python's back
ROUNDS = 4
SECONDS = 20.0  # no further round is rehearsed after so long
GROWS = 1.5  # a state that merging makes larger than this collects rows instead of adding them up
CACHED_STATES = 2


@dataclass(frozen=True)
class Needs:
    """What training takes of memory.

    Attributes
    ----------
    task_bytes : int
        One task: its block, what the method computes with it, its share of the sums in flight, and the next
        block, as it is stored.
    driver_bytes : int
        The step between two rounds.
    data_bytes : int
        All blocks as they are stored, of which a worker keeps what fits.
    """

    task_bytes: int
    driver_bytes: int
    data_bytes: int

    def peak(self, threads: int, memory_limit: int | None = None) -> int:
        """Return the projected peak of a worker; with its limit, the blocks that it keeps are included."""
        kept = 0 if memory_limit is None else min(cache_bytes(memory_limit), self.data_bytes)
        return PROCESS_BYTES + threads * self.task_bytes + kept

    def check(self, threads: int, memory_limit: int, where: str, *, hosts_driver: bool = False) -> None:
        """Raise `ConfigError` unless a worker of that limit can do it.

        Blocks that are kept do not count: they are given up when memory runs short.
        """
        need = self.peak(threads) + (self.driver_bytes if hosts_driver else 0)
        if need <= MAX_FILL * memory_limit:
            return
        least = -(-need / MAX_FILL // MiB)
        fewer = f", or one thread instead of {threads}" if threads > 1 else ""
        raise ConfigError(
            f"{where} has a memory limit of {memory_limit / MiB:,.0f} MiB, and training needs about "
            f"{need / MiB:,.0f} MiB a worker ({PROCESS_BYTES / MiB:,.0f} for the process, {threads} × "
            f"{self.task_bytes / MiB:,.0f} for tasks), which may be {MAX_FILL:.0%} of the limit: give each "
            f"worker at least {least:,.0f} MiB{fewer}, or choose smaller blocks (block_rows)"
        )


def rehearse(method: Method, reader: BlockReader, plan: LeafPlan, seed: int) -> Needs:
    """Go through the first rounds with one block of each, and return what they took.

    Takes as long as that: seconds for blocks of the usual size.
    """
    info = DataInfo(reader.n_rows, reader.n_features, reader.dtype)
    state = start_state(method, info, seed)
    row_bytes = reader.n_features * np.dtype(reader.dtype).itemsize
    task, driver, begun = min(plan.block_rows, plan.n_rows) * row_bytes, 0, time.monotonic()
    with one_blas_thread():
        for _ in range(ROUNDS):
            if method.done(state) or time.monotonic() - begun > SECONDS:
                break
            try:
                of_task, of_driver, state = _rehearse_round(method, reader, plan, state)
            except Exception:  # a method may refuse what one block gives: then this is all we know
                break
            task, driver = max(task, of_task), max(driver, of_driver)
    ahead = _stored_bytes(reader, plan)
    data_bytes = ahead * plan.n_rows // max(1, min(plan.block_rows, plan.n_rows))
    return Needs(int(MARGIN * (task + ahead)), int(MARGIN * driver), data_bytes)


def _stored_bytes(reader: BlockReader, plan: LeafPlan) -> int:
    """Return what one block takes while it waits for its turn, or for the next round."""
    return int(fetched(reader, plan.leaf(0)).vectors.nbytes)


def _rehearse_round(
    method: Method, reader: BlockReader, plan: LeafPlan, state: RoundState
) -> tuple[int, int, RoundState]:
    addresses = method.blocks(state, plan)
    accumulator = method.accumulator(state)

    def leaf() -> dict[str, np.ndarray]:
        return accumulator.update(accumulator.init(), reader.read(addresses[0]))

    _traced(leaf)  # compiles and imports what it needs, which is not the task's
    of_leaf, total = _traced(leaf)
    of_sums = _sums(accumulator, total, len(addresses), plan)
    of_end, summary = _traced(lambda: accumulator.finalize(_copy(total)))
    of_driver, state = _traced(lambda: method.advance(state, summary))
    kept = CACHED_STATES * _size(state.arrays)
    return max(of_leaf, of_end) + of_sums + kept, of_driver + kept, state


def _sums(accumulator: Accumulator, total: dict[str, np.ndarray], n_leaves: int, plan: LeafPlan) -> int:
    """Return what sums take beside the block: one a level, and those of a node while they are merged."""
    if getattr(accumulator, "sequential", False):
        return 2 * _size(total)
    merged = accumulator.merge(_copy(total), _copy(total))
    if _size(merged) > GROWS * _size(total):
        return 3 * n_leaves * _size(total)  # the parts, their copies and the whole
    return (depth(n_leaves, plan.fan_in) + 2 * plan.fan_in) * _size(total)


def _traced(function: Callable[[], Any]) -> tuple[int, Any]:
    """Return the most that was allocated at a time in a call, and its result."""
    tracemalloc.start(1)
    try:
        result = function()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def _copy(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in state.items()}


def _size(arrays: Any) -> int:
    return sum(np.asarray(array).nbytes for array in arrays.values())
