"""What the layers agree on: blocks of rows, accumulators over them, methods, and a round's state.

A *method* says what to add up over the data, an *executor* adds it up over blocks in a fixed tree, a
*store* commits the round's state, a *loop* repeats this until the method is done.  Everything here is
plain data or a contract; nothing reads, schedules or stores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JSONScalar: TypeAlias = "bool | int | float | str | None"
Arrays: TypeAlias = "Mapping[str, np.ndarray]"


@dataclass(frozen=True, order=True)
class RowRange:
    """The rows ``start <= row < stop`` of a dataset: the usual address of a block."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise ValueError(f"expected 0 <= start <= stop, got start={self.start}, stop={self.stop}")

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class RowIndices:
    """Some rows of a dataset by number, in the order given."""

    rows: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class BlockPair:
    """Two row ranges whose cross product is one block of pairwise work."""

    left: RowRange
    right: RowRange


BlockAddress: TypeAlias = RowRange | RowIndices | BlockPair


@dataclass(frozen=True)
class Block:
    """Rows of a dataset in memory.

    Attributes
    ----------
    rows : ndarray of int64, shape (m,)
        Row numbers in the dataset.
    vectors : ndarray of float32 or float64, shape (m, d)
        C-contiguous; read-only, an accumulator never changes its block.
    labels : ndarray of int64, shape (m,), or None
        Class labels, -1 = none.
    """

    rows: np.ndarray
    vectors: np.ndarray
    labels: np.ndarray | None = None


@dataclass(frozen=True)
class DataInfo:
    """What a method may know of the data before it has seen any.

    ``dtype`` is the type that blocks have in memory: ``"float32"``, or ``"float64"`` for float64 input.
    """

    n_rows: int
    n_features: int
    dtype: str = "float32"


@dataclass(frozen=True)
class LeafPlan:
    """How a dataset is cut into leaves and how their sums are merged; part of a run's identity."""

    n_rows: int
    block_rows: int
    fan_in: int = 8

    def __post_init__(self) -> None:
        if self.n_rows < 0 or self.block_rows < 1 or self.fan_in < 2:
            raise ValueError(
                "expected n_rows >= 0, block_rows >= 1 and fan_in >= 2, got "
                f"n_rows={self.n_rows}, block_rows={self.block_rows}, fan_in={self.fan_in}"
            )

    def __len__(self) -> int:
        return -(-self.n_rows // self.block_rows)

    def leaf(self, index: int) -> RowRange:
        """Return the rows of leaf ``index``."""
        start = index * self.block_rows
        return RowRange(start, min(start + self.block_rows, self.n_rows))

    def leaves(self) -> list[RowRange]:
        """Return all leaves in stored order."""
        return [self.leaf(i) for i in range(len(self))]


@dataclass(frozen=True)
class RoundState:
    """Everything a resume needs after round ``round``, and nothing else.

    ``scalars`` are JSON values (finite floats); what a person wants to follow (``objective``, ``loss``) is
    a scalar too, since every round's scalars are kept for good.  Arrays are made C-contiguous: so they are
    read back, and BLAS gives other bits for other layouts.
    """

    round: int
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    scalars: Mapping[str, JSONScalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arrays = {name: np.asarray(array, order="C") for name, array in self.arrays.items()}
        object.__setattr__(self, "arrays", arrays)


class Accumulator(Protocol):
    """A monoid over blocks; its states are plain dictionaries of arrays.

    ``merge(left, right)`` is called with the earlier rows on the left and may reuse its arguments' memory;
    ``update`` may reuse ``state`` but never changes the block.  If ``sequential`` is true there is no merge:
    one task folds ``update`` over all blocks in order.

    It may also have ``carries = True``: then ``update(state, block)`` has the bits of
    ``merge(state, update(init(), block))`` for every state, and merging those of any tree.  Leaves are added
    to one state, many at a time, so that it can use what it has found already.

    It may also have ``prepare(block)``, ``add(state, prepared)`` and ``prepared_by``: the halves of
    ``update``, of which the first, as long as ``prepared_by`` is equal, returns the same in every round.
    """

    sequential: ClassVar[bool] = False

    def init(self) -> dict[str, np.ndarray]:
        """Return the neutral element."""
        ...

    def update(self, state: dict[str, np.ndarray], block: Any) -> dict[str, np.ndarray]:
        """Add one block."""
        ...

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Join two states, earlier rows left."""
        ...

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Turn the merged state into the round's summary."""
        ...


class Program(Protocol):
    """Whatever can build an accumulator from a round's state: a method, or one step of an evaluation.

    A frozen, picklable dataclass of a few hundred bytes: it enters the task graph, the state does not.
    """

    def accumulator(self, state: RoundState) -> Accumulator:
        """Build the accumulator (called on the worker)."""
        ...


class BlockFunction(Protocol):
    """What ``Executor.map`` runs on each block; returns a small JSON-able result."""

    def __call__(self, state: RoundState, block: Block) -> dict[str, Any]:
        """Process one block."""
        ...


class Encoder(Protocol):
    """Turns rows into packed codes; a code is a function of its row alone.

    Attributes
    ----------
    n_features, n_bits : int
    n_active : int or None
        Ones per code of a sparse encoder, None for dense codes.
    """

    n_features: int
    n_bits: int
    n_active: int | None

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Return packed codes, uint8, shape (m, ceil(n_bits / 8)), LSB first, padding bits zero."""
        ...


@runtime_checkable
class Method(Protocol):
    """A hashing method: a frozen dataclass of hyper-parameters and these functions."""

    name: ClassVar[str]
    sparse: ClassVar[bool]

    @property
    def min_leaves(self) -> int:
        """The least number of leaves that the method's steps need."""
        ...

    def start(self, info: DataInfo, seed: int, moments: Arrays | None = None) -> RoundState:
        """Return round 0.  Sees no data; ``moments`` (a Moments summary) replaces the data's own."""
        ...

    def blocks(self, state: RoundState, plan: LeafPlan) -> Sequence[BlockAddress]:
        """Return the addresses that the next round reads."""
        ...

    def accumulator(self, state: RoundState) -> Accumulator:
        """Build the next round's accumulator (called on the worker)."""
        ...

    def advance(self, state: RoundState, summary: Arrays) -> RoundState:
        """Return the next round's state; pure, deterministic, O(state) memory."""
        ...

    def done(self, state: RoundState) -> bool:
        """Tell whether training has ended."""
        ...

    def rounds(self, state: RoundState, plan: LeafPlan) -> int | None:
        """Return the total number of rounds if it is known (for progress), else None."""
        ...

    def encoder(self, state: RoundState) -> Encoder:
        """Return the encoder of a finished state."""
        ...


class BlockReader(Protocol):
    """Reads blocks on a worker; small and picklable (a path and a few numbers) unless data is in memory.

    A reader of stored data may also have ``digest``, which names the content and lets workers keep blocks,
    and the two halves of ``read``: ``fetch(address)`` reads a row range as it is stored, in a thread beside
    the one that computes, and ``widen(block)`` makes of that what ``read`` returns.
    """

    @property
    def n_rows(self) -> int:
        """Rows of the dataset."""
        ...

    @property
    def n_features(self) -> int:
        """Columns of a block's vectors."""
        ...

    @property
    def dtype(self) -> str:
        """Type of a block's vectors in memory."""
        ...

    def read(self, address: BlockAddress) -> Any:
        """Return a `Block`, or a pair of blocks for a `BlockPair`."""
        ...


class StateReference(Protocol):
    """Where a committed state can be read back from; small and picklable."""

    @property
    def key(self) -> str:
        """Identifies the content (a digest), so that workers can cache what they read."""
        ...

    def load(self) -> Any:
        """Return an object with ``round``, ``arrays`` and ``scalars``."""
        ...


class Executor(Protocol):
    """Adds up over blocks.  Every executor computes ``update(init(), block)`` per leaf and merges the leaves
    in the tree of `cluster.tree`, so that all executors return the same bits."""

    def reduce(
        self,
        reader: BlockReader,
        addresses: Sequence[BlockAddress],
        program: Program,
        reference: StateReference,
        *,
        fan_in: int = 8,
    ) -> dict[str, np.ndarray]:
        """Return the finalized sum over all addresses."""
        ...

    def map(
        self,
        function: BlockFunction,
        reader: BlockReader,
        addresses: Sequence[BlockAddress],
        reference: StateReference,
    ) -> list[dict[str, Any]]:
        """Run ``function(state, block)`` on each address; results in the order of the addresses."""
        ...

    def peak_bytes(self) -> list[int]:
        """Return the most memory that the process of each worker has taken since it began."""
        ...
