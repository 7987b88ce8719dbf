"""Which worker is offered which piece of work next: contiguous runs of rows, the idle help the busy.

A worker is offered the same rows in every round, so that it finds them in its block cache.  This is advice to
the scheduler and no more: it changes who computes a piece, never what is computed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Placement:
    """Deals pieces to workers, a bounded number of them at a time.

    Parameters
    ----------
    positions : sequence of float
        For each piece, where its rows lie in the data, from 0 to 1.
    workers : mapping of str to int
        Worker address -> pieces that it may have in flight; the order decides who gets which rows.  At least
        one.
    waiting : int
        Of as many in flight, one is at work and the others wait.
    """

    def __init__(self, positions: Sequence[float], workers: Mapping[str, int], waiting: int = 2) -> None:
        self._waiting = waiting
        self._following: dict[int, int] = {}
        self._queues: dict[str, deque[int]] = {worker: deque() for worker in workers}
        self._slots = dict(workers)
        self._in_flight = dict.fromkeys(workers, 0)
        order = list(workers)
        for piece, position in enumerate(positions):
            home = order[min(int(position * len(order)), len(order) - 1)]
            self._queues[home].append(piece)
        self._n_left = len(positions)

    def update(self, workers: Mapping[str, int]) -> None:
        """Take note of who is there now; newcomers help, and what the missing had left goes to the others."""
        self._slots = dict(workers)
        for worker in workers:
            self._queues.setdefault(worker, deque())
            self._in_flight.setdefault(worker, 0)

    def take(self) -> list[tuple[int, str]]:
        """Return the pieces to submit now, each with the worker it is meant for."""
        taken: list[tuple[int, str]] = []
        while self._n_left:
            before = len(taken)
            for worker, slots in self._slots.items():
                if self._in_flight[worker] < slots and (piece := self._next(worker)) is not None:
                    self._note_following(piece, worker, slots)
                    self._in_flight[worker] += 1
                    self._n_left -= 1
                    taken.append((piece, worker))
            if len(taken) == before:
                break
        return taken

    def following(self, piece: int) -> int | None:
        """Return, once, what the worker of a piece just taken is likely to begin after it."""
        return self._following.pop(piece, None)

    def done(self, worker: str) -> None:
        """Tell that a piece meant for ``worker`` is done, wherever it was computed."""
        self._in_flight[worker] -= 1

    def _note_following(self, piece: int, worker: str, slots: int) -> None:
        own, at_work = self._queues[worker], max(1, slots // self._waiting)
        if len(own) >= at_work:
            self._following[piece] = own[at_work - 1]

    def _next(self, worker: str) -> int | None:
        own = self._queues[worker]
        if own:
            return own.popleft()
        longest = max(self._queues.values(), key=len)
        return longest.pop() if longest else None
