"""The limit on what may travel inside a task graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped]

from .errors import GraphTooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_EMBEDDED_BYTES = 1_000_000


def ensure_small(values: Mapping[str, Any]) -> int:
    """Return the bytes that the values take in a task.

    Raises
    ------
    GraphTooLarge
        If they take more than `MAX_EMBEDDED_BYTES` together; the message names what is at fault.
    """
    total = 0
    for what, value in values.items():
        sink = _Sink(MAX_EMBEDDED_BYTES - total)
        try:
            cloudpickle.Pickler(sink).dump(value)
        except _Full:
            raise GraphTooLarge(
                f"at most {MAX_EMBEDDED_BYTES:,} bytes may travel with a task, and the {what} "
                f"({type(value).__name__}) takes it beyond. Keep data in a stored data set and states in a "
                "run directory, on a path that every worker sees."
            ) from None
        total += sink.n_bytes
    return total


class _Full(Exception):
    """More was written than a sink takes."""


class _Sink:
    """A file that counts, so that gigabytes are refused before they are copied."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.n_bytes = 0

    def write(self, piece: Any) -> int:
        size = memoryview(piece).nbytes
        self.n_bytes += size
        if self.n_bytes > self.limit:
            raise _Full
        return size
