"""A reader that takes its time, so that blocks end in random order, and that can kill the worker it reads in.

An ordinary module, unlike test modules: ``conftest.py`` puts its folder on the path of driver and workers.
"""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SlowReader:
    """``reader`` with a random pause before each block.

    Attributes
    ----------
    reader : BlockReader
    n_rows, n_features, dtype
        Those of ``reader``.
    folder : str
        Counts the reads of all workers, and notes who died.
    deaths : tuple of int
        After so many reads a worker in the midst of one is killed, once for each.
    seconds : float
        The longest pause.
    """

    reader: Any
    n_rows: int
    n_features: int
    dtype: str
    folder: str
    deaths: tuple[int, ...]
    seconds: float

    def read(self, address: Any) -> Any:
        if self.deaths:
            self._die_in_turn()
        time.sleep(random.random() * self.seconds)
        return self.reader.read(address)

    def _die_in_turn(self) -> None:
        folder = Path(self.folder)
        (folder / f"read-{uuid.uuid4().hex}").touch()
        n_reads = len(list(folder.glob("read-*")))
        for number in self.deaths:
            note = folder / f"died-after-{number}"
            if n_reads >= number and not note.exists():
                with note.open("x") as file:  # of two at the same time one dies
                    file.write(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)


def slowed(reader: Any, folder: Path, deaths: tuple[int, ...] = (), seconds: float = 0.04) -> SlowReader:
    return SlowReader(reader, reader.n_rows, reader.n_features, reader.dtype, str(folder), deaths, seconds)


def victims(folder: Path) -> set[int]:
    """The processes that were killed."""
    return {int(note.read_text()) for note in folder.glob("died-after-*")}
