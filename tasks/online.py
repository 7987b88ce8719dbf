"""Codes of a stream, each made before the next row is seen, that stay comparable.

An `OnlineCoder` starts from anchors and what they say of each other: their own affinities are the first rows
of its sketch. Then every row is coded by the projection that the rows before it made, and goes into the
sketch, some at a time; after every ``l`` rows the projection follows the sketch (`alignment`). When the share
of bits that are still to flip is predicted to be under ``flip_limit``, the projection is *frozen*: from that
row on there is one version of codes, and whoever has the few rows of the burn-in codes them once more.

Afterwards the sketch goes on as a monitor. Whenever the number of rows has doubled, it says how much a
projection that had followed would have turned, against what chance explains (``drift``), and how well the
frozen one still fits: how much of the best space it catches (``energy``), and how far its basis of that space
is from the best one (``mixing``). What to do about it is for the user: `rebase` starts a new
major version, whose codes are not comparable with the ones before.

Codes, versions and all numbers depend on the rows and their order alone, not on how many come at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .affinity import TILE_ROWS
from .affinity_encoder import AffinityEncoder
from .alignment import aligned, energy_share, flips_between, mixing_index, predicted_flips
from .sketch import FrequentDirections

if TYPE_CHECKING:
    from .affinity import Affinities
    from .protocols import Arrays, JSONScalar

FLIP_LIMIT = 0.02
DRIFT_LIMIT = 3.2  # observed flips over predicted ones
MIXING_LIMIT = 1.03
ENERGY_LIMIT = 0.97


@dataclass
class Monitor:
    """What the sketch says of the codes, as of the last time that the number of rows had doubled.

    Attributes
    ----------
    n_rows : int
        Rows then, the anchors included.
    predicted_flips : float
        Share of bits that more rows of the same kind would still flip, if the projection followed them.
    drift : float
        Flips between half the rows and all, over what chance explains; 0 before the second doubling.
    mixing : float
        `alignment.mixing_index` of the basis of the sketch's space that is nearest to the projection.
    energy : float
        `alignment.energy_share` of the projection.
    drift_alarm, mixing_alarm : bool
        Whether ``drift`` was beyond 3.2, ``mixing`` beyond 1.03, ever since the last rebase.
    rebase_advised : bool
        Whether mixing is beyond 1.03 or energy below 0.97 now.
    """

    n_rows: int = 0
    predicted_flips: float = 0.5
    drift: float = 0.0
    mixing: float = 1.0
    energy: float = 1.0
    drift_alarm: bool = False
    mixing_alarm: bool = False
    rebase_advised: bool = False


class OnlineCoder:
    """The state machine; see the module.

    Parameters
    ----------
    affinities : Affinities
    n_bits, sketch_size : int
    drop_first : int
        Leading directions left out.
    flip_limit : float
        Predicted share of flips under which the projection is frozen.
    sketch_dtype : {"float64", "float32"}
    """

    def __init__(
        self,
        affinities: Affinities,
        n_bits: int,
        sketch_size: int,
        *,
        drop_first: int = 0,
        flip_limit: float = FLIP_LIMIT,
        sketch_dtype: str = "float64",
    ) -> None:
        self.affinities = affinities
        self.n_bits, self.drop_first, self.flip_limit = n_bits, drop_first, flip_limit
        self.sketch = FrequentDirections(sketch_size, dtype=sketch_dtype)
        self.pending = affinities.anchors[:0]  # rows that wait until the sketch takes some at once
        self.monitor = Monitor()
        self.major, self.minor, self.n_frozen = 0, 0, -1
        self.n_doubled = 0
        self.sketch.partial_fit(_among_anchors(affinities))
        vectors, _ = self._directions()
        self.projection = self.shadow = self._filled(vectors)
        self._encoder = AffinityEncoder(affinities, self.projection)

    @property
    def n_rows(self) -> int:
        """Rows of the stream so far."""
        return self.sketch.n_samples_seen_ - len(self.affinities.anchors) + len(self.pending)

    @property
    def frozen(self) -> bool:
        """Whether the projection is final (until a rebase)."""
        return self.n_frozen >= 0

    @property
    def encoder(self) -> AffinityEncoder:
        """The encoder of the present version."""
        return self._encoder

    def encode_next(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take rows; return their codes, each by the projection of its time, and the minor versions.

        Parameters
        ----------
        rows : ndarray of float32 or float64, shape (n, d)

        Returns
        -------
        codes : ndarray of uint8, shape (n, ceil(n_bits / 8))
        versions : ndarray of int32, shape (n,)
        """
        codes = [self._encoder.encode(rows[:0])]
        versions = [np.zeros(0, np.int32)]
        for part in self._parts(rows):
            coded, affinities = self._encoder.encode_tile(part)
            codes.append(coded)
            versions.append(np.full(len(part), self.minor, np.int32))
            self._take(part, affinities)
        return np.concatenate(codes), np.concatenate(versions)

    def push(self, rows: np.ndarray) -> None:
        """Take rows without coding them; leaves the same state as `encode_next`."""
        for part in self._parts(rows):
            self._take(part)

    def rebase(self) -> None:
        """Begin a new major version with the directions of the sketch as they are, frozen if that will do."""
        if len(self.pending):
            self._learn(self._encoder.affinities_of(self.pending))
        vectors, values = self._directions()
        self._set(self._filled(vectors), major=True)
        self.monitor = Monitor(self.sketch.n_samples_seen_, self._predict(values))
        self.shadow, self.n_doubled = self.projection, self.sketch.n_samples_seen_
        self.n_frozen = self.n_rows if self.monitor.predicted_flips < self.flip_limit else -1

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Return everything it is but its parameters: arrays, and scalars."""
        arrays = {f"sketch_{key}": array for key, array in self.sketch.arrays().items()}
        arrays |= {"projection": self.projection, "shadow": self.shadow, "pending": self.pending}
        numbers = ("major", "minor", "n_frozen", "n_doubled")
        scalars: dict[str, JSONScalar] = {key: getattr(self, key) for key in numbers}
        return arrays, {**scalars, **{f"monitor_{k}": v for k, v in vars(self.monitor).items()}}

    def restore(self, arrays: Arrays, scalars: Any) -> OnlineCoder:
        """Become what `state` returned, and return self."""
        parts = {key.removeprefix("sketch_"): a for key, a in arrays.items() if key.startswith("sketch_")}
        self.sketch = FrequentDirections.from_arrays(self.sketch.sketch_size, parts)
        for key in ("projection", "shadow", "pending"):
            setattr(self, key, arrays[key])
        for key in ("major", "minor", "n_frozen", "n_doubled"):
            setattr(self, key, scalars[key])
        self.monitor = Monitor(**{key: scalars[f"monitor_{key}"] for key in vars(self.monitor)})
        self._encoder = self._encoder.with_weights(self.projection)
        return self

    def _parts(self, rows: np.ndarray) -> Any:
        """Yield rows up to the next point at which the sketch takes them."""
        done = 0
        rows = rows.astype(self.pending.dtype, copy=False)
        while done < len(rows):
            n = min(len(rows) - done, self._at_once - len(self.pending))
            yield rows[done : done + n]
            done += n

    @property
    def _at_once(self) -> int:
        """Rows that the sketch takes at once: few while the projection follows, then a whole tile."""
        return TILE_ROWS if self.frozen else min(self.sketch.sketch_size, TILE_ROWS)

    def _take(self, rows: np.ndarray, affinities: np.ndarray | None = None) -> None:
        """Let rows wait until there are enough; affinities, if they are known, serve if these are all."""
        if len(rows) < self._at_once:
            self.pending = np.concatenate([self.pending, rows])
            if len(self.pending) < self._at_once:
                return
            rows, affinities = self.pending, None
        self._learn(self._encoder.affinities_of(rows) if affinities is None else affinities)

    def _learn(self, affinities: np.ndarray) -> None:
        """Give affinities to the sketch, and do what is due after so many rows."""
        self.pending = self.pending[:0]
        self.sketch.partial_fit(affinities)
        if not self.frozen:
            self._follow()
        if self.sketch.n_samples_seen_ >= 2 * max(self.n_doubled, len(self.affinities.anchors)):
            self._look()

    def _follow(self) -> None:
        """Turn the projection towards the sketch's directions, and freeze it if that is predicted to do."""
        vectors, values = self._directions(self._width)
        wide = vectors if vectors.shape[1] >= self.n_bits else self._filled(vectors)
        self._set(aligned(wide, self.projection))
        self.monitor.predicted_flips = self._predict(values)
        if self.monitor.predicted_flips < self.flip_limit:
            self.n_frozen = self.n_rows

    def _look(self) -> None:
        """Compare what a projection that follows has done since half the rows with what chance explains."""
        n, monitor = self.sketch.n_samples_seen_, self.monitor
        vectors, values = self._directions()
        vectors = self._filled(vectors)
        rows = self.sketch.components_.astype(np.float64)
        later = aligned(vectors, self.shadow)
        if self.n_doubled:  # the first doubling compares with the anchors alone, and is not heeded
            observed = flips_between(rows, self.sketch.certificate_, self.shadow, later)
            expected = self._predict(values, self.n_doubled, n)
            monitor.drift = observed / expected if expected > 0 else 0.0
            monitor.drift_alarm = monitor.drift_alarm or monitor.drift > DRIFT_LIMIT
        monitor.predicted_flips = self._predict(values)
        kept = values[self.drop_first :]
        monitor.mixing = mixing_index(rows, kept, aligned(vectors, self.projection))
        monitor.energy = energy_share(rows, kept, self.projection)
        monitor.mixing_alarm = monitor.mixing_alarm or monitor.mixing > MIXING_LIMIT
        monitor.rebase_advised = monitor.mixing > MIXING_LIMIT or monitor.energy < ENERGY_LIMIT
        monitor.n_rows = self.n_doubled = n
        self.shadow = later

    def _predict(self, values: np.ndarray, n: float | None = None, later: float = np.inf) -> float:
        shifted = values[self.drop_first :] + self.sketch.certificate_ / 2
        return predicted_flips(shifted, self.n_bits, self.sketch.n_samples_seen_ if n is None else n, later)

    @property
    def _width(self) -> int:
        """Directions that the projection may move in, half as many again as bits if the sketch is ample.

        The wider the space, the less it moves; one as large as the sketch would hold on to its first rows.
        """
        ample = 2 * self.n_bits + self.drop_first <= self.sketch.sketch_size
        return self.n_bits + self.n_bits // 2 if ample else self.n_bits

    def _directions(self, n: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the sketch's first n directions, k by default, (m, <= n), and all eigenvalues, falling."""
        energies = self.sketch.energies_
        last = self.drop_first + (self.n_bits if n is None else n)
        rows = self.sketch.components_[self.drop_first : last].astype(np.float64)
        lengths = np.sqrt(energies[self.drop_first : last])
        return (rows[lengths > 0] / lengths[lengths > 0, None]).T, energies

    def _filled(self, vectors: np.ndarray) -> np.ndarray:
        """Return exactly k orthonormal columns: these, and whatever is orthogonal to them."""
        basis, triangle = np.linalg.qr(
            np.concatenate([vectors, np.eye(len(vectors), self.n_bits - vectors.shape[1])], axis=1)
        )
        return np.ascontiguousarray(basis * np.where(np.diagonal(triangle) < 0, -1.0, 1.0))

    def _set(self, projection: np.ndarray, *, major: bool = False) -> None:
        self.projection = projection
        self.major, self.minor = (self.major + 1, 0) if major else (self.major, self.minor + 1)
        self._encoder = self._encoder.with_weights(projection)


def _among_anchors(affinities: Affinities) -> np.ndarray:
    """Return the anchors' centred affinities to each other; for one to itself stands the others' mean."""
    w = np.concatenate([tile for _, tile in affinities.tiles(affinities.anchors, np.float64)])
    np.fill_diagonal(w, 0.0)
    np.fill_diagonal(w, w.sum(axis=0) / max(len(w) - 1, 1))
    return w
