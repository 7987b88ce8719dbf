"""A disk that is full or fails: a clear message, the rounds before intact, then the same bits after all."""

from __future__ import annotations

import errno
import os
import subprocess
from typing import TYPE_CHECKING

import bitfleet as bf
import pytest
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline.config import build_method
from bitfleet.pipeline.errors import one_line
from bitfleet.pipeline.opening import prepare
from bitfleet.pipeline.train import train
from bitfleet.storage.faults import POINTS, Faults
from bitfleet.storage.run import status
from bitfleet.storage.verify import verify_run
from chaos_cases import PLAN, method_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KiB = 2**10
WRITES = [point for point in POINTS if point.startswith("create.") or "objects" in point or "fsync" in point]


@pytest.fixture(params=[1, 8], ids=lambda size: f"{size}-MiB")
def small_disk(request, tmp_path: Path) -> Iterator[Path]:
    """A file system of so many MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={request.param}m", "none", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted here (it needs root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path, leave: int) -> Path:
    """Fill a file system but for so many bytes."""
    filler = folder / "filler"
    free = os.statvfs(folder)
    filler.write_bytes(bytes(free.f_bavail * free.f_bsize - leave))
    return filler


@pytest.mark.parametrize("leave", [0, 40 * KiB, 150 * KiB, 250 * KiB])
def test_a_full_disk_stops_the_run_and_space_lets_it_go_on(small_disk, data, undisturbed, tmp_path, leave):
    run = small_disk / "run"
    name, params = method_of("posh")
    prepare(data, run, build_method(name, params), **PLAN)
    filler = fill(small_disk, leave)
    with pytest.raises((bf.StorageError, OSError)) as full:
        bf.resume(run)
    message = one_line(full.value)
    assert "o space left" in message
    assert "intact" in message or "free some space" in message
    filler.unlink()
    assert verify_run(run) == []
    before = status(run)["round"]
    assert before is None or before >= 0
    assert leave < 250 * KiB or before >= 1
    assert bf.resume(run).digest == undisturbed("posh")[0]
    assert bf.encode(run, data, small_disk / "codes.zarr").digest == undisturbed("posh")[1]
    assert verify_run(run) == []


class FailsAt(Faults):
    """Fails, once, on reaching a point in the n-th commit."""

    def __init__(self, point: str, commit: int, number: int) -> None:
        self._point, self._left, self._number = point, commit, number

    def reach(self, point: str) -> None:
        if point != self._point:
            return
        self._left -= 1
        if self._left == -1:
            raise OSError(self._number, "injected")


@pytest.mark.parametrize("point", WRITES)
@pytest.mark.parametrize(
    "number",
    [pytest.param(errno.EIO, id="EIO"), pytest.param(errno.ENOSPC, id="ENOSPC", marks=pytest.mark.long)],
)
def test_an_error_at_each_write_leaves_a_run_that_goes_on(data, undisturbed, tmp_path, point, number):
    name, params = method_of("posh")
    run = prepare(data, tmp_path / "run", build_method(name, params), **PLAN)
    checkpoints = run.directory.checkpoints(run.identity(), faults=FailsAt(point, 2, number))
    with pytest.raises((bf.StorageError, OSError), match="injected"):
        train(run.method, run.dataset.reader(), SerialExecutor(), checkpoints, run.plan, run.config.seed)
    assert verify_run(run.path) == []
    assert status(run.path)["round"] is not None
    assert bf.resume(run.path).digest == undisturbed("posh")[0]
