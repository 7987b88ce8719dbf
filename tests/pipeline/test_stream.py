"""Streams: the same codes as one pass, whatever is killed when, and searchable from the first block on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import bitfleet as bf
import numpy as np
import pytest
import zarr
from bitfleet.pipeline.cli import app
from bitfleet.storage.clean import clean_run
from bitfleet.storage.faults import POINTS
from bitfleet.storage.growing import GrowingArray, GrowingFolder, open_growing
from typer.testing import CliRunner

PARAMS = {"n_bits": 8, "n_anchors": 60, "first_rows": 300, "block_rows": 200, "settle": 0.0}
N = 1500


def rows(n: int = N, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(12, 6)) * 2
    return (centres[rng.integers(12, size=n)] + rng.normal(size=(n, 6))).astype(np.float32)


def append(path: Path, X: np.ndarray, chunk: int = 64) -> None:
    """Append rows as other programs do."""
    if path.exists():
        zarr.open_array(path, mode="r+").append(X)
    else:
        array = zarr.create_array(path, shape=X.shape, chunks=(chunk, X.shape[1]), dtype=X.dtype)
        array[:] = X


def once(X: np.ndarray) -> np.ndarray:
    """All codes by one pass in memory, the burn-in coded again."""
    est = bf.SSBC(n_bits=8, n_anchors=60, mode="online", random_state=0)
    est.partial_fit(X[:300])  # the anchors are among these
    method = est.model_.method
    coder = method.coder(method.begun(X[:300], 0))
    codes, _ = coder.encode_next(X)
    if coder.frozen:
        codes[: coder.n_frozen] = coder.encoder.encode(X[: coder.n_frozen])
    return codes


def test_a_growing_array_gives_the_codes_of_one_pass(tmp_path: Path) -> None:
    X, source, dest = rows(), tmp_path / "in.zarr", tmp_path / "stream"
    append(source, X[:250])
    assert bf.stream(source, dest, **PARAMS) is None  # 192 rows in whole chunks are too few to begin
    append(source, X[250:700])
    found = bf.stream(source, dest, **PARAMS)
    assert found.n_rows == 640
    append(source, X[700:])
    assert bf.stream(source, dest, **PARAMS).n_rows == 1472
    found = bf.stream(source, dest, ended=True, **PARAMS)
    assert found.n_rows == N
    assert found.n_provisional == 0
    np.testing.assert_array_equal(found.codes(), once(X))
    assert found.monitor["n_rows"] > 900
    np.testing.assert_array_equal(found.model.encode(X[-100:]), found.codes()[-100:])


def test_files_that_drop_into_a_folder_give_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    X, source, dest = rows(), tmp_path / "in", tmp_path / "stream"
    source.mkdir()
    (source / "0000-README.md").write_text("what other programs leave in folders")
    with pytest.raises(bf.DataRefused, match="no files yet"):
        bf.stream(source, dest, **PARAMS)
    for i, part in enumerate(np.split(X, [100, 350, 351, 900])):
        np.save(source / ".being-written.npy", part)
        (source / "half.npy.part").write_bytes(b"half")
        (source / ".being-written.npy").rename(source / f"{i:04d}.npy")
        found = bf.stream(source, dest, **PARAMS)
    assert found.n_rows == N
    np.testing.assert_array_equal(found.codes(), once(X))
    assert "left out" in caplog.text
    assert "0000-README.md: of no known format" in caplog.text
    np.save(source / "0000a.npy", X[:5])
    with pytest.raises(bf.IdentityMismatch, match="does not begin with the same"):
        bf.stream(source, dest, **PARAMS)


def test_readers_search_what_is_there(tmp_path: Path) -> None:
    X, source, dest = rows(), tmp_path / "in.zarr", tmp_path / "stream"
    with pytest.raises(bf.DataRefused, match="expected a stream"):
        bf.open_stream(dest)
    append(source, X[:640])
    bf.stream(source, dest, **PARAMS)
    reader = bf.open_stream(dest)
    distances, ids = bf.search(dest, X[:5], 3)
    assert (distances[:, 0] <= 1).all()
    assert ids.max() < 640
    append(source, X[640:])
    bf.stream(source, dest, ended=True, **PARAMS)
    assert reader.n_rows == 640
    assert bf.open_stream(dest).n_rows == N
    _, ids = bf.search(dest, X[-5:], N)
    assert ids.shape == (5, N)


KILLED = """
import os, signal, sys
import bitfleet as bf
from bitfleet.storage import run
from bitfleet.storage.faults import Faults

class At(Faults):
    count = -1
    def reach(self, point):
        At.count += point == "commit.before_list"
        if point == sys.argv[3] and At.count == int(sys.argv[4]):
            os.kill(os.getpid(), signal.SIGKILL)

original = run.RunDirectory.checkpoints
run.RunDirectory.checkpoints = lambda self, identity, **k: original(self, identity, faults=At(), **k)
bf.stream(sys.argv[1], sys.argv[2], ended=True, n_bits=8, n_anchors=60, first_rows=300, block_rows=200,
          settle=0)
"""


@pytest.mark.parametrize(
    ("point", "commit"),
    [
        ("commit.before_manifest", 2),
        pytest.param("commit.before_objects", 0, marks=pytest.mark.long),
        pytest.param("commit.after_manifest", 3, marks=pytest.mark.long),
        *(
            pytest.param(p, c, marks=pytest.mark.long)
            for p in POINTS
            if p.startswith("commit")
            for c in (1, 5)
        ),
    ],
)
def test_no_row_is_lost_or_repeated_when_killed(tmp_path: Path, point: str, commit: int) -> None:
    X, source, dest = rows(), tmp_path / "in.zarr", tmp_path / "stream"
    append(source, X)
    command = [sys.executable, "-c", KILLED, str(source), str(dest), point, str(commit)]
    killed = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    found = bf.stream(source, dest, ended=True, **PARAMS)
    assert found.n_rows == N
    np.testing.assert_array_equal(found.codes(), once(X))


def test_followers_wait_and_readers_read_meanwhile(tmp_path: Path) -> None:
    X, source, dest = rows(), tmp_path / "in", tmp_path / "stream"
    source.mkdir()
    stop, seen, errors = threading.Event(), [], []

    def follow() -> None:
        try:
            bf.stream(source, dest, follow=True, poll=0.01, should_stop=stop.is_set, **PARAMS)
        except BaseException as error:  # shown below
            errors.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    for i, part in enumerate(np.split(X, 6)):
        np.save(tmp_path / "next.npy", part)
        (tmp_path / "next.npy").rename(source / f"{i}.npy")
        for _ in range(600):
            try:
                streamed = bf.open_stream(dest)
            except bf.DataRefused:
                n = 0
            else:
                n = streamed.n_rows
                assert len(streamed.codes()) == n
            if n == (i + 1) * 250 or errors or (i == 0 and not stop.wait(0.01)):
                break
            stop.wait(0.01)
        seen.append(n)
    stop.set()
    thread.join(60)
    assert not errors
    assert seen[1:] == [500, 750, 1000, 1250, 1500]
    np.testing.assert_array_equal(bf.open_stream(dest).codes(), once(X))


def test_followers_wait_for_what_is_not_there_and_for_nothing_else(tmp_path: Path) -> None:
    X, dest, notes = rows(), tmp_path / "stream", []

    def note(text: str) -> None:
        notes.append(text)
        if len(notes) == 1:
            zarr.create_group(tmp_path / "in.zarr")
        elif len(notes) == 2:
            append(tmp_path / "in.zarr" / "vectors", X[:640])

    found = bf.stream(
        tmp_path / "in.zarr",
        dest,
        follow=True,
        poll=0.01,
        note=note,
        should_stop=lambda: len(notes) > 4,
        **PARAMS,
    )
    assert ["there is none" in notes[0], "there is no array of vectors yet" in notes[1]] == [True, True]
    assert notes[2:] == ["0 rows coded", "200 rows coded", "400 rows coded"]
    assert found.n_rows == 400
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.npy").write_bytes(b"\x93NUMPY, or not")
    with pytest.raises(bf.DataRefused, match=r"a\.npy: no readable"):
        bf.stream(tmp_path / "in", tmp_path / "other", follow=True, poll=0.01, **PARAMS)
    np.save(tmp_path / "in" / "a.npy", X[0])
    with pytest.raises(bf.DataRefused, match=r"a\.npy: expected a row of numbers for each vector"):
        bf.stream(tmp_path / "in", tmp_path / "other", follow=True, poll=0.01, **PARAMS)
    for name in ("one", "two"):
        append(tmp_path / "in.zarr" / name, X)
    (tmp_path / "in.zarr" / "vectors").rename(tmp_path / "in.zarr" / "three")
    with pytest.raises(bf.DataRefused, match="name the array"):
        bf.stream(tmp_path / "in.zarr", tmp_path / "other", follow=True, poll=0.01, **PARAMS)


def test_a_rebase_codes_all_rows_again_by_the_directions_of_now(tmp_path: Path) -> None:
    X, source, dest = rows(), tmp_path / "in.zarr", tmp_path / "stream"
    X = X[np.argsort(X[:, 0], kind="stable")]  # the first rows are of one side
    append(source, X[:1024])
    arguments = ["stream", str(source), str(dest), "--n-bits", "8", "--set", "n_anchors=60", "--rebase"]
    early = CliRunner().invoke(app, [*arguments, "--first-rows", "300", "--block-rows", "200"])
    assert early.exit_code == 2
    assert "nothing to rebase" in early.output
    before = bf.stream(source, dest, **PARAMS)
    old = before.codes()
    est = bf.SSBC(n_bits=8, n_anchors=60, mode="online", random_state=0)
    est.partial_fit(X[:300])
    method = est.model_.method
    coder = method.coder(method.begun(X[:300], 0))
    coder.encode_next(X[:1024])
    coder.rebase()
    done = CliRunner().invoke(app, [*arguments, "--first-rows", "300", "--block-rows", "200"])
    assert done.exit_code == 0, done.output
    found = bf.open_stream(dest)
    np.testing.assert_array_equal(found.codes(), coder.encoder.encode(X[:1024]))
    assert (found.codes() != old).any()
    assert found.n_provisional == (0 if coder.frozen else 1024)
    append(source, X[1024:])
    found = bf.stream(source, dest, ended=True, **PARAMS)
    coder.encode_next(X[1024:])
    np.testing.assert_array_equal(found.codes(), coder.encoder.encode(X))
    assert found.n_provisional == 0


def test_what_does_not_fit_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    X, source, dest = rows(), tmp_path / "in.zarr", tmp_path / "stream"
    append(source, X[:640])
    bf.stream(source, dest, **PARAMS)
    with pytest.raises(bf.IdentityMismatch, match=r"method\.n_bits"):
        bf.stream(source, dest, **{**PARAMS, "n_bits": 16})
    other = tmp_path / "other.zarr"
    append(other, rows(seed=3))
    with pytest.raises(bf.IdentityMismatch, match="stream of another source"):
        bf.stream(other, dest, **PARAMS)
    bad = X[640:832].copy()
    bad[70, 2] = np.nan
    append(source, bad)
    with pytest.raises(bf.DataRefused, match="first in 710"):
        bf.stream(source, dest, **PARAMS)
    assert bf.open_stream(dest).n_rows == 640
    with pytest.raises(bf.ConfigError, match="block_rows >= 1"):
        bf.stream(source, dest, **{**PARAMS, "block_rows": 0})
    with pytest.raises(bf.DataRefused, match="there is none"):
        bf.stream(tmp_path / "nothing", dest, **PARAMS)


def test_only_whole_chunks_in_order_are_there(tmp_path: Path) -> None:
    X = rows(200)
    append(tmp_path / "in.zarr", X, chunk=64)
    growing: Any = open_growing(tmp_path / "in.zarr", settle=0)
    assert isinstance(growing, GrowingArray)
    assert (growing.available(), growing.available(ended=True)) == (192, 200)
    np.testing.assert_array_equal(growing.rows(60, 130), X[60:130])
    zarr.open_array(tmp_path / "in.zarr", mode="r+").resize((320, 6))  # appending begins, nothing is written
    assert growing.available() == 192
    assert growing.available(ended=True) == 192
    zarr.open_array(tmp_path / "in.zarr", mode="r+")[200:] = X[:120]
    assert growing.available() == 320
    np.testing.assert_array_equal(growing.rows(150, 320), np.concatenate([X, X[:120]])[150:])
    (tmp_path / "in.zarr" / "c" / "1" / "0").unlink()
    with pytest.raises(bf.CorruptObject, match="missing"):
        growing.rows(60, 130)
    assert open_growing(tmp_path / "in.zarr", settle=0).available(ended=True) == 64
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "b.npy", X)
    folder: Any = open_growing(tmp_path / "folder")
    assert isinstance(folder, GrowingFolder)
    assert folder.available() == 200
    np.save(tmp_path / "folder" / "c.npy", X[:, :2])
    with pytest.raises(bf.DataRefused, match=r"c.npy: rows of 2 features, b.npy has 6"):
        folder.available()
    (tmp_path / "folder" / "c.npy").unlink()
    np.save(tmp_path / "folder" / "a.npy", X)
    with pytest.raises(bf.DataRefused, match=r"added behind those that are there.*'a.npy'"):
        folder.available()


def test_the_command(tmp_path: Path) -> None:
    X, source, dest = rows(), tmp_path / "in.zarr", tmp_path / "stream"
    append(source, X)
    arguments = ["stream", str(source), str(dest), "--n-bits", "8", "--set", "n_anchors=60", "--json"]
    sizes = ["--first-rows", "300", "--block-rows", "200", "--ended"]
    done = CliRunner().invoke(app, [*arguments, *sizes])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == N
    np.testing.assert_array_equal(bf.open_stream(dest).codes(), once(X))
    for setting in ("mode=streaming", "first_rows=5", "n_active=3"):
        assert CliRunner().invoke(app, [*arguments, "--set", setting]).exit_code == 2
    np.save(tmp_path / "queries.npy", X[:5])
    bf.ingest(tmp_path / "queries.npy", tmp_path / "queries.zarr")
    searched = ["search", str(dest), str(tmp_path / "queries.zarr"), "--k", "3"]
    found = CliRunner().invoke(app, [*searched, "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout.splitlines()[-1])["ids"] == bf.search(dest, X[:5], 3)[1].tolist()
    refused = CliRunner().invoke(app, ["resume", str(dest)])
    assert refused.exit_code == 2
    assert "is a stream" in refused.output


def test_codes_of_a_stream_are_described_and_evaluated(tmp_path: Path) -> None:
    X, source, dest = rows(), tmp_path / "in.zarr", tmp_path / "stream"
    append(source, X)
    found = bf.stream(source, dest, ended=True, **PARAMS)
    assert bf.load(dest).digest == found.model.digest
    described = bf.describe_codes(dest)
    assert (described.n_rows, described.n_bits) == (N, 8)
    np.testing.assert_allclose(described.usage, found.model.transform(X).mean(axis=0))
    for name, part in (("data", X), ("queries", rows(40, seed=5))):
        np.save(tmp_path / f"{name}.npy", part)
        bf.ingest(tmp_path / f"{name}.npy", tmp_path / f"{name}.zarr")
    arguments = ["evaluate", str(dest), str(tmp_path / "data.zarr"), str(tmp_path / "queries.zarr")]
    told = CliRunner().invoke(app, [*arguments, "--metrics", "recall10@100", "--json"])
    assert told.exit_code == 0, told.output
    metric = json.loads(told.stdout.splitlines()[-1])["metrics"][0]
    expected = bf.evaluate(found.model, X, rows(40, seed=5), "recall10@100")
    assert metric["value"] == pytest.approx(float(expected["value"][0]))
    assert CliRunner().invoke(app, ["describe", str(dest), "--json"]).exit_code == 0
    assert not (dest / "results.json").exists()


def test_cleaning_removes_parts_that_no_round_names(tmp_path: Path) -> None:
    X, source, dest = rows(), tmp_path / "in.zarr", tmp_path / "stream"
    append(source, X)
    bf.stream(source, dest, ended=True, **PARAMS)
    named = set(bf.open_stream(dest).parts.names)
    left = dest / "codes" / "part-0000000003-0123456789abcdef0123456789abcdef.zarr"
    shutil.copytree(dest / "codes" / sorted(named)[3], left)
    superseded = {path.name for path in (dest / "codes").iterdir()} - named - {left.name}
    assert superseded  # codes of the burn-in, made again
    assert clean_run(dest) == []  # too young
    gone = {Path(key).name for key in clean_run(dest, grace_seconds=0) if key.startswith("codes/")}
    assert gone == superseded | {left.name}
    assert {path.name for path in (dest / "codes").iterdir()} == named
    np.testing.assert_array_equal(bf.open_stream(dest).codes(), once(X))
