"""A reader that takes its time, in a seeded random way: blocks finish out of order, and a kill hits a round.

An ordinary module, unlike test modules: ``conftest.py`` puts its folder on the path of driver and workers.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SlowReader:
    """``reader`` with pauses of up to ``seconds`` before each block."""

    reader: Any
    n_rows: int
    n_features: int
    dtype: str
    seconds: float

    def read(self, address: Any) -> Any:
        time.sleep(random.random() * self.seconds)
        return self.reader.read(address)


def slowed(reader: Any, seconds: float) -> SlowReader:
    return SlowReader(reader, reader.n_rows, reader.n_features, reader.dtype, seconds)
