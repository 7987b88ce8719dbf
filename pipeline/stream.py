"""Streams: rows that arrive over time are coded block by block, and can be searched from the first one on.

::

    config.json, manifests/, objects/    as of a run: one committed round for each block of rows
    codes/part-….zarr                    the codes of a block, never changed; the newest round names those

A block is read, coded, its codes are written under a fresh name, and then the round is committed that names
them together with everything the coder is (see `tasks.online`). Whoever is killed in between has left at
most a file that no round names; the same command goes on where the last commit was, so that no row is lost
and none is coded twice. When the projection is frozen, the rows before are read and coded once more.
"""

from __future__ import annotations

import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster import fingerprint
from ..cluster.threads import one_blas_thread
from ..storage.codes import create_codes, finish_codes, open_codes
from ..storage.digest import arrays_digest
from ..storage.errors import DataRefused, IdentityMismatch, StorageError
from ..storage.growing import SETTLE, open_growing
from ..storage.objects import LocalObjects
from ..storage.rounds import load_round
from ..storage.run import STREAM_FORMAT, RunDirectory, is_stream, newest_manifest
from ..tasks.protocols import DataInfo, RoundState
from .arrays import finite, memory_dtype
from .config import build_method, method_table
from .errors import ConfigError
from .model import Model
from .train import never

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from ..storage.checkpoints import Checkpoints
    from ..storage.growing import Growing
    from ..tasks.online import OnlineCoder

FIRST_ROWS = 4096
BLOCK_ROWS = 8192
_OLD = 3600.0  # seconds after which a part that no round names is removed
_ATTEMPTS = 5


@dataclass(frozen=True)
class Streamed:
    """The codes of a stream as of one committed round.

    Attributes
    ----------
    path : Path
    model : Model
        The projection of that round; encodes queries.
    n_rows : int
        Rows coded.
    n_provisional : int
        How many of them have codes of a projection that was not final; they are coded again when it is.
    """

    path: Path
    model: Model
    n_rows: int
    n_provisional: int
    parts: tuple[str, ...]

    def codes(self) -> np.ndarray:
        """Return all codes, packed, uint8, shape (n_rows, ceil(n_bits / 8))."""
        found = [np.zeros((0, -(-self.model.n_bits // 8)), np.uint8)]
        for name in self.parts:
            part = open_codes(self.path / "codes" / name)
            found.append(part.rows(0, part.n_rows))
        return np.concatenate(found)

    @property
    def monitor(self) -> dict[str, Any]:
        """What the stream says of its codes; see `SSBC.monitor_`."""
        scalars, prefix = self.model.state.scalars, "monitor_"
        return {k.removeprefix(prefix): v for k, v in scalars.items() if k.startswith(prefix)}


def stream(
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    seed: int = 0,
    first_rows: int = FIRST_ROWS,
    block_rows: int = BLOCK_ROWS,
    vectors: str | None = None,
    ended: bool = False,
    follow: bool = False,
    poll: float = 1.0,
    settle: float = SETTLE,
    should_stop: Callable[[], bool] = never,
    note: Callable[[str], None] | None = None,
    allow_environment_change: bool = False,
    **params: Any,
) -> Streamed | None:
    """Code the rows of a growing source with online `SSBC`, going on where ``dest`` stands.

    Parameters
    ----------
    source : path
        A Zarr array (or group with one) that is appended to, or a folder that files are moved into.
    dest : path
        Where codes and state are kept; made if it is not there.
    seed : int
    first_rows : int, default 4096
        Wait for so many rows, from which anchors, width and mean are taken.
    block_rows : int, default 8192
        Most rows coded and committed at a time; changes no code.
    vectors : str, optional
        Name of the array in a group or in files of several.
    ended : bool
        The source has ended: take a last chunk that is not full, and fewer than ``first_rows`` rows.
    follow : bool
        Wait for more, looking every ``poll`` seconds, until ``should_stop`` says so; otherwise take
        what is there and return.
    settle : float, default 2
        Seconds after a change of an array's length before its new rows are taken, for whoever appends
        makes the array longer first and writes then.
    should_stop, note : callable
        Asked between blocks; told of each.
    **params
        Of `SSBC`, such as ``n_bits``.

    Returns
    -------
    Streamed or None
        None if there are not enough rows to begin with yet.

    Raises
    ------
    IdentityMismatch
        If ``dest`` holds a stream of other parameters or another source.
    DataRefused
        If rows hold NaN or infinity; those before are committed.
    ManifestConflict
        If another process codes the same stream.
    """
    method: Any = build_method("ssbc", {**params, "mode": "online"})
    for name, value in (("first_rows", first_rows), ("block_rows", block_rows)):
        if value < 1:
            raise ConfigError(f"expected {name} >= 1, got {value}")
    growing = _opened(source, vectors, settle, poll if follow else None, should_stop)
    if growing is None:
        return None
    config = {
        "format": STREAM_FORMAT,
        "method": method_table(method),
        "seed": seed,
        "first_rows": first_rows,
        "n_features": growing.n_features,
        "dtype": str(memory_dtype(growing.dtype)),
    }
    directory = RunDirectory.create(dest, config)
    identity = {"stream": config, "environment": fingerprint.environment()}
    checkpoints = directory.checkpoints(identity, allow_environment_change=allow_environment_change)
    with one_blas_thread():
        driver = _Driver(Path(directory.path), growing, method, checkpoints, config)
        driver.remove_old_parts()
        while not should_stop():
            if driver.step(block_rows, ended=ended):
                if note is not None:
                    note(f"{driver.n_rows:,} rows coded")
            elif follow:
                time.sleep(poll)
            else:
                break
    return None if driver.state is None else open_stream(directory.path)


def open_stream(path: str | os.PathLike[str]) -> Streamed:
    """Open the codes that a stream has committed so far; may be called while it is written.

    Raises
    ------
    DataRefused
        If there is no stream, or nothing is committed yet.
    """
    if not is_stream(path):
        raise DataRefused(f"{path}: expected a stream; make one with: bitfleet stream SOURCE {path}")
    directory = RunDirectory.open(path)
    for attempt in range(_ATTEMPTS):  # a round may be superseded while it is read
        manifest = newest_manifest(path)
        if manifest is None:
            raise DataRefused(f"{path}: nothing is committed yet")
        try:
            stored = load_round(LocalObjects(directory.path), manifest)
            return _streamed(Path(directory.path), directory.config, stored)
        except StorageError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("not reached")


def _opened(
    source: str | os.PathLike[str],
    vectors: str | None,
    settle: float,
    poll: float | None,
    should_stop: Callable[[], bool],
) -> Growing | None:
    """Open the source; with ``poll`` wait until there is something in it, None if told to stop."""
    while True:
        try:
            growing = open_growing(source, vectors=vectors, settle=settle)
            growing.available(ended=True)
            _ = growing.n_features
        except DataRefused:
            if poll is None:
                raise
            if should_stop():
                return None
            time.sleep(poll)
        else:
            return growing


class _Driver:
    """A stream being coded: source, coder, and the table of parts."""

    def __init__(
        self, path: Path, source: Growing, method: Any, checkpoints: Checkpoints, config: dict[str, Any]
    ) -> None:
        self.path, self.source, self.method = path, source, method
        self.checkpoints, self.config = checkpoints, config
        self.dtype = np.dtype(config["dtype"])
        self.state: RoundState | None = None
        self.coder: OnlineCoder | None = None
        stored = checkpoints.latest()
        if stored is not None:
            self.state = RoundState(stored.round, stored.arrays, stored.scalars)
            self.coder = method.coder(self.state)
            self._check_source()

    @property
    def n_rows(self) -> int:
        """Rows coded and committed."""
        return 0 if self.state is None else int(self.state.scalars["n_coded"])  # type: ignore[arg-type]

    def step(self, block_rows: int, *, ended: bool) -> bool:
        """Code and commit the next block; False if there are no rows for it yet."""
        there = self.source.available(ended=ended)
        if self.state is None:
            return self._begin(there, ended=ended)
        start, stop = self.n_rows, min(self.n_rows + block_rows, there)
        if start >= stop:
            return False
        assert self.coder is not None
        was_frozen = self.coder.frozen
        rows = self._rows(start, stop)
        codes, _ = self.coder.encode_next(rows)
        table, names = self.state.arrays["parts"].copy(), list(part_names(self.state))
        if self.coder.frozen and not was_frozen:
            codes = self.coder.encoder.encode(rows)
            for place in np.flatnonzero(table[:, 2]).tolist():
                again = self.coder.encoder.encode(self._rows(*table[place, :2].tolist()))
                names[place] = self._write(place, again)
            table[:, 2] = 0
        names.append(self._write(len(names), codes))
        row = np.array([[start, stop, not self.coder.frozen]], np.int64)
        self._commit(np.concatenate([table, row]), names, stop)
        return True

    def remove_old_parts(self) -> None:
        """Remove codes that no round names: a killed driver's, or superseded ones, after an hour."""
        named = set() if self.state is None else set(part_names(self.state))
        for folder in (self.path / "codes").glob("part-*.zarr"):
            if folder.name not in named and time.time() - folder.stat().st_mtime > _OLD:
                shutil.rmtree(folder, ignore_errors=True)

    def _begin(self, there: int, *, ended: bool) -> bool:
        wanted = self.config["first_rows"]
        if there < wanted and not (ended and there):
            return False
        first = self._rows(0, min(there, wanted))
        begun = self.method.begun(first, self.config["seed"])
        self.coder = self.method.coder(begun)
        self.state = RoundState(-1, begun.arrays, {**begun.scalars, **self._head(first)})
        self._commit(np.zeros((0, 3), np.int64), [], 0)
        return True

    def _commit(self, table: np.ndarray, names: list[str], n_coded: int) -> None:
        assert self.state is not None
        assert self.coder is not None
        state = self.method.coded(self.state, self.coder, self.state.round + 1)
        letters = np.frombuffer("".join(names).encode(), np.uint8).reshape(len(names), -1 if names else 0)
        arrays = {**state.arrays, "parts": table, "part_names": letters}
        seen = self.source.fingerprint(n_coded)
        scalars = {**state.scalars, "n_coded": n_coded, "source_fingerprint": seen}
        self.state = RoundState(state.round, arrays, scalars)
        self.checkpoints.commit(self.state)

    def _write(self, number: int, codes: np.ndarray) -> str:
        """Write a part under a name of its own and return it."""
        assert self.coder is not None
        name = f"part-{number:010d}-{uuid.uuid4().hex}.zarr"
        affinities = self.coder.affinities
        model = arrays_digest(
            {
                "origin": affinities.origin,
                "anchors": affinities.anchors,
                "mean": affinities.mean,
                "sigma": np.array(affinities.sigma),
                "weights": self.coder.projection,
            }
        )
        writer = create_codes(
            self.path / "codes" / name,
            n_rows=len(codes),
            n_bits=self.method.n_bits,
            n_active=None,
            chunk_rows=max(len(codes), 1),
            model_digest=model,
            source_digest="",
        )
        finish_codes(self.path / "codes" / name, [writer.write(0, codes)])
        return name

    def _rows(self, start: int, stop: int) -> np.ndarray:
        rows = np.ascontiguousarray(self.source.rows(start, stop), self.dtype)
        if rows.shape[1:] != (self.config["n_features"],):
            raise DataRefused(
                f"rows {start} to {stop} have {rows.shape[1]} features, the stream began with "
                f"{self.config['n_features']}"
            )
        return finite(rows, first_row=start)

    def _head(self, first: np.ndarray) -> dict[str, Any]:
        return {"n_first": len(first), "first_digest": arrays_digest({"rows": first})}

    def _check_source(self) -> None:
        """Refuse a source that does not begin as the stream did, or has fewer rows by now."""
        assert self.state is not None
        n = max(int(self.state.scalars["n_first"]), self.n_rows)  # type: ignore[arg-type]
        there = self.source.available(ended=True)
        if there >= n:
            head = self._head(self._rows(0, int(self.state.scalars["n_first"])))  # type: ignore[arg-type]
            same = self.source.fingerprint(self.n_rows) == self.state.scalars["source_fingerprint"]
            if same and head["first_digest"] == self.state.scalars["first_digest"]:
                return
        raise IdentityMismatch(
            f"{self.path} is the stream of another source: it has coded {self.n_rows:,} rows, this one has "
            f"{there:,}" + (" and does not begin with the same" if there >= n else "")
        )


def part_names(state: Any) -> tuple[str, ...]:
    """Return the names of the parts that a state holds."""
    return tuple(bytes(row).decode() for row in state.arrays["part_names"])


def _streamed(path: Path, config: Any, stored: Any) -> Streamed:
    params = dict(config["method"])
    method = build_method(params.pop("name"), params)
    arrays = {k: a for k, a in stored.arrays.items() if k not in ("parts", "part_names")}
    state = RoundState(stored.round, arrays, stored.scalars)
    info = DataInfo(int(stored.scalars["n_rows"]), config["n_features"], config["dtype"])
    table = stored.arrays["parts"]
    provisional = int((table[:, 1] - table[:, 0])[table[:, 2] > 0].sum())
    names = part_names(stored)
    for name in names:
        open_codes(path / "codes" / name)
    return Streamed(path, Model(method, state, info), int(stored.scalars["n_coded"]), provisional, names)
