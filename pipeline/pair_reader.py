"""Pairs of blocks of rows with their codes, screened where they are read."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster.cache import BlockCache
from ..tasks.extremes import ScreenedBlock, unit_of
from ..tasks.kernels.screened_rows import Basis, screened
from ..tasks.protocols import BlockPair, RowRange

if TYPE_CHECKING:
    from ..tasks.protocols import BlockAddress, BlockReader, StateReference

_HELD_BYTES = 2**30  # of screened rows, in a process without workers


class PairReader:
    """Reads pairs of blocks for the tasks of `bitfleet.tasks.extremes`; small and picklable.

    Parameters
    ----------
    vectors : BlockReader
    frame : StateReference
        ``shift``, ``components``, ``levels`` and ``unit`` of the screening basis; ``codes``, packed, where no
        reader of codes is given.
    codes : BlockReader, optional
    """

    def __init__(self, vectors: BlockReader, frame: StateReference, codes: BlockReader | None = None) -> None:
        self._vectors, self._frame, self._codes = vectors, frame, codes
        self.n_rows, self.n_features, self.dtype = vectors.n_rows, vectors.n_features, vectors.dtype
        self.digest = frame.key  # of everything that a block depends on but the vectors, which do not change
        self._cache = BlockCache(_HELD_BYTES)

    @property
    def shift(self) -> np.ndarray:
        """What screening subtracts from every row."""
        return _frame(self._frame)[0].shift

    def __reduce__(self) -> Any:
        return PairReader, (self._vectors, self._frame, self._codes)

    def __eq__(self, other: object) -> bool:
        mine = (self.digest, self._vectors, self._codes)
        return isinstance(other, PairReader) and mine == (other.digest, other._vectors, other._codes)

    def __hash__(self) -> int:
        return hash(self.digest)

    def read(self, address: BlockAddress) -> Any:
        """Return a `ScreenedBlock`, or two for a pair."""
        if isinstance(address, BlockPair):
            return self._cache.read(self, address, self.digest)
        basis, packed = _frame(self._frame)
        assert isinstance(address, RowRange)
        codes = (
            packed[address.start : address.stop] if self._codes is None else self._codes.read(address).vectors
        )
        read = functools.partial(_vectors, self._vectors, address)
        block = self._vectors.read(address)
        return ScreenedBlock(block.rows, screened(block.vectors, codes, basis), read)


def _vectors(reader: BlockReader, address: RowRange) -> np.ndarray:
    return reader.read(address).vectors


def _frame(reference: StateReference) -> tuple[Basis, np.ndarray]:
    held = _FRAMES.get(reference.key)
    if held is None:
        state = reference.load()
        arrays = state.arrays
        basis = Basis(arrays["shift"], arrays["components"], arrays["levels"], unit_of(state))
        _FRAMES.clear()
        held = _FRAMES[reference.key] = basis, arrays["codes"]
    return held


_FRAMES: dict[str, tuple[Basis, np.ndarray]] = {}
