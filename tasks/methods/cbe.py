"""Circulant binary embedding (Yu, Kumar, Gong and Chang, 2014): signs of a circulant projection.

Row x is encoded by the first b signs of ``circ(r) D x``, with D a diagonal of random signs and circ(r) the
circulant matrix of a vector r (d,), whose entry (i, j) is ``r[(i - j) mod d]``. Then d numbers describe all
d × d, and the product takes O(d log d) by the fast Fourier transform F. With normal r the collision
probability of a bit is that of LSH. ``learned`` lowers, over ``r̃ = F(r)`` and codes B of n rows X (signs
over sqrt(d), 0 beyond bit b)::

    ‖B - X D circ(r)ᵀ‖² + λ n ‖circ(r) circ(r)ᵀ - I‖²

by turns. Both terms come apart by frequency l: given B, with ``m_l = Σ |F(Dx)_l|²`` and ``h_l = Σ
conj(F(Dx)_l) F(b)_l``::

    r̃_l = exp(i arg h_l) · argmin_t  m_l t² - 2 |h_l| t + λ n d (t² - 1)²

so that a round adds up m and h over the data. More bits than inputs take several circulant matrices, each
with signs and sums of its own. Encoding here multiplies with the d × b matrix itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.fft
import scipy.linalg

from ..random import stream
from ..sums import Sums, refuse_infinite
from .base import Front, LinearMethod, front_of, integer
from .checks import check_common, check_count, check_number

if TYPE_CHECKING:
    from ..protocols import Accumulator, Arrays, Block, JSONScalar, LeafPlan, RoundState


@dataclass(frozen=True)
class CBE(LinearMethod):
    """Signs of a circulant projection, random or learned.

    Parameters
    ----------
    n_bits : int, default 64
    learned : bool, default True
        Fit r to the data; else it stays random.
    n_iter : int, default 10
        Rounds of learning, one pass over the data each.
    penalty : float, default 1.0
        λ.
    center : bool, default True
        Subtract the mean of the training rows.
    n_components : int, float or None
        Principal components to work in, or the share of variance they must explain; by default all features.

    Notes
    -----
    Every round records ``loss``, the objective over n after the codes followed.
    """

    n_bits: int = 64
    learned: bool = True
    n_iter: int = 10
    penalty: float = 1.0
    center: bool = True
    n_components: int | float | None = None
    name: ClassVar[str] = "cbe"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_common(self)
        check_count(self, "n_iter")
        check_number(self, "penalty", above=False, optional=False)
        if not isinstance(self.learned, (bool, np.bool_)):
            raise ValueError(f"expected learned to be True or False, got {self.learned!r}")
        object.__setattr__(self, "learned", bool(self.learned))

    def begin(self, front: Front, seed: int, moments: Arrays | None) -> dict[str, np.ndarray]:
        """Draw signs and r of each matrix."""
        width = front.n_outputs
        shape = (-(-self.n_bits // width), width)
        rng = stream(seed, "cbe.projection")
        signs = np.where(rng.random(shape) < 0.5, -1.0, 1.0)
        circulant = rng.standard_normal(shape)
        if self.learned:  # begin where the penalty is zero: |r̃| = 1
            spectrum = np.exp(1j * np.angle(scipy.fft.rfft(circulant)))
            circulant = scipy.fft.irfft(spectrum, n=width)
        return {"signs": signs, "circulant": circulant, "weights": self._projection(circulant, signs)}

    def train_accumulator(self, state: RoundState) -> Accumulator:
        """Add up m and h."""
        arrays = state.arrays
        return Frequencies(front_of(state), arrays["signs"], arrays["circulant"], self.n_bits)

    def train_advance(
        self, state: RoundState, summary: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, JSONScalar]]:
        """Fit r̃ frequency by frequency."""
        width, n = state.arrays["circulant"].shape[1], int(summary["count"])
        spectrum = scipy.fft.rfft(state.arrays["circulant"])
        cross = summary["cross_real"] + 1j * summary["cross_imaginary"]
        loss = self._loss(spectrum, summary["square"], cross, n, width)
        sizes = _best_sizes(summary["square"], np.abs(cross), self.penalty * n * width, np.abs(spectrum))
        phases = np.where(np.abs(cross) > 0, np.angle(cross), np.angle(spectrum))
        circulant = scipy.fft.irfft(sizes * np.exp(1j * phases), n=width)
        weights = self._projection(circulant, state.arrays["signs"])
        return {"circulant": circulant, "weights": weights}, {"loss": loss}

    def trained(self, state: RoundState) -> bool:
        """Tell whether r is final."""
        return not self.learned or state.round - integer(state, "first_round") >= self.n_iter

    def training_rounds(self, state: RoundState, plan: LeafPlan) -> int:
        """Return ``n_iter`` if r is learned."""
        return self.n_iter if self.learned else 0

    def _projection(self, circulant: np.ndarray, signs: np.ndarray) -> np.ndarray:
        """Return the matrix of which a row's scores are the product, shape (r, b)."""
        rows = [scipy.linalg.circulant(r) * sign for r, sign in zip(circulant, signs, strict=True)]
        return np.ascontiguousarray(np.concatenate(rows)[: self.n_bits].T)

    def _loss(self, spectrum: np.ndarray, square: np.ndarray, cross: np.ndarray, n: int, width: int) -> float:
        """Return the objective over n; each inner frequency stands for itself and its conjugate."""
        times = np.full(spectrum.shape[1], 2.0)
        times[[0, -1] if width % 2 == 0 else [0]] = 1
        size = np.abs(spectrum)
        fit = square * size**2 - 2 * (np.conj(spectrum) * cross).real
        penalty = self.penalty * n * width * (size**2 - 1) ** 2
        return self.n_bits / width + float(((fit + penalty) @ times).sum()) / (width * n)


class Frequencies(Sums):
    """Accumulator of ``m_l`` and ``h_l`` for the frequencies 0 … d/2, in float64."""

    def __init__(self, front: Front, signs: np.ndarray, circulant: np.ndarray, n_bits: int) -> None:
        self.front, self.signs = front, signs
        self.spectrum = scipy.fft.rfft(circulant)
        self.used = (np.arange(circulant.size) < n_bits).reshape(circulant.shape)

    def init(self) -> dict[str, np.ndarray]:
        """Return the sums over no rows."""
        zero = np.zeros(self.spectrum.shape)
        sums = {key: zero.copy() for key in ("square", "cross_real", "cross_imaginary")}
        return {**sums, "count": np.zeros((), np.int64)}

    def update(self, state: dict[str, np.ndarray], block: Block) -> dict[str, np.ndarray]:
        """Add the rows of one block."""
        sums = {key: state[key].copy() for key in ("square", "cross_real", "cross_imaginary")}
        for rows in self.front.tiles(block.vectors, np.float64):
            width = rows.shape[1]
            for k, (signs, spectrum, used) in enumerate(
                zip(self.signs, self.spectrum, self.used, strict=True)
            ):
                with np.errstate(over="ignore", invalid="ignore"):
                    seen = scipy.fft.rfft(rows * signs, axis=1)
                    scores = scipy.fft.irfft(seen * spectrum, n=width, axis=1)
                    codes = np.where(used, np.where(scores >= 0, 1.0, -1.0) / np.sqrt(width), 0.0)
                    cross = (np.conj(seen) * scipy.fft.rfft(codes, axis=1)).sum(axis=0)
                    sums["square"][k] += (seen.real**2 + seen.imag**2).sum(axis=0)
                    sums["cross_real"][k] += cross.real
                    sums["cross_imaginary"][k] += cross.imag
        count = np.array(state["count"] + len(block.rows), np.int64)
        return {**sums, "count": count}

    def finalize(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums; refuse what is not finite."""
        refuse_infinite(state, "square")
        return state


def _best_sizes(square: np.ndarray, cross: np.ndarray, penalty: float, before: np.ndarray) -> np.ndarray:
    """Return the t >= 0 of least ``m t² - 2 |h| t + penalty (t² - 1)²`` for each frequency.

    The derivative over 4 penalty is ``t³ + p t - q`` with q >= 0: by Descartes' rule it has one positive
    root if q > 0, and that is the minimum.
    """
    if penalty == 0:
        return np.divide(cross, square, out=before.copy(), where=square > 0)
    p, q = square / (2 * penalty) - 1, cross / (2 * penalty)
    t = np.maximum(1.0, np.cbrt(q)) + np.sqrt(np.maximum(-p, 0))  # above the root, whence Newton only falls
    for _ in range(60):
        t = t - (t**3 + p * t - q) / (3 * t * t + p)
    return np.maximum(t, 0.0)
