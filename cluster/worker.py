"""What runs on a worker: the tasks of a round, and what the process keeps between them.

A task gets a `Work` and a `Piece`, a few hundred bytes together; data and state are read here.  A task never
changes what it was given: the scheduler may run it a second time on the same inputs.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import fingerprint
from .cache import BlockCache, StateCache
from .fold import State, does_carry, is_sequential, sum_in_order, sum_node
from .threads import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..tasks.protocols import (
        Accumulator,
        BlockAddress,
        BlockReader,
        RoundState,
        StateReference,
    )
    from .tree import Span

RESERVED_BYTES = 512 * 2**20  # interpreter, libraries, compiled kernels
CACHED_SHARE = 0.5  # of the rest; the other half is for states and for blocks being read


@dataclass(frozen=True)
class Work:
    """What all tasks of a round have in common.

    Attributes
    ----------
    program : Program or BlockFunction
    reader : BlockReader
    reference : StateReference
    environment : dict or None
        The fingerprint that every worker must have; None = any.
    """

    program: Any
    reader: BlockReader
    reference: StateReference
    environment: dict[str, str] | None = None


@dataclass(frozen=True)
class Piece:
    """One task's share: the addresses of the leaves of ``span``, in order.

    ``following`` is the block that the same worker is likely to need next; it may be read meanwhile.
    """

    span: Span
    addresses: tuple[BlockAddress, ...]
    following: BlockAddress | None = None


def probe(work: Work) -> tuple[bool, bool]:
    """Tell whether the round's accumulator is sequential, and whether it carries."""
    with _computing(work) as state:
        accumulator = work.program.accumulator(state)
        return is_sequential(accumulator), does_carry(accumulator)


def sum_piece(work: Work, piece: Piece, fan_in: int) -> State:
    """Return the state of the tree's node ``piece.span``."""
    with _accumulating(work) as accumulator:
        return sum_node(accumulator, _Reader(work, piece), piece.addresses, piece.span, fan_in)


def merge_parts(work: Work, *parts: State) -> State:
    """Join adjacent nodes, left to right."""
    with _accumulating(work) as accumulator:
        state = _own(parts[0])
        for part in parts[1:]:
            state = accumulator.merge(state, _own(part))
        return state


def continue_in_order(work: Work, piece: Piece, *before: State) -> State:
    """Fold a sequential accumulator over one more stretch of blocks."""
    with _accumulating(work) as accumulator:
        state = _own(before[0]) if before else accumulator.init()
        return sum_in_order(accumulator, _Reader(work, piece), piece.addresses, state)


def finish(work: Work, *root: State) -> State:
    """Turn the root's state, or that of no blocks at all, into the summary."""
    with _accumulating(work) as accumulator:
        return accumulator.finalize(_own(root[0]) if root else accumulator.init())


def map_piece(work: Work, piece: Piece) -> list[dict[str, Any]]:
    """Run a block function on each address of the piece."""
    with _computing(work) as state:
        read = _Reader(work, piece)
        return [work.program(state, read(address)) for address in piece.addresses]


def give_up_blocks() -> None:
    """Give the memory of kept blocks back to the system, because the process has too little of it."""
    _blocks().give_up()
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc keeps freed memory unless told
    if trim is not None:
        trim(0)


@contextmanager
def _computing(work: Work) -> Iterator[RoundState]:
    """Check the environment, limit BLAS, and hand out the round's state."""
    if work.environment is not None:
        fingerprint.check(work.environment, fingerprint.environment(), f"worker {_address()}")
    with one_blas_thread():
        yield _STATES.load(work.reference)


@contextmanager
def _accumulating(work: Work) -> Iterator[Accumulator]:
    with _computing(work) as state:
        yield work.program.accumulator(state)


class _Reader:
    """Reads a piece's blocks through this process's cache, and begins with the next one meanwhile."""

    def __init__(self, work: Work, piece: Piece) -> None:
        self._reader, self._pass_name = work.reader, work.reference.key
        self._following = iter((*piece.addresses[1:], piece.following))

    def __call__(self, address: BlockAddress) -> Any:
        block = _blocks().read(self._reader, address, self._pass_name)
        following = next(self._following, None)
        if following is not None:
            _blocks().read_ahead(self._reader, following)
        return block


def _own(state: State) -> State:
    """Copy a stored state, since `merge` may reuse its arguments' memory and the task may run again."""
    return {name: np.array(array) for name, array in state.items()}


def _address() -> str:
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:  # not inside a task of a worker
        return "(this process)"
    return f"{worker.name} at {worker.address}"


def cache_bytes(memory_limit: int) -> int:
    """Return how many bytes of blocks a process with this memory limit keeps."""
    return int(CACHED_SHARE * max(0, memory_limit - RESERVED_BYTES))


@cache
def _blocks() -> BlockCache:
    return BlockCache(cache_bytes(_memory_limit()), ahead=_n_threads())


def _n_threads() -> int:
    """Return how many tasks this worker runs at a time."""
    from distributed import get_worker

    try:
        return int(get_worker().state.nthreads)
    except ValueError:
        return 0


def _memory_limit() -> int:
    """Return the memory limit of this worker, or its threads' share of the machine's where it has none."""
    from dask.system import CPU_COUNT
    from distributed import get_worker
    from distributed.system import MEMORY_LIMIT

    try:
        worker = get_worker()
    except ValueError:
        return 0
    limit = worker.memory_manager.memory_limit
    return int(limit or MEMORY_LIMIT * min(1.0, worker.state.nthreads / CPU_COUNT))


_STATES = StateCache()
