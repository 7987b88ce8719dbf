"""The reference executor: one process, one block in memory at a time, the same tree as everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import tree
from .ahead import reading
from .fold import is_sequential, load_state, sum_in_order, sum_node
from .prepared import Kept
from .threads import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ..tasks.protocols import BlockAddress, BlockFunction, BlockReader, Program, StateReference


class SerialExecutor:
    """Runs everything here and now; what any other executor returns is judged by it.

    Holds one block, the next as it is stored, and at most one accumulator state per level of the tree.
    Of rows in memory, it also holds what an accumulator prepares of them once for many rounds.
    """

    def __init__(self) -> None:
        self._kept = Kept()

    def reduce(
        self,
        reader: BlockReader,
        addresses: Sequence[BlockAddress],
        program: Program,
        reference: StateReference,
        *,
        fan_in: int = 8,
    ) -> dict[str, np.ndarray]:
        """Return the finalized sum over all addresses; of no addresses, the finalized neutral element."""
        tree.check(len(addresses), fan_in)
        with one_blas_thread(), reading(reader, addresses) as read:
            accumulator = program.accumulator(load_state(reference))
            if not addresses or is_sequential(accumulator):
                state = sum_in_order(accumulator, read, addresses, accumulator.init())
            else:
                root = tree.Span(0, len(addresses))
                adding, prepared = self._kept.split(accumulator, reader, read)
                state = sum_node(adding, prepared, addresses, root, fan_in)
            return accumulator.finalize(state)

    def map(
        self,
        function: BlockFunction,
        reader: BlockReader,
        addresses: Sequence[BlockAddress],
        reference: StateReference,
    ) -> list[dict[str, Any]]:
        """Run ``function(state, block)`` on each address; results in the order of the addresses."""
        with one_blas_thread(), reading(reader, addresses) as read:
            state = load_state(reference)
            return [function(state, read(address)) for address in addresses]

    def peak_bytes(self) -> list[int]:
        """Return nothing: there are no workers."""
        return []
