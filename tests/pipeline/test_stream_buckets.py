"""Streams whose source, or whose codes, are in a bucket: the bits of the same files in a folder."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline.cli import app
from bitfleet.storage import object_reads
from bitfleet.storage.claims import CLAIM
from bitfleet.storage.growing import open_growing
from bitfleet.storage.growing_objects import SOURCE_OBJECTS, GrowingObjects
from bitfleet.storage.rounds import load_round
from bitfleet.storage.run import newest_manifest
from bitfleet.storage.s3_objects import objects_at
from typer.testing import CliRunner

if TYPE_CHECKING:
    from bitfleet.storage.object_paths import ObjectPath

PARAMS = {"n_bits": 8, "n_anchors": 60, "first_rows": 300, "block_rows": 200}
N = 1200
CUTS = [100, 350, 351, 900]


def rows(n: int = N, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(12, 6)) * 2
    return (centres[rng.integers(12, size=n)] + rng.normal(size=(n, 6))).astype(np.float32)


def saved(part: np.ndarray, kind: str = "npy") -> bytes:
    file = io.BytesIO()
    if kind == "npy":
        np.save(file, part)
    elif kind == "npz":
        np.savez(file, X=part)
    else:
        pytest.importorskip("pyarrow")
        import pyarrow as pa
        import pyarrow.parquet as pq

        column = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), part.shape[1])
        pq.write_table(pa.table({"vectors": column}), file)
    return file.getvalue()


def drop(source: ObjectPath, X: np.ndarray, kinds: tuple[str, ...] = ("npy",)) -> list[str]:
    """Put the parts of some rows below a prefix, in one format after the other."""
    names = []
    for i, part in enumerate(np.split(X, CUTS)):
        kind = kinds[i % len(kinds)]
        names.append(f"{i:04d}.{kind}")
        (source / names[-1]).put(saved(part, kind))
    return names


def in_a_folder(folder: Path, X: np.ndarray) -> bf.Streamed:
    (folder / "in").mkdir()
    for i, part in enumerate(np.split(X, CUTS)):
        np.save(folder / "in" / f"{i:04d}.npy", part)
    found = bf.stream(folder / "in", folder / "stream", **PARAMS)
    assert found is not None
    return found


def copies() -> list[Path]:
    """The copies of objects that this process keeps."""
    return [
        folder
        for folder in Path(tempfile.gettempdir()).glob(f"{object_reads.PREFIX}*")
        if json.loads((folder / CLAIM).read_bytes())["pid"] == os.getpid()
    ]


def test_objects_and_codes_in_a_bucket_give_the_bits_of_a_folder(
    s3: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")  # lists come in many pages
    X = rows()
    folder = in_a_folder(tmp_path, X)
    names = drop(s3 / "in", X)
    (s3 / "in" / "more" / "x.npy").put(saved(X))
    assert [child.name for child in (s3 / "in").children()] == [*names, "more"]
    assert bf.stream(s3 / "in", tmp_path / "stream", **PARAMS).n_rows == N  # the folder's stream goes on
    monkeypatch.delenv("MOTO_S3_DEFAULT_MAX_KEYS")
    found = bf.stream(str(s3 / "in"), s3 / "stream", **{**PARAMS, "block_rows": 1000})
    assert found.n_rows == N
    np.testing.assert_array_equal(found.codes(), folder.codes())
    assert found.model.state.arrays["weights"].tobytes() == folder.model.state.arrays["weights"].tobytes()
    here, there = bf.search(tmp_path / "stream", X[:5], 3), bf.search(str(s3 / "stream"), X[:5], 3)
    np.testing.assert_array_equal(here, there)
    assert bf.stream(s3 / "in", s3 / "stream", **PARAMS).n_rows == N  # nothing more to do
    assert not copies()


@pytest.mark.parametrize("kinds", [("npz", "npy"), ("parquet",)], ids="+".join)
def test_formats_that_are_fetched_whole_give_the_same(s3: ObjectPath, kinds: tuple[str, ...]) -> None:
    X = rows()
    names = drop(s3 / "in", X, kinds)
    source: Any = open_growing(s3 / "in")
    assert isinstance(source, GrowingObjects)
    assert source.available(enough=1) == 100
    assert source.available(enough=101) == 350
    most = 0
    for start in range(0, N, 70):
        assert source.available(enough=start + 70) >= min(start + 70, N)
        np.testing.assert_array_equal(source.rows(start, min(start + 70, N)), X[start : start + 70])
        most = max(most, len(copies()))
    assert most == 1
    assert source.available() == N
    source.close()
    assert not copies()
    (s3 / "in" / "0009.npz").put(saved(X[:4], "npz")[:200])
    with pytest.raises(bf.DataRefused, match=r"s3://.*0009\.npz: no readable \.npz file"):
        source.available()
    source.close()
    (s3 / "in" / names[1]).put(saved(X[:250], kinds[-1]))
    with pytest.raises(bf.CorruptObject, match=f"{names[1]} has changed since its rows were taken"):
        source.available()


KILLED = """
import os, signal, sys
import bitfleet as bf
from bitfleet.storage import run
from bitfleet.storage.faults import Faults

class At(Faults):
    count = -1
    def reach(self, point):
        At.count += point == "commit.before_list"
        if point == "commit.before_manifest" and At.count == 2:
            os.kill(os.getpid(), signal.SIGKILL)

original = run.RunDirectory.checkpoints
run.RunDirectory.checkpoints = lambda self, identity, **k: original(self, identity, faults=At(), **k)
bf.stream(sys.argv[1], sys.argv[2], n_bits=8, n_anchors=60, first_rows=300, block_rows=200)
"""


@pytest.mark.long  # the same with a folder in test_stream.py
def test_no_row_is_lost_or_repeated_when_killed(s3: ObjectPath, tmp_path: Path) -> None:
    X, dest = rows(), tmp_path / "killed"
    names = drop(s3 / "in", X, ("npz",))
    command = [sys.executable, "-c", KILLED, str(s3 / "in"), str(dest)]
    killed = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert bf.open_stream(dest).n_rows == 200  # rounds: the start, a block, and one that was not committed
    found = bf.stream(s3 / "in", dest, **PARAMS)
    np.testing.assert_array_equal(found.codes(), in_a_folder(tmp_path, X).codes())
    arrays = load_round(objects_at(dest), newest_manifest(dest)).arrays
    taken = json.loads(arrays[SOURCE_OBJECTS].tobytes())
    parts = np.split(X, CUTS)
    assert [entry[:3] for entry in taken] == [
        [name, len(part), len(saved(part, "npz"))] for name, part in zip(names, parts, strict=True)
    ]
    source: Any = open_growing(s3 / "in")
    source.recall(arrays)
    assert source.available() == N
    assert not copies()  # nothing was fetched again to know that


def test_what_changed_or_came_late_is_named(s3: ObjectPath, tmp_path: Path) -> None:
    X, dest = rows(), tmp_path / "stream"
    names = drop(s3 / "in", X[:900])
    (s3 / "in" / names[-1]).unlink()
    assert bf.stream(s3 / "in", dest, **PARAMS).n_rows == 900
    (s3 / "in" / names[1]).put(saved(X[100:350] + 1))
    with pytest.raises(bf.CorruptObject, match=f"{names[1]} has changed since its rows were taken"):
        bf.stream(s3 / "in", dest, **PARAMS)
    (s3 / "in" / names[1]).put(saved(X[100:350]))
    (s3 / "in" / "0000a.npy").put(saved(X[:5]))
    with pytest.raises(bf.DataRefused, match=r"added behind those that are there.*'0000a.npy'"):
        bf.stream(s3 / "in", dest, **PARAMS)
    (s3 / "in" / "0000a.npy").unlink()
    (s3 / "in" / "0003a.npy").put(saved(X[900:])[:-8])
    with pytest.raises(bf.DataRefused, match=r"0003a\.npy: expected .* cut off"):
        bf.stream(s3 / "in", dest, **PARAMS)
    (s3 / "in" / "0003a.npy").put(saved(X[900:]))
    assert bf.stream(s3 / "in", dest, **PARAMS).n_rows == N


def test_growing_zarr_in_a_bucket_is_refused_and_files_are_waited_for(s3: ObjectPath, tmp_path: Path) -> None:
    (s3 / "x.zarr" / "zarr.json").put(b"{}")
    with pytest.raises(PermissionError, match="must be on a file system"):
        bf.stream(s3 / "x.zarr", tmp_path / "stream", follow=True, **PARAMS)
    with pytest.raises(bf.DataRefused, match="no files yet"):
        bf.stream(s3 / "in", tmp_path / "stream", **PARAMS)
    notes: list[str] = []

    def note(text: str) -> None:
        if not notes:
            drop(s3 / "in", rows())
        notes.append(text)

    found = bf.stream(
        s3 / "in",
        tmp_path / "stream",
        follow=True,
        poll=0.01,
        note=note,
        should_stop=lambda: len(notes) > 2,
        **PARAMS,
    )
    assert re.match(r"waiting: s3://.*/in: there are no files yet", notes[0])
    assert found.n_rows == 200
    arguments = ["stream", str(s3 / "in"), str(s3 / "new"), "--n-bits", "8", "--set", "n_anchors=60"]
    told = CliRunner().invoke(app, [*arguments, "--first-rows", "2000", "--json"])
    assert json.loads(told.stdout.splitlines()[-1]) == {
        "stream": str(s3 / "new"),
        "rows": 0,
        "waiting_for": 2000,
    }
