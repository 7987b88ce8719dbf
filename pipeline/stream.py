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

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster import fingerprint
from ..cluster.threads import one_blas_thread
from ..storage.errors import DataRefused, NothingYet, StorageError
from ..storage.growing import SETTLE, open_growing
from ..storage.parts import Parts, without_parts
from ..storage.places import place
from ..storage.rounds import load_round
from ..storage.run import STREAM_FORMAT, RunDirectory, is_stream, newest_manifest
from ..storage.s3_objects import objects_at
from ..tasks.protocols import DataInfo, RoundState
from .arrays import memory_dtype
from .config import build_method, method_table
from .errors import ConfigError
from .model import Model
from .stream_driver import StreamDriver
from .train import never

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..storage.checkpoints import Checkpoints
    from ..storage.growing import Growing
    from ..storage.places import PathLike, Place

FIRST_ROWS = 4096
BLOCK_ROWS = 8192
_ATTEMPTS = 5


@dataclass(frozen=True)
class Streamed:
    """The codes of a stream as of one committed round.

    Attributes
    ----------
    path : Path or ObjectPath
    model : Model
        The projection of that round; encodes queries.
    n_rows : int
        Rows coded.
    n_provisional : int
        How many of them have codes of a projection that was not final; they are coded again when it is.
    """

    path: Place
    model: Model
    n_rows: int
    n_provisional: int
    parts: Parts

    def codes(self) -> np.ndarray:
        """Return all codes, packed, uint8, shape (n_rows, ceil(n_bits / 8))."""
        found = [np.zeros((0, -(-self.model.n_bits // 8)), np.uint8)]
        found += [part.rows(0, part.n_rows) for part in self.parts.open(self.path)]
        return np.concatenate(found)

    @property
    def monitor(self) -> dict[str, Any]:
        """What the stream says of its codes; see `SSBC.monitor_`."""
        scalars, prefix = self.model.state.scalars, "monitor_"
        return {k.removeprefix(prefix): v for k, v in scalars.items() if k.startswith(prefix)}


def stream(
    source: PathLike,
    dest: PathLike,
    *,
    seed: int = 0,
    first_rows: int = FIRST_ROWS,
    block_rows: int = BLOCK_ROWS,
    vectors: str | None = None,
    ended: bool = False,
    follow: bool = False,
    rebase: bool = False,
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
        A Zarr array (or group with one) that is appended to, a folder that files are moved into, or an
        address ``s3://bucket/prefix`` below which objects are put.
    dest : path
        Where codes and state are kept, on a disk or in a bucket; made if it is not there.
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
    rebase : bool
        First begin a new version of the codes, as `SSBC.rebase` does, and code all rows so far again.  For
        when ``monitor["rebase_advised"]``; readers see the old codes until the new ones are committed.
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
        If rows hold NaN or infinity, or a file is damaged; what came before is committed.
    CorruptObject
        If an object of a bucket has changed since its rows were taken.
    ConfigError
        If ``rebase`` is asked for before any row is coded.
    ManifestConflict
        If another process codes the same stream.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "in").mkdir()
    >>> np.save(folder / "in" / "part-0.npy", np.random.default_rng(0).normal(size=(300, 8)))
    >>> streamed = bf.stream(folder / "in", folder / "s", n_bits=8, n_anchors=50, first_rows=100, ended=True)
    >>> streamed.n_rows, streamed.codes().shape
    (300, (300, 1))
    """
    method: Any = build_method("ssbc", with_mode(params, "online"))
    for name, value in (("first_rows", first_rows), ("block_rows", block_rows)):
        if value < 1:
            raise ConfigError(f"expected {name} >= 1, got {value}")
    dest = place(dest)
    growing = _opened(source, vectors, settle, poll if follow else None, should_stop, note)
    if growing is None:
        return None
    with contextlib.closing(growing):
        config = {
            "format": STREAM_FORMAT,
            "method": method_table(method),
            "seed": seed,
            "first_rows": first_rows,
            "n_features": growing.n_features,
            "dtype": str(memory_dtype(growing.dtype)),
        }
        directory = RunDirectory.create(dest, config)
        checkpoints = open_checkpoints(directory, allow_environment_change=allow_environment_change)
        with one_blas_thread():
            driver = StreamDriver(directory.path, growing, method, checkpoints, config)
            driver.remove_old_parts()
            if rebase:
                driver.rebase()
            while not should_stop():
                if driver.step(block_rows, ended=ended):
                    if note is not None:
                        note(f"{driver.n_rows:,} rows coded")
                elif follow:
                    time.sleep(poll)
                else:
                    break
    return None if driver.state is None else open_stream(directory.path)


def open_stream(path: PathLike) -> Streamed:
    """Open the codes that a stream has committed so far; may be called while it is written.

    Raises
    ------
    DataRefused
        If there is no stream, or nothing is committed yet.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "in").mkdir()
    >>> np.save(folder / "in" / "part-0.npy", np.random.default_rng(0).normal(size=(300, 8)))
    >>> _ = bf.stream(folder / "in", folder / "s", n_bits=8, n_anchors=50, first_rows=100, ended=True)
    >>> bf.open_stream(folder / "s").n_rows
    300
    """
    if not is_stream(path):
        raise DataRefused(f"{path}: expected a stream; make one with: bitfleet stream SOURCE {path}")
    directory = RunDirectory.open(path)
    for attempt in range(_ATTEMPTS):  # a round may be superseded while it is read
        manifest = newest_manifest(path)
        if manifest is None:
            raise DataRefused(
                f"{path}: no rows are coded yet, the stream waits for its first ones; try again later, or "
                f"see: bitfleet status {path}"
            )
        try:
            stored = load_round(objects_at(directory.path), manifest)
            return _streamed(directory.path, directory.config, stored)
        except StorageError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("not reached")


def with_mode(params: dict[str, Any], mode: str) -> dict[str, Any]:
    """Return parameters of `SSBC` with the one mode that is possible; `ConfigError` if they say another."""
    if params.get("mode", mode) != mode:
        raise ConfigError(
            f"expected mode={mode!r}, the only one here, got {params['mode']!r}; leave mode out, or train on "
            "a data set, which takes both"
        )
    return {**params, "mode": mode}


def open_checkpoints(directory: RunDirectory, *, allow_environment_change: bool) -> Checkpoints:
    """Return the checkpoints of a stream's folder, bound to its configuration and this environment."""
    identity = {"stream": dict(directory.config), "environment": fingerprint.environment()}
    return directory.checkpoints(identity, allow_environment_change=allow_environment_change)


def _opened(
    source: PathLike,
    vectors: str | None,
    settle: float,
    poll: float | None,
    should_stop: Callable[[], bool],
    note: Callable[[str], None] | None,
) -> Growing | None:
    """Open the source; with ``poll`` wait until there is something in it, None if told to stop."""
    told = ""
    while True:
        growing = None
        try:
            growing = open_growing(source, vectors=vectors, settle=settle)
            growing.available(ended=True, enough=1)
            _ = growing.n_features
        except BaseException as error:
            if growing is not None:
                growing.close()
            if poll is None or not isinstance(error, NothingYet):
                raise
            if note is not None and str(error) != told:
                note(f"waiting: {error}")
            told = str(error)
        else:
            return growing
        if should_stop():
            return None
        time.sleep(poll)


def _streamed(path: Place, config: Any, stored: Any) -> Streamed:
    if stored.scalars["phase"] != "done":
        n_kept = int(stored.scalars["n_coded"])
        raise DataRefused(f"{path}: there are no codes before the source has ended; {n_kept:,} rows are kept")
    params = dict(config["method"])
    method = build_method(params.pop("name"), params)
    state = RoundState(stored.round, without_parts(stored.arrays), stored.scalars)
    info = DataInfo(int(stored.scalars["n_rows"]), config["n_features"], config["dtype"])
    parts = Parts.of(stored.arrays)
    parts.open(path)  # a missing one is noticed now
    n_rows = int(stored.scalars["n_coded"])
    return Streamed(path, Model(method, state, info), n_rows, parts.n_provisional, parts)
