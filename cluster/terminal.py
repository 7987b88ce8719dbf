"""Preloaded by workers on this machine: Ctrl-C is for the driver.

A terminal sends Ctrl-C to every process of the job.  What it means is the driver's to decide (it ends after a
whole round); workers that died of it would only be started again.
"""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Ignore the terminal's interrupt in this worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
