"""How many leaves one task adds up: pure arithmetic; it decides who works when, never what is computed."""

from __future__ import annotations

MAX_LEAVES_PER_TASK = 64  # what is computed again when a worker dies
MIN_TASKS_PER_THREAD = 8  # below, tasks of several leaves would leave workers idle at the end
MIN_TINY_TASKS_PER_THREAD = 4  # where idling costs less than the tasks themselves, some 5 ms each
TINY_TASK_BYTES = 256 * 1024


def leaves_per_task(
    n_leaves: int,
    n_threads: int,
    fan_in: int,
    most: int = MAX_LEAVES_PER_TASK,
    leaf_bytes: float = TINY_TASK_BYTES,
) -> int:
    """Return how many leaves, a power of the fan-in, one task adds up."""
    n_threads = max(1, n_threads)
    largest = max(
        n_leaves // (MIN_TASKS_PER_THREAD * n_threads),
        min(n_leaves // (MIN_TINY_TASKS_PER_THREAD * n_threads), int(TINY_TASK_BYTES / max(1, leaf_bytes))),
    )
    return _power(fan_in, min(most, largest))


def carried_leaves_per_task(n_leaves: int, n_threads: int, most: int = MAX_LEAVES_PER_TASK) -> int:
    """Return how many leaves, a power of two, one task adds to one state: as many as leave none idle."""
    return _power(2, min(most, n_leaves // max(1, n_threads)))


def _power(base: int, largest: int) -> int:
    size = 1
    while size * base <= largest:
        size *= base
    return size
