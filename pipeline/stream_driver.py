"""A stream being coded: its source, its coder and the table of parts, one block and one commit at a time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.digest import arrays_digest
from ..storage.errors import DataRefused, IdentityMismatch
from ..storage.parts import Parts, unnamed_parts, without_parts, write_part
from ..storage.s3_objects import objects_at
from ..tasks.protocols import RoundState
from .arrays import finite
from .errors import ConfigError

if TYPE_CHECKING:
    from ..storage.checkpoints import Checkpoints
    from ..storage.growing import Growing
    from ..storage.places import Place
    from ..tasks.affinity import Affinities
    from ..tasks.online import OnlineCoder

logger = logging.getLogger(__name__)
_OLD = 3600.0  # seconds after which a part that no round names is removed


class StreamDriver:
    """Codes block by block, from where the last commit stands.

    Parameters
    ----------
    path : Path or ObjectPath
        The stream's folder.
    source : Growing
    method : SSBC
    checkpoints : Checkpoints
    config : dict
        The stream's.

    Raises
    ------
    IdentityMismatch
        If ``source`` does not begin as the stream did, or has fewer rows by now.
    """

    def __init__(
        self, path: Place, source: Growing, method: Any, checkpoints: Checkpoints, config: dict[str, Any]
    ) -> None:
        self.path, self.source, self.method = path, source, method
        self.checkpoints, self.config = checkpoints, config
        self.dtype = np.dtype(config["dtype"])
        self.state: RoundState | None = None
        self.coder: OnlineCoder | None = None
        self.parts = Parts.none()
        self._told: set[str] = set()
        stored = checkpoints.latest()
        if stored is not None:
            self.parts = Parts.of(stored.arrays)
            self.state = RoundState(stored.round, without_parts(stored.arrays), stored.scalars)
            self.coder = method.coder(self.state)
            source.recall(stored.arrays)
            self._check_source()

    @property
    def n_rows(self) -> int:
        """Rows coded and committed."""
        return 0 if self.state is None else int(self.state.scalars["n_coded"])  # type: ignore[arg-type]

    def step(self, block_rows: int, *, ended: bool) -> bool:
        """Code and commit the next block; False if there are no rows for it yet."""
        enough = self.config["first_rows"] if self.state is None else self.n_rows + block_rows
        there = self.source.available(ended=ended, enough=enough)
        self._tell_left_out()
        if self.state is None:
            return self._begin(there, ended=ended)
        start, stop = self.n_rows, min(self.n_rows + block_rows, there)
        if start >= stop:
            return False
        assert self.coder is not None
        was_frozen = self.coder.frozen
        rows = self._rows(start, stop)
        codes, _ = self.coder.encode_next(rows)
        if self.coder.frozen and not was_frozen:
            codes = self.coder.encoder.encode(rows)
            self.parts = self._coded_again()
        name = self._write(len(self.parts.names), codes)
        self.parts = self.parts.followed_by(start, stop, name, provisional=not self.coder.frozen)
        self._commit(stop)
        return True

    def rebase(self) -> None:
        """Code all rows again by the directions that the sketch has now, and commit that.

        Raises
        ------
        ConfigError
            If nothing is coded yet.
        """
        if self.coder is None or not self.n_rows:
            raise ConfigError(f"{self.path}: no rows are coded yet, there is nothing to rebase")
        self.coder.rebase()
        encoder = self.coder.encoder
        names = {
            place: self._write(place, encoder.encode(self._rows(start, stop)))
            for place, (start, stop, _) in enumerate(self.parts.table.tolist())
        }
        self.parts = self.parts.settled(names, provisional=not self.coder.frozen)
        self._commit(self.n_rows)

    def remove_old_parts(self) -> None:
        """Remove codes that no round names: a killed driver's, or superseded ones, after an hour."""
        store = objects_at(self.path)
        for key in list(unnamed_parts(store, _OLD)):
            store.delete(key)

    def _begin(self, there: int, *, ended: bool) -> bool:
        wanted = self.config["first_rows"]
        if there < wanted and not (ended and there):
            return False
        first = self._rows(0, min(there, wanted))
        begun = self.method.begun(first, self.config["seed"])
        self.coder = self.method.coder(begun)
        self.state = RoundState(-1, begun.arrays, {**begun.scalars, **self._head(first)})
        self._commit(0)
        return True

    def _coded_again(self) -> Parts:
        """Return all parts with final codes: provisional ones are read and coded once more."""
        assert self.coder is not None
        encoder = self.coder.encoder
        return self.parts.settled(
            {
                place: self._write(place, encoder.encode(self._rows(start, stop)))
                for place, start, stop in self.parts.provisional()
            }
        )

    def _commit(self, n_coded: int) -> None:
        assert self.state is not None
        assert self.coder is not None
        state = self.method.coded(self.state, self.coder, self.state.round + 1)
        seen = self.source.fingerprint(n_coded)
        scalars = {**state.scalars, "n_coded": n_coded, "source_fingerprint": seen}
        self.state = RoundState(state.round, state.arrays, scalars)
        arrays = {**state.arrays, **self.parts.arrays(), **self.source.record(n_coded)}
        self.checkpoints.commit(RoundState(state.round, arrays, scalars))

    def _write(self, number: int, codes: np.ndarray) -> str:
        """Write a part with the digest of the projection that made it, and return its name."""
        assert self.coder is not None
        model = projection_digest(self.coder.affinities, self.coder.projection)
        return write_part(self.path, number, codes, self.method.n_bits, model)

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
        assert self.state is not None
        n = max(int(self.state.scalars["n_first"]), self.n_rows)  # type: ignore[arg-type]
        there = self.source.available(ended=True, enough=n)
        if there >= n:
            head = self._head(self._rows(0, int(self.state.scalars["n_first"])))  # type: ignore[arg-type]
            same = self.source.fingerprint(self.n_rows) == self.state.scalars["source_fingerprint"]
            if same and head["first_digest"] == self.state.scalars["first_digest"]:
                return
        raise IdentityMismatch(
            f"{self.path} is the stream of another source: it has coded {self.n_rows:,} rows, this one has "
            f"{there:,}" + (" and does not begin with the same" if there >= n else "")
        )

    def _tell_left_out(self) -> None:
        """Warn, once each, of what lies in the source and is none of it."""
        for name, reason in self.source.left_out.items():
            if name not in self._told:
                logger.warning("left out: %s", reason)
                self._told.add(name)


def projection_digest(affinities: Affinities, weights: np.ndarray) -> str:
    """Return the digest of all that a code depends on beside its row."""
    return arrays_digest(
        {
            "origin": affinities.origin,
            "anchors": affinities.anchors,
            "mean": affinities.mean,
            "sigma": np.array(affinities.sigma),
            "weights": weights,
        }
    )
