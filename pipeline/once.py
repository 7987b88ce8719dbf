"""`bitfleet.encode_once`: spectral codes of rows that pass by once, made at their end.

The directions that make the codes are known when the last row is gone. So what codes are made of is kept:
each row's affinities to the anchors, float32, beside the sketch that learns the directions from them. One
block of rows after the other is written and committed; after the last one all codes are, and the affinities
are removed. What is left is a stream's folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster.threads import one_blas_thread
from ..storage.errors import DataRefused
from ..storage.objects import LocalObjects
from ..storage.parts import (
    AFFINITIES,
    Parts,
    open_affinities,
    unnamed_parts,
    without_parts,
    write_affinities,
    write_part,
)
from ..storage.places import local
from ..storage.run import STREAM_FORMAT, RunDirectory
from ..tasks.affinity import TILE_ROWS
from ..tasks.methods.ssbc import affinities_of
from ..tasks.protocols import RoundState
from ..tasks.weighted_signs import weighted_signs
from .arrays import finite, memory_dtype, plain
from .config import build_method, method_table
from .errors import ConfigError
from .stream import BLOCK_ROWS, FIRST_ROWS, open_checkpoints, open_stream, with_mode
from .stream_driver import projection_digest

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from ..storage.checkpoints import Checkpoints
    from .stream import Streamed


def encode_once(
    blocks: Iterable[Any],
    dest: str | os.PathLike[str],
    *,
    first_row: int = 0,
    seed: int = 0,
    first_rows: int = FIRST_ROWS,
    block_rows: int = BLOCK_ROWS,
    allow_environment_change: bool = False,
    **params: Any,
) -> Streamed:
    """Learn `SSBC` from rows that come once, and code all of them by what was learned from all.

    Parameters
    ----------
    blocks : iterable of arrays of shape (n_i, d)
        Such as a generator: what it yields is asked for once.
    dest : path
        A new folder for the codes, or that of an interrupted call, which goes on; without blocks as it began.
    first_row : int, default 0
        Number of the first row that ``blocks`` yields.  After an interruption the rows that are kept
        (the error of `open_stream` tells how many) need not come again; those that do are passed over.
    seed : int
    first_rows : int, default 4096
        Rows from which anchors, width and mean are taken.
    block_rows : int, default 8192
        Rows kept and committed at a time.  On it the last bits of the sums depend.
    allow_environment_change : bool
    **params
        Of `SSBC`, such as ``n_bits``.

    Returns
    -------
    Streamed
        Codes and model.  Codes are those of ``model.encode(rows)``, except where a score is within the
        rounding of float32 affinities of zero.

    Raises
    ------
    ConfigError
        If rows are missing between those that are kept and ``first_row``, or there are none at all.
    DataRefused
        If rows hold NaN or infinity or have another width; those before are kept.
    IdentityMismatch
        If ``dest`` holds something else.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> rng = np.random.default_rng(0)
    >>> blocks = (rng.normal(size=(50, 8)) for _ in range(6))
    >>> coded = bf.encode_once(blocks, tempfile.mkdtemp() + "/codes", n_bits=16, n_anchors=100)
    >>> coded.codes().shape
    (300, 2)
    """
    dest = local(dest, "where rows are coded that come once")
    method: Any = build_method("ssbc", with_mode(params, "streaming"))
    if method.sketch_rows != "all":
        raise ConfigError('expected sketch_rows="all": every row is there once')
    for name, value, least in (
        ("first_rows", first_rows, 1),
        ("block_rows", block_rows, 1),
        ("first_row", first_row, 0),
    ):
        if value < least:
            raise ConfigError(f"expected {name} >= {least}, got {value}")
    arrays = (plain(block) for block in blocks)
    head = next(arrays, None)
    if head is not None:
        config = {
            "format": STREAM_FORMAT,
            "method": method_table(method),
            "seed": seed,
            "first_rows": first_rows,
            "block_rows": block_rows,
            "n_features": int(head.shape[-1]) if head.ndim else 0,
            "dtype": str(memory_dtype(head.dtype)),
        }
        directory = RunDirectory.create(dest, config)
    elif RunDirectory.exists(dest):  # no more rows: what it is was said when it began
        directory = RunDirectory.open(dest)
        table = dict(directory.config["method"])
        method = build_method(table.pop("name"), table)
    else:
        raise ConfigError("expected at least one block of rows, got none")
    checkpoints = open_checkpoints(directory, allow_environment_change=allow_environment_change)
    with one_blas_thread():
        keeper = _Keeper(Path(directory.path), method, checkpoints, dict(directory.config))
        if not keeper.ended:
            keeper.take(_joined(head, arrays), first_row)
        keeper.finish()
    return open_stream(directory.path)


def _joined(head: Any, rest: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    if head is not None:
        yield head
    yield from rest


class _Keeper:
    """Rows on their way to codes: sketch, kept affinities, and what is committed of both."""

    def __init__(self, path: Path, method: Any, checkpoints: Checkpoints, config: dict[str, Any]) -> None:
        self.path, self.method, self.checkpoints, self.config = path, method, checkpoints, config
        self.dtype = np.dtype(config["dtype"])
        self.parts, self.state = Parts.none(), None
        self.sketch: Any = None
        stored = checkpoints.latest()
        if stored is not None:
            self.parts = Parts.of(stored.arrays)
            self.state = RoundState(stored.round, without_parts(stored.arrays), stored.scalars)
            self.sketch = method.sketch(self.state)

    @property
    def n_kept(self) -> int:
        """Rows whose affinities are committed."""
        return 0 if self.state is None else int(self.state.scalars["n_coded"])  # type: ignore[arg-type]

    @property
    def ended(self) -> bool:
        """Whether all rows are kept."""
        return self.state is not None and bool(self.state.scalars["ended"])

    def take(self, blocks: Iterable[np.ndarray], first_row: int) -> None:
        """Keep all rows that come, from the first one that is not kept yet, and commit that they ended."""
        if first_row > self.n_kept:
            raise ConfigError(
                f"rows {self.n_kept} to {first_row} are missing: begin with the first that is not kept"
            )
        kept, at = self.n_kept, first_row
        waiting: list[np.ndarray] = []
        n_waiting = 0
        for block in blocks:
            rows = self._checked(block, at)[max(kept - at, 0) :]
            at += len(block)
            if not len(rows):
                continue
            waiting.append(rows)
            n_waiting += len(rows)
            if n_waiting >= self._wanted:
                waiting = [self._keep_whole(np.concatenate(waiting))]
                n_waiting = len(waiting[0])
        if self.state is None and not n_waiting:
            raise ConfigError("expected at least one row, got none")
        rest = np.concatenate(waiting) if waiting else np.empty((0, self.config["n_features"]), self.dtype)
        if self.state is None:
            self._begin(rest)
            rest = self._keep_whole(rest)
        if len(rest):
            self._keep(rest)
        self._commit(ended=True)

    def finish(self) -> None:
        """Turn kept affinities into codes, commit these, and remove what is not needed any more."""
        assert self.state is not None
        if self.state.scalars["phase"] != "done":
            state = self.method.finished(self.state, self.sketch, self.state.round + 1)
            model = projection_digest(affinities_of(state), state.arrays["weights"])
            names = {}
            for place, name in enumerate(self.parts.names):
                kept = open_affinities(self.path, name)
                codes = [
                    weighted_signs(kept.rows(i, min(i + TILE_ROWS, kept.n_rows)), state.arrays["weights"])
                    for i in range(0, kept.n_rows, TILE_ROWS)
                ]
                names[place] = write_part(self.path, place, np.concatenate(codes), self.method.n_bits, model)
            self.parts = self.parts.settled(names)
            self.state = state
            self.checkpoints.commit(
                RoundState(state.round, {**state.arrays, **self.parts.arrays()}, state.scalars)
            )
        shutil.rmtree(self.path / AFFINITIES, ignore_errors=True)
        store = LocalObjects(self.path)
        for key in list(unnamed_parts(store, 0.0)):
            store.delete(key)

    @property
    def _wanted(self) -> int:
        """Rows to wait for."""
        return int(self.config["block_rows" if self.state is not None else "first_rows"])

    def _keep_whole(self, rows: np.ndarray) -> np.ndarray:
        """Keep as many whole blocks as there are and return the rest."""
        if self.state is None:
            self._begin(rows)
        step = self.config["block_rows"]
        for start in range(0, len(rows) - step + 1, step):
            self._keep(rows[start : start + step])
            self._commit(ended=False)
        return rows[len(rows) // step * step :]

    def _begin(self, rows: np.ndarray) -> None:
        begun = self.method.begun(rows[: self.config["first_rows"]], self.config["seed"])
        self.state = RoundState(-1, begun.arrays, {**begun.scalars, "n_coded": 0, "ended": False})
        self.sketch = self.method.new_sketch(len(begun.arrays["anchors"]))

    def _keep(self, rows: np.ndarray) -> None:
        """Sketch and write the affinities of some rows."""
        affinities = affinities_of(self.state)  # type: ignore[arg-type]

        def tiles() -> Iterator[np.ndarray]:
            for _, tile in affinities.tiles(rows, np.float32):
                self.sketch.partial_fit(tile)
                yield tile

        number, start = len(self.parts.names), self.parts.n_rows
        name = write_affinities(self.path, number, tiles(), len(affinities.anchors), TILE_ROWS)
        self.parts = self.parts.followed_by(start, start + len(rows), name, provisional=True)

    def _commit(self, *, ended: bool) -> None:
        assert self.state is not None
        held = {f"sketch_{key}": array for key, array in self.sketch.arrays().items()}
        arrays = {**self.state.arrays, **held}
        scalars = {**self.state.scalars, "n_coded": self.parts.n_rows, "ended": ended}
        self.state = RoundState(self.state.round + 1, arrays, scalars)
        self.checkpoints.commit(RoundState(self.state.round, {**arrays, **self.parts.arrays()}, scalars))

    def _checked(self, block: np.ndarray, at: int) -> np.ndarray:
        width = self.config["n_features"]
        if block.ndim != 2 or block.shape[1] != width or block.dtype.kind not in "buif":
            raise DataRefused(
                f"row {at}: expected a block of numbers of shape (n, {width}), got {block.dtype} of shape "
                f"{block.shape}"
            )
        return finite(np.ascontiguousarray(block, self.dtype), first_row=at)
