"""`bitfleet.describe_codes`: how well codes use their bits, whoever made them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster.serial import SerialExecutor
from ..storage.codes import Codes, open_codes
from ..storage.errors import StorageError
from ..storage.places import temporary_place
from ..storage.run import is_stream
from ..tasks.describe import BitCounts, CountBits, bit_statistics, correlation
from ..tasks.protocols import Block, LeafPlan
from .code_inputs import loaded
from .errors import ConfigError
from .evaluate_inputs import opened
from .shared_arrays import scratch_beside, share
from .stream import open_stream

if TYPE_CHECKING:
    from ..tasks.protocols import Arrays, Executor


@dataclass(frozen=True, eq=False)
class CodeStatistics:
    """How codes use their bits.

    Attributes
    ----------
    n_rows, n_bits : int
    n_live_bits, n_constant_bits : int
        Bits that any code has, and bits that all codes agree on.
    effective_bits : float
        ``(Σ p)² / Σ p²`` of the bits' shares p: so many evenly used bits concentrate the ones as much.
    busiest_bit : float
        The largest share.
    entropy : float
        ``Σ H(p)``: at most so many bits of information are in a code.
    participation_ratio : float
        ``(tr C)² / ‖C‖²`` of the bits' covariance C: so many independent directions of equal variance.
        Bits that fire together are used evenly and still say the same; this tells.  None for more than 4,096
        bits, whose pairs are not counted.
    postings_per_query : float
        Codes in the inverted lists of a query's ones, if queries are like the codes.
    usage : ndarray of float64, shape (n_bits,)
        The share of codes that have each bit.
    correlation : ndarray of float64, shape (n_bits, n_bits)
        0 with a bit that never changes; None for more than 4,096 bits.
    """

    n_rows: int
    n_bits: int
    n_live_bits: int
    n_constant_bits: int
    effective_bits: float
    busiest_bit: float
    entropy: float
    participation_ratio: float | None
    postings_per_query: float
    usage: np.ndarray
    correlation: np.ndarray | None

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, without the arrays, as JSON values."""
        return {key: value for key, value in vars(self).items() if key not in ("usage", "correlation")}


def describe_codes(
    codes: Codes | str | os.PathLike[str] | np.ndarray,
    *,
    n_bits: int | None = None,
    n_active: int | None = None,
    scheduler: Any = None,
    executor: Executor | None = None,
) -> CodeStatistics:
    """Count how codes use their bits.

    Parameters
    ----------
    codes : Codes, path of codes or of a stream, or array
        Packed codes, uint8 of shape (n, ceil(n_bits / 8)), least significant bit first; or the places of the
        ones of sparse codes, int32 or int64 of shape (n, n_active).
    n_bits : int, optional
        Needed for places of ones, and for packed codes whose last byte is not full.
    n_active : int, optional
        Ones of every code, if codes in memory are sparse; only speed depends on it.
    scheduler : str or distributed.Client, optional
        Where to count stored codes, as in `bitfleet.train`; this process by default.
    executor : Executor, optional
        Instead of ``scheduler``: an executor that is there already.

    Returns
    -------
    CodeStatistics

    Raises
    ------
    ConfigError
        If there are no codes, or they are not what is said of them.

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> codes = np.array([[0b0011], [0b0101], [0b0110]], np.uint8)
    >>> found = bf.describe_codes(codes, n_bits=4)
    >>> found.n_live_bits, found.n_constant_bits, round(found.effective_bits, 1)
    (3, 1, 3.0)
    """
    if is_stream(codes):
        streamed = open_stream(codes)  # type: ignore[arg-type]
        codes, n_bits = streamed.codes(), streamed.model.n_bits
    stored = open_codes(codes) if isinstance(codes, str | os.PathLike) else codes
    if not isinstance(stored, Codes) and (scheduler is not None or executor is not None):
        raise ConfigError("a cluster reads codes from files: write them with encode(…, dest=)")
    try:
        if isinstance(stored, Codes):
            counts = _counted(stored, scheduler, executor)
        else:
            packed, n_bits, n_active = loaded(stored, n_bits, n_active)
            counter = BitCounts(n_bits, n_active)
            block = Block(np.arange(len(packed)), packed)
            counts = counter.finalize(counter.update(counter.init(), block))
    except StorageError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if not int(counts["count"]):
        raise ConfigError("expected at least one code, got none")
    usage = counts["ones"] / int(counts["count"])
    return CodeStatistics(**bit_statistics(counts), usage=usage, correlation=correlation(counts))  # type: ignore[arg-type]


def _counted(codes: Codes, scheduler: Any, executor: Executor | None) -> Arrays:
    """Count the bits of stored codes, block by block."""
    where = scratch_beside(codes, scheduler)
    with (
        temporary_place(where) as folder,
        opened(executor, scheduler, folder) as there,
    ):
        leaves = LeafPlan(codes.n_rows, codes.chunk_rows).leaves()
        shared = None if isinstance(there, SerialExecutor) else folder
        nothing = share({"nothing": np.zeros(1)}, shared, "nothing")
        return there.reduce(codes.reader(), leaves, CountBits(codes.n_bits, codes.n_active), nothing)
