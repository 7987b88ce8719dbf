"""What a worker process keeps between tasks: the states and the blocks that it has read.

Both caches can be lost at any time without harm, since everything in them is read back from storage.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..tasks.protocols import BlockPair, RowRange
from .ahead import ReadAhead, widened
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
    it.  Only row ranges are kept, and only of readers that name their content by a ``digest``: of data that
    has been replaced, nothing is ever found.

    Where the reader can `fetch` blocks as they are stored (half as many bytes for float16, a quarter for
    uint8), these are kept, and widened each time that they are asked for.

    Parameters
    ----------
    limit : int
        Bytes of all blocks together.
    ahead : int
        Blocks that are read ahead at a time, each in a thread of its own; they come on top of the limit.
    """

    def __init__(self, limit: int, *, ahead: int = 0) -> None:
        self.limit = limit
        self.n_bytes = 0
        self.hits = 0
        self._entries: OrderedDict[tuple[BlockReader, BlockAddress], _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._pass = 0
        self._pass_name = ""
        self._coming = ReadAhead(ahead)

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
        with self._lock:
            self._enter(pass_name)
            kept = self._find(reader, address)
        if kept is None:
            kept = self._coming.take(reader, address)
            with self._lock:
                self._keep((reader, address), kept)
        return widened(reader, kept)

    def read_ahead(self, reader: BlockReader, address: BlockAddress) -> None:
        """Begin to read a block that will be asked for; does nothing where that is of no use."""
        if isinstance(address, RowRange) and getattr(reader, "digest", None):
            with self._lock:
                wanted = (reader, address) not in self._entries
            if wanted:
                self._coming.begin(reader, address)

    def give_up(self) -> None:
        """Drop all blocks, keep half as many from now on and read none ahead: memory has run short."""
        self._coming.close()
        with self._lock:
            self._entries.clear()
            self.n_bytes = 0
            self.limit //= 2

    def _find(self, reader: BlockReader, address: RowRange) -> Any:
        entry = self._entries.get((reader, address))
        if entry is None:
            return None
        entry.last_pass = self._pass
        self._entries.move_to_end((reader, address))
        self.hits += 1
        return entry.block

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
