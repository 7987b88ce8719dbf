"""A pass over all pairs of rows: cut into pairs of blocks, these into windows, each of which is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage import events
from ..storage.checkpoints import MemoryCheckpoints
from ..storage.run import RunDirectory
from ..tasks.extremes import Extremes, joined, settled, start_extremes, without_excluded
from ..tasks.kernels.euclidean import pair_distances
from ..tasks.kernels.screened_rows import make_basis, word_rows
from ..tasks.protocols import BlockPair, LeafPlan, RoundState, RowIndices
from ..tasks.random import stream
from .pair_reader import PairReader
from .shared_arrays import share

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..storage.places import Place
    from ..tasks.protocols import BlockReader, Executor
    from .distortion_inputs import PairInputs

WINDOWS = 16  # a pass is committed after each
SAMPLE = 2048  # rows whose pairs tell where to begin
_MOST_ROWS, _LEAST_ROWS, _BLOCKS = 16384, 256, 15
_OPEN_LIMIT = 1 << 19  # pairs that wait to be settled
_READ_BYTES = 2**28  # rows read at once to settle pairs
_NARROW = 0.32, 0.1  # of the squared length may be left where few pairs reach their limits


def pair_rows(n_rows: int) -> int:
    """Return the rows of a block: a power of two that makes about 15 blocks, 256 to 16,384."""
    rows = _LEAST_ROWS
    while rows < _MOST_ROWS and -(-n_rows // rows) > _BLOCKS:
        rows *= 2
    return rows


def block_pairs(plan: LeafPlan) -> list[BlockPair]:
    """Return all pairs of blocks, each once, the earlier block on the left."""
    leaves = plan.leaves()
    return [BlockPair(left, right) for i, left in enumerate(leaves) for right in leaves[i:]]


def windows(addresses: list[BlockPair], n_windows: int = WINDOWS) -> list[list[BlockPair]]:
    """Cut a pass into at most so many windows of about equal numbers of pairs."""
    sizes = np.array([n_pairs(address) for address in addresses])
    places = (np.cumsum(sizes) - sizes / 2) * n_windows // max(sizes.sum(), 1)
    cut = [[a for a, place in zip(addresses, places, strict=True) if place == w] for w in range(n_windows)]
    return [window for window in cut if window]


def n_pairs(address: BlockPair) -> int:
    """Return how many pairs of rows a pair of blocks has."""
    left, right = len(address.left), len(address.right)
    return left * (left - 1) // 2 if address.left == address.right else left * right


class Pass:
    """One pass over all pairs, from the last committed window to the end.

    Parameters
    ----------
    inputs : PairInputs
    executor : Executor
    block_rows : int
    checkpoint : Place or None
        Where windows are committed; None: nowhere.
    scratch : Place
        A folder that all workers see.
    local : bool
        Everything is computed in this process.
    """

    def __init__(
        self, inputs: PairInputs, executor: Executor, block_rows: int, checkpoint: Place | None,
        scratch: Place, local: bool,
    ) -> None:  # fmt: skip
        self._inputs, self._executor, self._local = inputs, executor, local
        self._plan = LeafPlan(inputs.vectors.n_rows, block_rows)
        self._windows = windows(block_pairs(self._plan))
        self._scratch = scratch
        self._directory: RunDirectory | None = None
        if checkpoint is not None or not local:
            self._directory = RunDirectory.create(checkpoint or scratch / "pass", self._config())

    def run(self) -> RoundState:
        """Return the state in which all extremes are known and none is open."""
        if self._directory is None:
            return self._go_on(MemoryCheckpoints())
        log = self._directory.events()
        checkpoints = self._directory.checkpoints(self._config())
        log.append(events.RUN_STARTED, method="max_distortion", rows=self._plan.n_rows, rounds=self._rounds)
        try:
            with events.Heartbeat(self._directory.path):
                state = self._go_on(checkpoints, lambda state: log.append("round", round=state.round))
        except KeyboardInterrupt:
            log.append(events.RUN_INTERRUPTED, reason="interrupted")
            raise
        except BaseException as error:
            log.append(events.RUN_FAILED, error=str(error).partition("\n")[0], type=type(error).__name__)
            raise
        log.append(events.RUN_FINISHED, round=state.round)
        return state

    @property
    def _rounds(self) -> int:
        return len(self._windows) + 1

    def _config(self) -> dict[str, Any]:
        inputs = self._inputs
        return {
            "kind": "max_distortion", "data": inputs.data_digest, "codes": inputs.codes_digest,
            "n_bits": inputs.n_bits, "block_rows": self._plan.block_rows, "windows": len(self._windows),
        }  # fmt: skip

    def _go_on(self, checkpoints: Any, emit: Callable[[RoundState], None] = lambda state: None) -> RoundState:
        stored = checkpoints.latest()
        if stored is not None and stored.round == self._rounds:
            return RoundState(stored.round, stored.arrays, stored.scalars)
        start, reader = begin(self._inputs, None if self._local else self._scratch)
        state = start if stored is None else RoundState(stored.round, stored.arrays, stored.scalars)
        if stored is None:
            checkpoints.commit(state)
        for window in self._windows[state.round :]:
            found = self._executor.reduce(reader, window, Extremes(), checkpoints.reference())
            known = without_excluded(joined(_extremes(state), found), found["low"], found["high"])
            if len(known["open_bits"]) > _OPEN_LIMIT:
                known = settled(known, self._exact)
            state = RoundState(state.round + 1, dict(state.arrays) | known, state.scalars)
            checkpoints.commit(state)
            emit(state)
        known = settled(_extremes(state), self._exact)
        state = RoundState(state.round + 1, dict(state.arrays) | known, state.scalars)
        checkpoints.commit(state)
        emit(state)
        return state

    def _exact(self, pairs: np.ndarray) -> np.ndarray:
        return exact_squares(self._inputs.vectors, pairs)


def exact_squares(reader: BlockReader, pairs: np.ndarray) -> np.ndarray:
    """Return the squared distances of pairs of rows, reading no more rows at a time than fit."""
    squares = np.empty(len(pairs))
    step = max(1, _READ_BYTES // (2 * reader.n_features * np.dtype(reader.dtype).itemsize))
    for at in range(0, len(pairs), step):
        rows, places = np.unique(pairs[at : at + step], return_inverse=True)
        vectors = reader.read(RowIndices(tuple(rows.tolist()))).vectors
        left, right = places.reshape(-1, 2).T.astype(np.int64)
        squares[at : at + step] = pair_distances(vectors, vectors, left.copy(), right.copy())
    return squares


def begin(
    inputs: PairInputs, scratch: Place | None, *, narrow: bool = False
) -> tuple[RoundState, PairReader]:
    """Return round 0, and what reads blocks for screening; both follow from a sample of rows."""
    n_rows = inputs.vectors.n_rows
    rows = np.sort(stream(0, "distortion.sample").permutation(n_rows)[: SAMPLE // 2 if narrow else SAMPLE])
    vectors = inputs.vectors.read(RowIndices(tuple(rows.tolist()))).vectors
    basis = make_basis(vectors, *_NARROW) if narrow else make_basis(vectors)
    state = start_extremes(rows, vectors, word_rows(inputs.packed(rows)), inputs.n_bits)
    frame = share(
        {
            "shift": basis.shift, "components": basis.components, "levels": basis.levels,
            "codes": inputs.held_codes,
        },
        scratch, "frame", {"unit": basis.unit, "data": inputs.data_digest},
    )  # fmt: skip
    start = RoundState(0, {**state, "levels": basis.levels}, {"unit": basis.unit})
    return start, PairReader(inputs.vectors, frame, inputs.codes)


def _extremes(state: RoundState) -> dict[str, np.ndarray]:
    names = ("low", "high", "low_pair", "high_pair", "open_pair", "open_bits", "open_bounds")
    return {name: state.arrays[name] for name in names}
