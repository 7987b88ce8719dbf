"""From vectors to sets of atoms by sparse coding: the encoder of `methods.sparse_coding`.

With z the row, seen from the mean and in its principal components if there are any, over its length, and
atoms ``D_j`` of length at most one, the code is what a greedy search, and the exchange of single atoms after
it, find for ::

    min ‖ z - Σ_j h_j D_j ‖²   over h in {0, 1}^b with n_active ones.

Atom j on lowers half of this by ``D_j · r - ‖D_j‖² / 2``, r the residual.  Unlike in `pursuit`, atoms have
lengths of their own and stand for what they are worth, so that the sum of them is an estimate of z.

A code is a function of its row alone: scores are rounded to 2⁻²⁰ and all else is integer arithmetic; rows
with a score too near to a half are computed again in fixed order, as in `pursuit`, where the bound is
derived.
"""

from __future__ import annotations

import numpy as np

from .decoder import Decoder
from .kernels.coding import MOST_ACTIVE, SCALE, code_rows, padded_width, quantise
from .kernels.exact import fixed_product
from .methods.base import Front
from .pursuit import PursuitEncoder


class SparseCoder(PursuitEncoder):
    """Encode rows by sparse coding.

    Parameters
    ----------
    mean : ndarray of float64, shape (d,)
        Subtracted from every row.
    components : ndarray of float64, shape (d, r), or None
    atoms : ndarray of float64, shape (b, r)
        Of length at most one.
    n_active : int
        Ones per code, 1 <= n_active < b and at most 1000.
    n_exchanges : int
        How often each atom may give way to a better one.
    scale : float
        The length that rows are decoded to; codes do not depend on it.

    Raises
    ------
    ValueError
        If shapes disagree, a number is not finite, or atoms are longer than one.
    """

    _scale = SCALE
    _whole = np.int32
    _lanes_of = staticmethod(padded_width)
    _quantise = staticmethod(quantise)

    def __init__(
        self,
        mean: np.ndarray,
        components: np.ndarray | None,
        atoms: np.ndarray,
        n_active: int,
        n_exchanges: int,
        scale: float = 1.0,
    ) -> None:
        super().__init__(mean, components, atoms, n_active, 0.0)
        if n_active > MOST_ACTIVE:
            raise ValueError(f"expected n_active of at most {MOST_ACTIVE}, got {n_active}")
        self.n_exchanges, self.scale = n_exchanges, scale
        dots = fixed_product(self.atoms, np.ascontiguousarray(self.atoms.T))
        self._gram = np.zeros((self.n_bits, padded_width(self.n_bits)), np.int32)
        self._gram[:, : self.n_bits] = np.rint(SCALE * dots)
        self._half = self._gram.diagonal() >> 1

    def __reduce__(self) -> tuple[object, ...]:
        parts = (self.mean, self.components, self.atoms, self._n_active, self.n_exchanges, self.scale)
        return type(self), parts

    def _choose(self, scores: np.ndarray, packed: np.ndarray) -> None:
        scores[:, : self.n_bits] -= self._half
        code_rows(scores, self._gram, self._n_active, self.n_exchanges, packed)

    def own_decoder(self) -> Decoder:
        """Return what the codes stand for, rows taken to be of the same length."""
        return Decoder(self.scale * self.atoms, Front(self.mean, self.components), dense=False, ridge=0.0)
