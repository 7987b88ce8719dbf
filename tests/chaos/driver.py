"""A driver that kills or stops itself at a named point of a commit; run as a process by the chaos tests.

``driver.py DATA RUN METHOD POINT ROUND ACTION``: METHOD is a JSON table; ROUND counts the commits of this
process from 0.  Exit codes as the command line's: 0, or 4 for a conflict.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline.config import build_method
from bitfleet.pipeline.opening import prepare
from bitfleet.pipeline.train import train
from bitfleet.storage.errors import ManifestConflict
from bitfleet.storage.faults import POINTS, Faults
from chaos_cases import PLAN

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class At(Faults):
    """Sends this process a signal on reaching a point for the n-th commit."""

    def __init__(self, point: str, commit: int, action: str) -> None:
        if point not in POINTS:
            raise ValueError(f"expected one of {POINTS}, got {point!r}")
        self._point, self._commit, self._action = point, commit, action
        self._commits = -1

    def reach(self, point: str) -> None:
        self._commits += point == "commit.before_list"
        if point == self._point and self._commits == self._commit:
            os.kill(os.getpid(), SIGNALS[self._action])


def main(data: str, path: str, table: str, point: str, commit: str, action: str) -> int:
    params = json.loads(table)
    method = build_method(params.pop("name"), params)
    run = prepare(data, path, method, **PLAN)
    checkpoints = run.directory.checkpoints(run.identity(), faults=At(point, int(commit), action))
    try:
        train(method, run.dataset.reader(), SerialExecutor(), checkpoints, run.plan, run.config.seed)
    except ManifestConflict as error:
        print(error, file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
