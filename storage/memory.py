"""Checkpoints of a run that is kept nowhere, for estimators on ordinary arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .digest import arrays_digest, json_digest
from .manifest import now
from .rounds import State, StoredRound, check_state, history_row, read_only


@dataclass(frozen=True)
class MemoryReference:
    """A round that is carried along instead of being read back."""

    state: StoredRound
    key: str

    def load(self) -> StoredRound:
        """Return the round."""
        return self.state


class MemoryCheckpoints:
    """The same verbs for a run that is kept nowhere: the newest round is held in memory."""

    def __init__(self) -> None:
        self._newest: StoredRound | None = None
        self._history: list[dict[str, Any]] = []

    def latest(self) -> StoredRound | None:
        """Return the newest committed round, or None if there is none yet."""
        return self._newest

    def commit(self, state: State) -> None:
        """Hold the round that follows the one last committed; refuses what `Checkpoints` would refuse."""
        check_state(state)
        expected = 0 if self._newest is None else self._newest.round + 1
        if state.round != expected:
            raise ValueError(f"expected round {expected} after the one last committed, got {state.round}")
        digest = json_digest([state.round, dict(state.scalars), arrays_digest(state.arrays)])
        arrays = {name: read_only(array) for name, array in state.arrays.items()}
        row = history_row(state.round, state.scalars, now())
        self._newest = StoredRound(state.round, arrays, dict(state.scalars), digest, row["time"])
        self._history.append(row)

    def reference(self) -> MemoryReference:
        """Return a reference that holds the round itself."""
        if self._newest is None:
            raise ValueError("nothing has been committed yet: there is no round to refer to")
        return MemoryReference(self._newest, self._newest.digest)

    def history(self) -> list[dict[str, Any]]:
        """Return the scalars of every committed round, with its number and the time of its commit."""
        return [dict(row) for row in self._history]
