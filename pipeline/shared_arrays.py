"""Arrays that all tasks of some work need, as a `StateReference`: in this process, or in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..storage import models
from ..storage.codes import Codes
from ..storage.errors import CorruptObject
from ..tasks.protocols import RoundState
from .executors import choose
from .model import HeldState

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ..storage.places import Place
    from ..tasks.protocols import JSONScalar, StateReference


@dataclass(frozen=True)
class StoredArrays:
    """Arrays in a folder that all workers see."""

    path: str
    key: str

    def load(self) -> RoundState:
        """Read the arrays back, verified."""
        header, arrays = models.load_model(self.path)
        if models.model_digest(header, arrays) != self.key:
            raise CorruptObject(f"{self.path} holds other arrays than these; start again")
        return RoundState(0, arrays, header["scalars"])


def share(
    arrays: Mapping[str, np.ndarray],
    scratch: Place | None,
    name: str,
    scalars: Mapping[str, JSONScalar] | None = None,
) -> StateReference:
    """Return a reference to arrays: held here if ``scratch`` is None, else written there once."""
    header = {"format": f"bitfleet-{name}", "scalars": dict(scalars or {})}
    digest = models.model_digest(header, arrays)
    if scratch is None:
        return HeldState(RoundState(0, arrays, dict(scalars or {})), digest)
    path = scratch / f"{name}-{digest[:16]}.zarr"
    if not path.exists():
        models.save_model(path, header, arrays)
    return StoredArrays(str(path), digest)


def scratch_beside(codes: Any, scheduler: Any) -> Place | None:
    """Return where scratch files go so that every worker sees them; None is this machine's own place."""
    if scheduler is None or choose(scheduler).on_this_machine or not isinstance(codes, Codes):
        return None
    return codes.path.parent
