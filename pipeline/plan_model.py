"""The cost model of a job: arithmetic on what was measured on one block, nothing else.

A round over L blocks, cut into pieces, on W workers of T threads each::

    block   = update + widen + fetch · (share that no worker keeps)           a core's time
    pieces  = max(⌈pieces / (W·T)⌉ · leaves a piece · block,                   the workers'
                  bytes read / storage bandwidth,                              the storage's
                  tasks · seconds a task)                                      the scheduler's
    tail    = levels above the pieces · (f - 1) · (merge + sum / bandwidth)    f: fan-in
    round   = pieces + L · merge / (W·T) + tail + advance + state written and read + a fixed part

At most ``W + (W - 1)(f - 1) · levels`` partial sums travel in a round.  What is not in the model: stragglers
and lost workers (`benchmarks/simulate.py` has these), queues, evaluation, and storage that is slower than it
says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..cluster.sizes import MAX_LEAVES_PER_TASK, leaves_per_task
from ..cluster.tree import depth

if TYPE_CHECKING:
    from .rehearsal import RoundCosts

TASK_SECONDS = 0.004  # of client and scheduler together, measured
ROUND_SECONDS, SERIAL_ROUND_SECONDS = 0.1, 0.02  # probe, finish, the commit with its flushes
STATE_BANDWIDTH = 200e6  # bytes a second of a state that is hashed, written and read back


@dataclass(frozen=True)
class Hardware:
    """What a job is planned for.

    Attributes
    ----------
    workers, threads : int
        Worker processes, and what each works on at a time; no workers: this process.
    memory_limit : int or None
        Of one worker.
    bandwidth : float
        Bytes a second between two workers.
    storage_bandwidth : float
        Bytes a second that all together read from storage.
    speed : float
        Of one of its cores, beside one of this machine's.
    cores : int or None
        Where they share one machine, its cores.
    """

    workers: int
    threads: int = 1
    memory_limit: int | None = None
    bandwidth: float = 1.25e9
    storage_bandwidth: float = math.inf
    speed: float = 1.0
    cores: int | None = None

    @property
    def slots(self) -> int:
        """How many blocks are worked on at a time."""
        slots = max(1, self.workers * self.threads)
        return slots if self.cores is None else min(slots, self.cores)


@dataclass(frozen=True)
class Pass:
    """What all rounds have in common.

    Attributes
    ----------
    fetch, widen : float
        A core's seconds for one block.
    file_bytes : float
        What one block takes in storage.
    kept : float
        The share of blocks that workers keep from round to round.
    fan_in : int
    """

    fetch: float
    widen: float
    file_bytes: float
    kept: float
    fan_in: int


def round_seconds(costs: RoundCosts, data: Pass, there: Hardware, *, first: bool) -> float:
    """Return how long a round takes; in the ``first``, nothing has been kept yet."""
    slots = 1 if costs.sequential else there.slots
    work = pass_seconds(
        costs.n_leaves, costs.update, data, there, slots=slots, kept=0.0 if first else data.kept
    )
    merge = costs.merge / there.speed
    merges = costs.n_leaves * merge / slots
    state = 2 * costs.state_bytes / STATE_BANDWIDTH
    if not there.workers:
        return work + merges + costs.advance / there.speed + state + SERIAL_ROUND_SECONDS
    size = piece_leaves(costs.n_leaves, there, data.fan_in, data.file_bytes)
    above = depth(math.ceil(costs.n_leaves / size), data.fan_in)
    tail = above * (data.fan_in - 1) * (merge + costs.sum_bytes / there.bandwidth)
    return work + merges + tail + costs.advance / there.speed + state + ROUND_SECONDS


def pass_seconds(
    n_leaves: int, compute: float, data: Pass, there: Hardware, *, slots: int, kept: float = 0.0
) -> float:
    """Return how long it takes to read all blocks and to compute ``compute`` seconds on each."""
    fetch = (1 - kept) * data.fetch
    # a core that is idle reads ahead
    alone = not there.workers and (there.cores or 1) > 1
    block = max(compute + data.widen, fetch) if alone else compute + data.widen + fetch
    size = piece_leaves(n_leaves, there, data.fan_in, data.file_bytes)
    pieces = math.ceil(n_leaves / size)
    working = min(math.ceil(pieces / slots) * size, n_leaves) * block / there.speed
    reading = (1 - kept) * n_leaves * data.file_bytes / there.storage_bandwidth
    scheduling = pieces * TASK_SECONDS if there.workers else 0.0
    if there.cores is not None and there.workers >= there.cores:
        working += scheduling / there.cores  # the scheduler has no core of its own
    return max(working, reading, scheduling)


def round_network_bytes(costs: RoundCosts, there: Hardware, fan_in: int) -> int:
    """Return the most bytes of partial sums that travel between workers in a round."""
    if there.workers < 2 or costs.sequential:
        return 0 if not there.workers else costs.sum_bytes
    travelling = there.workers + (there.workers - 1) * (fan_in - 1) * depth(costs.n_leaves, fan_in)
    return costs.sum_bytes * min(travelling, costs.n_leaves)


def piece_leaves(n_leaves: int, there: Hardware, fan_in: int, leaf_bytes: float = math.inf) -> int:
    """Return how many leaves one task adds up."""
    if not there.workers:
        return 1
    threads = there.workers * there.threads
    return leaves_per_task(n_leaves, threads, fan_in, MAX_LEAVES_PER_TASK, leaf_bytes)
