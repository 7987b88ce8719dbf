"""What need not be computed again in every round over rows in memory.

An accumulator may split ``update`` in two: ``prepare(block)``, which depends on the block and on
``prepared_by`` alone, and ``add(state, prepared)``.  While ``prepared_by`` stays the same from round to
round, what was prepared of a block is kept, if it takes no more memory than the block itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ..tasks.protocols import Accumulator, BlockAddress, BlockReader
    from .fold import Read, State


class Kept:
    """What was prepared of the blocks of one reader, by one set of parameters."""

    def __init__(self) -> None:
        self._of: tuple[Any, Any] = (None, None)
        self._prepared: dict[BlockAddress, Any] = {}

    def split(self, accumulator: Any, reader: BlockReader, read: Read) -> tuple[Accumulator, Read]:
        """Return an accumulator and a way to read that together do what the given ones do."""
        if hasattr(reader, "fetch") or not hasattr(accumulator, "prepare"):
            return accumulator, read
        now = (reader, accumulator.prepared_by)
        if self._of != now:
            self._of, self._prepared = now, {}

        def prepared(address: BlockAddress) -> Any:
            found = self._prepared.get(address)
            if found is None:
                block = read(address)
                found = accumulator.prepare(block)
                if found.nbytes <= block.vectors.nbytes:
                    self._prepared[address] = found
            return found

        return _Adding(accumulator), prepared


class _Adding:
    """The second half of an accumulator."""

    sequential: ClassVar[bool] = False

    def __init__(self, accumulator: Any) -> None:
        self.init, self.merge, self.finalize = accumulator.init, accumulator.merge, accumulator.finalize
        self._add = accumulator.add

    def update(self, state: State, prepared: Any) -> State:
        return self._add(state, prepared)
