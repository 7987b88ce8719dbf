"""What each error means to a shell, and how it reads."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from bitfleet.cluster import errors as cluster_errors
from bitfleet.pipeline.errors import ConfigError, Interrupted, exit_code, one_line
from bitfleet.storage import errors as storage_errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (ValueError("x"), 2),
        (FileNotFoundError("x"), 2),
        (ImportError("x"), 2),
        (storage_errors.DestinationExists("x"), 2),
        (storage_errors.DataRefused("x"), 3),
        (storage_errors.UnsafeObject("x"), 4),
        (storage_errors.CorruptObject("x"), 4),
        (storage_errors.ManifestConflict("x"), 4),
        (storage_errors.IdentityMismatch("x"), 4),
        (cluster_errors.ClusterLost("x"), 5),
        (cluster_errors.EnvironmentMismatch("x"), 5),
        (cluster_errors.PathNotShared("x"), 5),
        (cluster_errors.GraphTooLarge("x"), 5),
        (Interrupted(3), 130),
        (KeyboardInterrupt(), 130),
        (OSError(errno.ENOSPC, "x"), 2),
        (OSError(errno.EROFS, "x", "there"), 2),
        (PermissionError(errno.EACCES, "x", "there"), 2),
        (IsADirectoryError(errno.EISDIR, "x", "there"), 2),
        (OSError("x"), 1),
        (ConnectionResetError(errno.ECONNRESET, "x"), 1),
        (TypeError("x"), 1),
        (ZeroDivisionError("x"), 1),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_every_error_of_storage_and_cluster_has_a_code() -> None:
    for module in (storage_errors, cluster_errors):
        classes = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Exception)]
        assert classes
        assert {exit_code(c("x")) for c in classes} <= {2, 3, 4, 5}


def test_messages_are_one_line() -> None:
    error = storage_errors.IdentityMismatch("r is another run:\n  seed: stored 1, given 2\nchoose another")
    assert one_line(error) == "r is another run: seed: stored 1, given 2; choose another"
    assert one_line(TypeError("no such thing")) == "TypeError: no such thing"
    assert one_line(KeyboardInterrupt()) == "interrupted"
    assert one_line(KeyboardInterrupt("at once")) == "interrupted: at once"
    assert one_line(ValueError()) == "ValueError"


def test_errors_of_a_place_name_it_and_the_remedy() -> None:
    full = one_line(OSError(errno.ENOSPC, "whatever", Path("/data/a b\nc")))
    assert full == "/data/a b; c: no space left on device; free some space, and give the same command again"
    assert "choose another place" in one_line(PermissionError(errno.EACCES, "whatever", "x"))
    assert one_line(OSError(errno.EROFS, "whatever")).startswith("read-only file system; choose")


def test_an_interrupted_run_says_how_to_go_on() -> None:
    assert str(Interrupted(4, Path("runs/a"))) == "stopped after round 4; go on with: bitfleet resume runs/a"
    assert "nothing was kept" in str(Interrupted(4))
