"""How many leaves one task adds up: pure arithmetic; it decides who works when, never what is computed."""

from __future__ import annotations

MAX_LEAVES_PER_TASK = 64  # what is computed again when a worker dies
MIN_TASKS_PER_THREAD = 8  # below, tasks of several leaves would leave workers idle at the end


def leaves_per_task(n_leaves: int, n_threads: int, fan_in: int, most: int = MAX_LEAVES_PER_TASK) -> int:
    """Return how many leaves, a power of the fan-in, one task adds up."""
    largest = min(most, n_leaves // (MIN_TASKS_PER_THREAD * max(1, n_threads)))
    size = 1
    while size * fan_in <= largest:
        size *= fan_in
    return size
