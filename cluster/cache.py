"""What a worker process keeps between tasks: the states and the blocks that it has read.

Both caches can be lost at any time without harm, since everything in them is read back from storage.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..tasks.protocols import BlockPair, RowRange
from .fold import load_state

if TYPE_CHECKING:
    from ..tasks.protocols import BlockAddress, BlockReader, RoundState, StateReference


class StateCache:
    """The last few round states, by `StateReference.key`; each is read once, however many tasks wait."""

    def __init__(self, size: int = 2) -> None:
        self._size = size
        self._states: OrderedDict[str, RoundState] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, reference: StateReference) -> RoundState:
        """Return the state, read-only."""
        with self._lock:
            if reference.key not in self._states:
                self._states[reference.key] = load_state(reference)
                while len(self._states) > self._size:
                    self._states.popitem(last=False)
            self._states.move_to_end(reference.key)
            return self._states[reference.key]


@dataclass
class _Entry:
    block: Any
    n_bytes: int
    last_pass: int


class BlockCache:
    """Blocks by reader and address, up to a number of bytes, for passes that come again in the same order.

    A plain least-recently-used cache that is a little too small for a pass has lost every block before it is
    wanted again.  This one keeps what it has: a block makes room only when a whole pass has gone by without
    it.  Only row ranges are kept, and only of readers that name their content by a ``digest``.

    Parameters
    ----------
    limit : int
        Bytes of all blocks together.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.n_bytes = 0
        self.hits = 0
        self._entries: OrderedDict[tuple[BlockReader, BlockAddress], _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._pass = 0
        self._pass_name = ""

    def read(self, reader: BlockReader, address: BlockAddress, pass_name: str) -> Any:
        """Return the block (or pair of blocks), from memory if it is there.

        Parameters
        ----------
        reader : BlockReader
        address : BlockAddress
        pass_name : str
            Equal for all reads of one pass over the data (the key of the round's state).
        """
        if isinstance(address, BlockPair):
            return self.read(reader, address.left, pass_name), self.read(reader, address.right, pass_name)
        if not isinstance(address, RowRange) or not getattr(reader, "digest", None):
            return reader.read(address)
        key = (reader, address)
        with self._lock:
            self._enter(pass_name)
            entry = self._entries.get(key)
            if entry is not None:
                entry.last_pass = self._pass
                self._entries.move_to_end(key)
                self.hits += 1
                return entry.block
        block = reader.read(address)
        with self._lock:
            self._keep(key, block)
        return block

    def give_up(self) -> None:
        """Drop all blocks, and keep half as many from now on: memory has run short."""
        with self._lock:
            self._entries.clear()
            self.n_bytes = 0
            self.limit //= 2

    def _enter(self, pass_name: str) -> None:
        if pass_name != self._pass_name:
            self._pass_name = pass_name
            self._pass += 1

    def _keep(self, key: tuple[BlockReader, BlockAddress], block: Any) -> None:
        n_bytes = _n_bytes(block)
        if key in self._entries or n_bytes > self.limit:
            return
        while self.n_bytes + n_bytes > self.limit:
            oldest = next(iter(self._entries))
            if self._entries[oldest].last_pass >= self._pass - 1:
                return
            self.n_bytes -= self._entries.pop(oldest).n_bytes
        self._entries[key] = _Entry(block, n_bytes, self._pass)
        self.n_bytes += n_bytes


def _n_bytes(block: Any) -> int:
    labels = getattr(block, "labels", None)
    return block.rows.nbytes + block.vectors.nbytes + (0 if labels is None else labels.nbytes)
