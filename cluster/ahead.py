"""Reading the next block while the current one is computed.

Reading waits for a disk or a network, and decoding holds no lock that computing needs: in a thread beside it,
both take no time of their own.  Only blocks as they are stored are read ahead: they are small, and no sum is
ever begun there.  A block that nobody asks for is dropped when another one takes its place.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..tasks.protocols import RowRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..tasks.protocols import BlockAddress, BlockReader
    from .fold import Read


class ReadAhead:
    """Blocks that are being read, or have been and wait to be asked for; never more than ``limit``.

    Parameters
    ----------
    limit : int
        0: `begin` does nothing.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._coming: OrderedDict[tuple[BlockReader, BlockAddress], Future[Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, reader: BlockReader, address: RowRange) -> None:
        """Begin to read a block, unless the reader cannot, it is coming already, or all threads are busy."""
        fetch = getattr(reader, "fetch", None)
        key = (reader, address)
        with self._lock:
            if fetch is None or self._limit < 1 or key in self._coming:
                return
            if len(self._coming) >= self._limit and not self._drop_unwanted():
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix="bitfleet-ahead")
            self._coming[key] = self._pool.submit(fetch, address)

    def take(self, reader: BlockReader, address: RowRange) -> Any:
        """Return a block as it is stored: the one that is coming, or else read here and now."""
        with self._lock:
            coming = self._coming.pop((reader, address), None)
        if coming is not None:
            with suppress(Exception, CancelledError):  # read again below, where an error that stays is told
                return coming.result()
        return fetched(reader, address)

    def close(self) -> None:
        """Forget what is coming and read no more ahead."""
        with self._lock:
            self._limit = 0
            self._coming.clear()
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _drop_unwanted(self) -> bool:
        """Drop the oldest block that has been read and that nobody has asked for."""
        oldest = next((key for key, future in self._coming.items() if future.done()), None)
        if oldest is not None:
            del self._coming[oldest]
        return oldest is not None


@contextmanager
def reading(reader: BlockReader, addresses: Sequence[BlockAddress]) -> Iterator[Read]:
    """Yield what reads the addresses, in their order, each while the one before it is computed."""
    if not hasattr(reader, "fetch"):
        yield reader.read
        return
    ahead, following = ReadAhead(1), iter(addresses[1:])

    def read(address: BlockAddress) -> Any:
        if not isinstance(address, RowRange):
            return reader.read(address)
        block = widened(reader, ahead.take(reader, address))
        coming = next(following, None)
        if isinstance(coming, RowRange):
            ahead.begin(reader, coming)
        return block

    try:
        yield read
    finally:
        ahead.close()


def fetched(reader: BlockReader, address: BlockAddress) -> Any:
    """Return a block as it is stored, where the reader knows the difference."""
    fetch = getattr(reader, "fetch", None)
    return reader.read(address) if fetch is None else fetch(address)


def widened(reader: BlockReader, block: Any) -> Any:
    """Return what `fetched` returned as ``reader.read`` returns it."""
    widen = getattr(reader, "widen", None)
    return block if widen is None else widen(block)
