"""The most memory that processes have taken since they began: this one, and the workers of a cluster."""

from __future__ import annotations

import sys
import threading
from asyncio import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

ANSWER_SECONDS = 5.0


def peak_bytes() -> int | None:
    """Return the largest resident size of this process so far; None where the system does not tell."""
    with suppress(OSError, ValueError, LookupError):  # Linux: of this program, not of what started it
        status = Path("/proc/self/status").read_text("utf-8", "replace")
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def peaks_of_workers(client: Client) -> list[int]:
    """Return the same of each worker, ascending; of none if they do not answer soon.

    A worker that hangs would keep `Client.run` waiting for minutes, and nothing depends on the answer.
    """
    told: list[int] = []

    def ask() -> None:
        with suppress(Exception, CancelledError):
            found = client.run(peak_bytes, on_error="ignore")
            told.extend(sorted(peak for peak in found.values() if isinstance(peak, int)))

    asking = threading.Thread(target=ask, name="bitfleet-memory", daemon=True)
    asking.start()
    asking.join(ANSWER_SECONDS)
    return list(told)
