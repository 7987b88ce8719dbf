"""What SSBC adds up, a sample of rows and the sketch of affinities, and what it concludes from the sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..affinity import Affinities
from ..gram import sketch_for

if TYPE_CHECKING:
    from ..online import OnlineCoder
    from ..protocols import Arrays, Block, JSONScalar

AUTO = 1.4  # times the mean distance of a row to the nearest anchor
_FAR = 16.0  # times the median squared distance from the median: beyond it rows have no say in the origin
_LEAST_WIDTH = 1e-150
_SAME = 1e-12  # squared distances up to this share of the lengths' squares are rounding


class GatherSample:
    """Accumulator of chosen rows as they are, in their order.

    Parameters
    ----------
    chosen : ndarray of int64, shape (s,)
        Row numbers, ascending.
    n_features : int
    dtype : str
    """

    sequential: ClassVar[bool] = False

    def __init__(self, chosen: np.ndarray, n_features: int, dtype: str) -> None:
        self.chosen = chosen
        self.nothing = np.zeros((0, n_features), dtype)

    def init(self) -> dict[str, np.ndarray]:
        """Return no rows."""
        return {"rows": self.nothing}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Append the chosen rows of a block."""
        check_finite(block)
        vectors = block.vectors[np.isin(block.rows, self.chosen)]
        return {"rows": np.concatenate([state["rows"], vectors])}

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Join two lists."""
        return {"rows": np.concatenate([left["rows"], right["rows"]])}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the rows."""
        return state


class AffinitySketch:
    """Accumulator of the centred affinities of all rows: their Gram matrix, or a sketch of it.

    Parameters
    ----------
    affinities : Affinities
    sketch_size, buffer_size : int
    dtype : {"float64", "float32"}
        Of the sketch.
    """

    sequential: ClassVar[bool] = False

    def __init__(self, affinities: Affinities, sketch_size: int, buffer_size: int, dtype: str) -> None:
        self.affinities = affinities
        self.size = len(affinities.anchors), sketch_size, buffer_size, dtype

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        return sketch_for(*self.size).arrays()

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        check_finite(block)
        sketch = sketch_for(*self.size, state)
        for _, tile in self.affinities.tiles(block.vectors, block.vectors.dtype):
            sketch.partial_fit(tile)
        return sketch.arrays()

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Join two sketches, earlier rows left."""
        return sketch_for(*self.size, left).merge(sketch_for(*self.size, right)).arrays()

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sketch."""
        return state


class OnlinePass:
    """Accumulator that hands all rows, in order, to a coder; its states are the coder's.

    Parameters
    ----------
    coder : OnlineCoder
        As it stands before the first row.
    """

    sequential: ClassVar[bool] = True

    def __init__(self, coder: OnlineCoder) -> None:
        self.coder = coder

    def init(self) -> dict[str, np.ndarray]:
        """Return the coder's state before the first row."""
        return pack_coder(self.coder)

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Take the rows of one block."""
        check_finite(block)
        unpack_coder(self.coder, state)
        self.coder.push(block.vectors)
        return pack_coder(self.coder)

    def merge(self, left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Refuse: one row comes after the other."""
        raise NotImplementedError("an online pass is sequential")

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the coder's state."""
        return state


def pack_coder(coder: OnlineCoder) -> dict[str, np.ndarray]:
    """Return a coder's state as arrays alone."""
    arrays, scalars = coder.state()
    return {**arrays, **{f"number_{key}": np.array(value) for key, value in scalars.items()}}


def unpack_coder(coder: OnlineCoder, packed: Arrays) -> None:
    """Give a coder the state that `pack_coder` returned."""
    numbers = {k.removeprefix("number_"): a.item() for k, a in packed.items() if k.startswith("number_")}
    coder.restore(packed, numbers)


def describe(
    sample: np.ndarray, is_anchor: np.ndarray, sigma: float | str, *, center: bool, multiple: float = AUTO
) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
    """Return the map to affinities that a sample of rows suggests.

    Parameters
    ----------
    sample : ndarray, shape (s, d)
    is_anchor : ndarray of bool, shape (s,)
    sigma : float or "auto"
    center : bool
        Whether the mean affinities of the sample are to be subtracted, an anchor's to itself left out.
    multiple : float
        "auto" is so many times the mean distance to the nearest anchor.

    Raises
    ------
    ValueError
        If ``sigma`` is so small that no affinity is left, or so large that all are equal, or distances
        overflow or underflow.
    """
    anchors = np.ascontiguousarray(sample[is_anchor])
    origin = _middle(sample.astype(np.float64))
    own = (np.flatnonzero(is_anchor), np.arange(len(anchors)))
    nearest = _nearest(sample - origin, anchors - origin, own)
    distance = float(nearest.mean()) if len(nearest) else 0.0
    if not np.isfinite(distance):
        raise ValueError("expected finite distances, but squared ones overflow float64; rescale the vectors")
    width = (multiple * distance or 1.0) if isinstance(sigma, str) else sigma
    if width < _LEAST_WIDTH:
        raise ValueError(
            f"expected distances whose squares float64 holds, but rows are {distance:g} from the nearest "
            "anchor; rescale the vectors"
        )
    w = _affinities(Affinities(origin, anchors, width, np.zeros(len(anchors))), sample)
    w[own] = 0
    if len(sample) > 1 and not w.any():
        raise ValueError(
            f"sigma={width:g} is so small that no row has an affinity to any anchor but itself; the mean "
            f'distance to the nearest anchor is {distance:g}: take sigma="auto" or a few times that'
        )
    if distance and len(anchors) > 1 and _all_one(w, own, sample.dtype):
        raise ValueError(
            f"sigma={width:g} is so large that all affinities are 1; the mean distance to the nearest anchor "
            f'is {distance:g}: take sigma="auto" or a few times that'
        )
    w[own] = 1 if len(sample) == 1 else 0
    mean = w.sum(axis=0) / max(len(sample) - 1, 1) if center else np.zeros(len(anchors))
    arrays = {"origin": origin, "anchors": anchors, "affinity_mean": mean}
    return arrays, {"sigma": float(width), "neighbor_distance": distance}


def check_finite(block: Block) -> None:
    """Refuse NaN and infinity, by the number of the row."""
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(block.vectors.sum(dtype=np.float64))
    if suspicious:
        bad = block.rows[~np.isfinite(block.vectors).all(axis=1)]
        if len(bad):
            raise ValueError(
                f"expected finite vectors, but row {bad[0]} holds NaN or infinity "
                f"({len(bad)} such rows in its block)"
            )


def _middle(rows: np.ndarray) -> np.ndarray:
    """Return the mean of all rows that are not far out, so that a few of those cannot move it."""
    middle = np.median(rows, axis=0)
    with np.errstate(over="ignore"):
        distances = np.square(rows - middle).sum(axis=1)
    near = distances <= _FAR * np.median(distances)
    mean = rows[near].mean(axis=0)
    return np.where((rows[near] == rows[near][0]).all(axis=0), rows[near][0], mean)


def _all_one(w: np.ndarray, own: Any, dtype: np.dtype[Any]) -> bool:
    """Tell whether affinities, but those of anchors to themselves, are 1 as far as rows' type can tell."""
    others = np.ones(w.shape, bool)
    others[own] = False
    return bool((w[others] >= 1 - np.finfo(dtype).eps).all())


def _affinities(affinities: Affinities, rows: np.ndarray) -> np.ndarray:
    return np.concatenate([tile for _, tile in affinities.tiles(rows, np.float64)])


def _nearest(rows: np.ndarray, anchors: np.ndarray, own: Any) -> np.ndarray:
    """Return the distance of each row to the nearest anchor that is another vector, where there is one."""
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = np.square(rows).sum(axis=1)[:, None] + np.square(anchors).sum(axis=1)
        squares = sizes - 2 * (rows @ anchors.T)
        squares[squares <= _SAME * sizes] = np.inf
        squares[own] = np.inf
        if not np.isfinite(sizes).all():
            return np.array([np.inf])
    nearest = squares.min(axis=1)
    return np.sqrt(nearest[np.isfinite(nearest)])
