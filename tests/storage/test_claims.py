"""Who is killed while writing can give the same command again; who is alive is never robbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from bitfleet.storage import claims, codes, codes_writer, dataset_writer
from bitfleet.storage.datasets import DatasetWriter, open_dataset
from bitfleet.storage.errors import CorruptObject, DestinationExists

ROWS = np.arange(40, dtype=np.float32).reshape(10, 4)

WRITERS = {
    "dataset": """
        from bitfleet.storage.datasets import DatasetWriter
        writer = DatasetWriter(path, n_features=4, dtype="f4", chunk_rows=2)
        writer.append(np.ones((6, 4), "f4"))
    """,
    "codes": """
        from bitfleet.storage import codes
        writer = codes.create_codes(path, n_rows=10, n_bits=8, n_active=None, chunk_rows=2,
                                    model_digest="m", source_digest="s")
        writer.write(0, np.ones((2, 1), "u1"))
    """,
}


def killed(kind, path):
    """Start a process that begins to write at ``path`` and kills itself."""
    script = "import os, signal, sys\nimport numpy as np\npath = sys.argv[1]\n" + textwrap.dedent(
        WRITERS[kind]
    )
    script += "\nos.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return path


def write_dataset(path):
    writer = DatasetWriter(path, n_features=4, dtype="f4", chunk_rows=4)
    writer.append(ROWS)
    return writer


def write_codes(path):
    return codes.create_codes(
        path, n_rows=2, n_bits=8, n_active=None, chunk_rows=2, model_digest="m", source_digest="s"
    )


def test_a_dataset_whose_writer_was_killed_is_written_anew(tmp_path):
    path = killed("dataset", tmp_path / "x.zarr")
    with pytest.raises(CorruptObject, match="unfinished"):
        open_dataset(path)
    write_dataset(path).close()
    np.testing.assert_array_equal(open_dataset(path).rows(0, 10), ROWS)
    open_dataset(path).verify()
    assert [p.name for p in tmp_path.iterdir()] == ["x.zarr"]
    assert sorted(p.name for p in path.iterdir()) == ["vectors", "zarr.json"]


def test_codes_whose_writer_was_killed_are_written_anew(tmp_path):
    path = killed("codes", tmp_path / "c")
    writer = write_codes(path)
    codes.finish_codes(path, [writer.write(0, np.array([[3], [5]], np.uint8))])
    assert codes.open_codes(path).rows(0, 2).tolist() == [[3], [5]]
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    assert sorted(p.name for p in path.iterdir()) == ["codes", "zarr.json"]


@pytest.mark.parametrize("write", [write_dataset, write_codes])
def test_a_living_writer_is_not_robbed(tmp_path, write):
    first = write(tmp_path / "x")
    for second in (write_dataset, write_codes):
        with pytest.raises(DestinationExists, match="being written"):
            second(tmp_path / "x")
    assert (tmp_path / "x" / claims.CLAIM).exists()
    del first


@pytest.mark.parametrize("change", ["elsewhere", "damaged", "no claim", "marker", "link", "nonsense"])
def test_what_is_not_known_to_be_abandoned_is_left_alone(tmp_path, change):
    path = killed("dataset", tmp_path / "x.zarr")
    claim = path / claims.CLAIM
    if change == "elsewhere":
        claim.write_text(json.dumps({**json.loads(claim.read_text()), "where": "another machine"}))
    elif change == "damaged":
        claim.write_bytes(claim.read_bytes()[:7])
    elif change == "no claim":
        claim.unlink()
    elif change == "marker":
        (path / "zarr.json").write_text("{}")
    elif change == "link":
        path = tmp_path / "link"
        path.symlink_to(tmp_path / "x.zarr")
    else:
        claim.write_text(json.dumps({**json.loads(claim.read_text()), "pid": -1}))
    before = sorted(p.as_posix() for p in tmp_path.rglob("*"))
    with pytest.raises(DestinationExists):
        write_dataset(path)
    assert sorted(p.as_posix() for p in tmp_path.rglob("*")) == before


def test_a_claim_is_of_this_process(tmp_path):
    claims.claim_folder(tmp_path / "x")
    assert json.loads((tmp_path / "x" / claims.CLAIM).read_text())["pid"] == os.getpid()
    assert not claims.abandoned(tmp_path / "x")
    claims.release_folder(tmp_path / "x")
    assert list((tmp_path / "x").iterdir()) == []


def test_codes_that_cannot_be_begun_leave_nothing(tmp_path):
    with pytest.raises(TypeError):
        codes.create_codes(
            tmp_path / "c", n_rows=2, n_bits=8, n_active=None, chunk_rows=2,
            model_digest=object(), source_digest="s",
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_only_folders_of_the_dead_are_removed(tmp_path):
    killed("dataset", tmp_path / ".c[1]-old")
    killed("dataset", tmp_path / ".other-old")
    for name in (".c[1]-mine", ".c[1]-plain"):
        (tmp_path / name).mkdir()
    claims.mark(tmp_path / ".c[1]-mine")
    claims.remove_abandoned(tmp_path, ".c[1]-")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".c[1]-mine", ".c[1]-plain", ".other-old"]


def test_a_writer_that_was_moved_takes_over_what_is_its_own(tmp_path):
    path = tmp_path / "codes.zarr"
    with claims.owned_by("job", "first"):
        write_codes(path)
        with pytest.raises(DestinationExists, match="is being written"):
            write_codes(path)  # by this very process
    claim = json.loads((path / claims.CLAIM).read_text())
    (path / claims.CLAIM).write_text(json.dumps(claim | {"where": "another machine"}))
    for owner in ("another job", "job"):
        with claims.owned_by(owner, "first"):
            assert claims.abandoned(path) == (owner == "job")
    with pytest.raises(DestinationExists, match="is being written"):
        write_codes(path)
    with claims.owned_by("job", "first"):
        write_codes(path)
    assert json.loads((path / claims.CLAIM).read_text())["pid"] == os.getpid()


def test_the_next_driver_of_a_job_takes_over_from_one_in_the_same_process(tmp_path):
    path = tmp_path / "codes.zarr"
    with claims.owned_by("job", "first"):
        writer = write_codes(path)
        receipt = writer.write(0, np.ones((2, 1), np.uint8))
    with claims.owned_by("job", "second"):
        write_codes(path)
    with claims.owned_by("job", "first"):
        claims.abandon(path)  # is not its own any more
        with pytest.raises(CorruptObject, match="chunks are missing"):
            codes.finish_codes(path, [receipt])
    assert path.exists()
    assert not (path / "zarr.json").exists()


@pytest.mark.parametrize("kind", ["dataset", "codes"])
def test_there_is_no_moment_without_claim_and_marker(tmp_path, monkeypatch, kind):
    """A kill in any moment leaves what the same command takes over, or what is whole."""
    path, module = tmp_path / "x.zarr", dataset_writer if kind == "dataset" else codes_writer
    seen = []

    def finish():
        if kind == "dataset":
            return write_dataset(path).close()
        writer = write_codes(path)
        return codes.finish_codes(path, [writer.write(0, np.ones((2, 1), np.uint8))])

    def watched(call):
        def wrapper(*arguments, **options):
            seen.append(((path / claims.CLAIM).exists(), (path / "zarr.json").exists()))
            result = call(*arguments, **options)
            seen.append(((path / claims.CLAIM).exists(), (path / "zarr.json").exists()))
            return result

        return wrapper

    for name in ("sync", "write_sealed_group", "release_folder"):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    finish()
    assert len(seen) == 6
    assert all(claimed or marked for claimed, marked in seen)
    assert not (path / claims.CLAIM).exists()


def test_what_another_writer_has_taken_over_is_not_removed(tmp_path):
    path = tmp_path / "x.zarr"
    write_codes(path)
    claim = json.loads((path / claims.CLAIM).read_text())
    (path / claims.CLAIM).write_text(json.dumps(claim | {"where": "another machine"}))
    claims.abandon(path)
    assert path.exists()
    (path / claims.CLAIM).write_text(json.dumps(claim))
    claims.abandon(path)
    assert list(tmp_path.iterdir()) == []
