"""How much memory and time a worker will need, found by rehearsing the first rounds on one block.

What a block costs depends on the method: on its tiles, sums and samples.  No formula would stay true, so the
first rounds are gone through with the first of their blocks alone; what is allocated is counted, and the
processor's time is taken.
"""

from __future__ import annotations

import threading
import time
import tracemalloc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..cluster.ahead import fetched, widened
from ..cluster.threads import one_blas_thread
from ..cluster.tree import depth
from ..cluster.worker import cache_bytes
from ..tasks.protocols import DataInfo, RowRange
from .errors import ConfigError
from .train import start_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tasks.protocols import Accumulator, BlockAddress, BlockReader, LeafPlan, Method, RoundState

T = TypeVar("T")

# Python counts allocations for the whole process: who stops it while another thread counts crashes both
_COUNTING = threading.Lock()

MiB = 2**20
PROCESS_BYTES = 320 * MiB  # interpreter, libraries, compiled kernels; 200 to 250 MiB were measured
MAX_FILL = 0.8  # of a worker's memory; Dask lets it rest above
_STEP = 16 * MiB  # of what is advised
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
        # what is measured again may be a little more
        least = -(-1.01 * need / MAX_FILL // _STEP) * _STEP / MiB
        fewer = f", or one thread instead of {threads}" if threads > 1 else ""
        raise ConfigError(
            f"{where} has a memory limit of {memory_limit / MiB:,.0f} MiB, and training needs about "
            f"{need / MiB:,.0f} MiB a worker ({PROCESS_BYTES / MiB:,.0f} for the process, {threads} × "
            f"{self.task_bytes / MiB:,.0f} for tasks), which may be {MAX_FILL:.0%} of the limit: give each "
            f"worker at least {least:,.0f} MiB{fewer}, or choose smaller blocks (block_rows)"
        )


@dataclass(frozen=True)
class RoundCosts:
    """What one round takes on one core of this machine; times are of the processor, in seconds.

    Attributes
    ----------
    n_leaves : int
    update, merge : float
        Adding one block, and joining two sums.
    advance : float
        What the driver does between two rounds.
    sum_bytes, state_bytes : int
        Of a partial sum, and of the state that the round begins with.
    flop : int or None
        Floating-point operations of the matrix products with one block, where the method can tell.
    sequential : bool
        Whether one task goes through all blocks.
    """

    n_leaves: int
    update: float
    merge: float
    advance: float
    sum_bytes: int
    state_bytes: int
    flop: int | None
    sequential: bool


@dataclass(frozen=True)
class Rehearsal:
    """What the first rounds took.

    Attributes
    ----------
    needs : Needs
    rounds : list of RoundCosts
        Of the rounds that were gone through; empty if not even the first could be.
    state : RoundState
        The last one.
    fetch, widen : float
        Processor seconds of reading and decoding one block, and of bringing it to its type in memory.
    stored_bytes : int
        One block, decoded, as it is stored.
    """

    needs: Needs
    rounds: list[RoundCosts]
    state: RoundState
    fetch: float
    widen: float
    stored_bytes: int


def rehearse(method: Method, reader: BlockReader, plan: LeafPlan, seed: int) -> Needs:
    """Go through the first rounds with one block of each, and return the memory that they took.

    Takes as long as that: seconds for blocks of the usual size.
    """
    return go_through(method, reader, plan, seed).needs


def go_through(
    method: Method, reader: BlockReader, plan: LeafPlan, seed: int, seconds: float = SECONDS
) -> Rehearsal:
    """Go through the first rounds with one block of each; begin with none after so many processor's
    ``seconds``."""
    info = DataInfo(reader.n_rows, reader.n_features, reader.dtype)
    state = start_state(method, info, seed)
    row_bytes = reader.n_features * np.dtype(reader.dtype).itemsize
    rows = min(plan.block_rows, plan.n_rows)
    task, driver, begun = rows * row_bytes, 0, time.process_time()
    rounds: list[RoundCosts] = []
    with _COUNTING, one_blas_thread():
        fetch, widen, stored = _reading(reader, plan)
        for _ in range(ROUNDS):
            if method.done(state) or time.process_time() - begun > seconds:
                break
            try:
                of_task, of_driver, costs, state = _rehearse_round(method, reader, plan, state)
            except Exception:  # a method may refuse what one block gives: then this is all we know
                break
            task, driver = max(task, of_task), max(driver, of_driver)
            rounds.append(costs)
    needs = Needs(int(MARGIN * (task + stored)), int(MARGIN * driver), stored * plan.n_rows // max(1, rows))
    return Rehearsal(needs, rounds, state, fetch, widen, stored)


def _reading(reader: BlockReader, plan: LeafPlan) -> tuple[float, float, int]:
    """Return the processor seconds of reading a block and of widening it, and its bytes as it is stored."""
    fetched(reader, plan.leaf(0))  # opens what it needs
    begun = time.process_time()  # decoders have threads of their own
    block = fetched(reader, plan.leaf(0))
    read = time.process_time()
    widened(reader, block)
    return read - begun, time.process_time() - read, int(block.vectors.nbytes)


def _rehearse_round(
    method: Method, reader: BlockReader, plan: LeafPlan, state: RoundState
) -> tuple[int, int, RoundCosts, RoundState]:
    addresses = method.blocks(state, plan)
    accumulator = method.accumulator(state)
    times: list[float] = []

    def leaf() -> dict[str, np.ndarray]:
        block = reader.read(addresses[0])
        seconds, total = _timed(lambda: accumulator.update(accumulator.init(), block))
        times.append(seconds)
        return total

    leaf()  # compiles and imports what it needs, which is not the task's
    of_leaf, total = _traced(leaf)
    of_sums, of_merge = _sums(accumulator, total, len(addresses), plan)
    of_end, summary = _traced(lambda: accumulator.finalize(_copy(total)))
    (advance, (of_driver, following)) = _timed(lambda: _traced(lambda: method.advance(state, summary)))
    kept = CACHED_STATES * _size(state.arrays)
    costs = RoundCosts(
        len(addresses), min(times), of_merge, advance, _size(total), _size(state.arrays),
        _flop(method, state, addresses[0]), bool(getattr(accumulator, "sequential", False)),
    )  # fmt: skip
    return max(of_leaf, of_end) + of_sums + kept, of_driver + kept, costs, following


def _flop(method: Method, state: RoundState, address: BlockAddress) -> int | None:
    """Return the operations of a round's matrix products with one block, where the method can tell."""
    of_row = getattr(method, "flop", None)
    flop = None if of_row is None else of_row(state)
    return None if flop is None or not isinstance(address, RowRange) else flop * len(address)


def _sums(
    accumulator: Accumulator, total: dict[str, np.ndarray], n_leaves: int, plan: LeafPlan
) -> tuple[int, float]:
    """Return what sums take beside the block, one a level and those of a node while they are merged, and the
    seconds of a merge."""
    if getattr(accumulator, "sequential", False):
        return 2 * _size(total), 0.0
    seconds, merged = _timed(lambda: accumulator.merge(_copy(total), _copy(total)))
    if _size(merged) > GROWS * _size(total):
        return 3 * n_leaves * _size(total), seconds  # the parts, their copies and the whole
    return (depth(n_leaves, plan.fan_in) + 2 * plan.fan_in) * _size(total), seconds


def _traced(function: Callable[[], Any]) -> tuple[int, Any]:
    """Return the most that was allocated at a time in a call, and its result."""
    tracemalloc.start(1)
    try:
        result = function()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def _timed(function: Callable[[], T]) -> tuple[float, T]:
    """Return the processor seconds of this thread that a call takes, and its result."""
    begun = time.thread_time()
    result = function()
    return time.thread_time() - begun, result


def _copy(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in state.items()}


def _size(arrays: Any) -> int:
    return sum(np.asarray(array).nbytes for array in arrays.values())
