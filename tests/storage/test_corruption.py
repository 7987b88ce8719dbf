"""Each file of a checkpoint, damaged in each way: a named error, never a number."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from bitfleet.storage.errors import CorruptObject, IdentityMismatch, StorageError, UnsafeObject
from bitfleet.storage.run import RunDirectory
from bitfleet.storage.verify import verify_run

if TYPE_CHECKING:
    from pathlib import Path

NAMED = (CorruptObject, IdentityMismatch, UnsafeObject)
ROUND = 3
MANIFEST = f"manifests/{ROUND:08d}.json"
ARRAYS = {"weights": "c/0/0", "duals": "c/0/0", "active": "c/0"}
FILES = [
    "config.json",
    MANIFEST,
    *(f"{name}.zarr/zarr.json" for name in ARRAYS),
    *(f"{name}.zarr/{chunk}" for name, chunk in ARRAYS.items()),
]


@pytest.fixture(scope="module")
def original(driver, tmp_path_factory) -> Path:
    """A run of four rounds, and another one to steal files from."""
    folder = tmp_path_factory.mktemp("original")
    driver.run(folder / "run", ROUND)
    other = RunDirectory.create(folder / "other", {**driver.CONFIG, "more": 1})
    other.checkpoints(driver.IDENTITY).commit(driver.start())
    return folder


@pytest.fixture
def run(original, tmp_path) -> Path:
    """A copy of the run that may be damaged, the other one beside it."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def locate(run: Path, name: str, number: int = ROUND) -> Path:
    """The file of that name in a round of the run."""
    if not name.split("/")[0].endswith(".zarr"):
        return run / name
    attempt = json.loads((run / f"manifests/{number:08d}.json").read_text())["attempt"]
    return run / "objects" / attempt / name


def stale(run: Path, name: str) -> Path:
    """An earlier or foreign copy of that file."""
    if name == "config.json":
        return run.parent / "other" / name
    return run / MANIFEST.replace("3", "2") if name == MANIFEST else locate(run, name, ROUND - 1)


def partner(run: Path, name: str) -> Path:
    """Another file of the same kind."""
    if name.startswith("weights"):
        return locate(run, name.replace("weights", "active" if name.endswith("json") else "duals"))
    if name.startswith("duals"):
        return locate(run, name.replace("duals", "active" if name.endswith("json") else "weights"))
    if name.startswith("active"):
        return locate(run, "weights.zarr/" + ("zarr.json" if name.endswith("json") else "c/0/0"))
    return stale(run, name)


def swap(left: Path, right: Path) -> None:
    data = left.read_bytes()
    left.write_bytes(right.read_bytes())
    right.write_bytes(data)


def flip(path: Path, position: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


DAMAGES = {
    "truncate to nothing": lambda path, *_: path.write_bytes(b""),
    "truncate half": lambda path, *_: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "lose the last byte": lambda path, *_: path.write_bytes(path.read_bytes()[:-1]),
    "append a byte": lambda path, *_: path.write_bytes(path.read_bytes() + b"\n"),
    "flip a bit": lambda path, *_: flip(path, path.stat().st_size // 2, 0),
    "delete": lambda path, *_: path.unlink(),
    "swap": lambda path, run, name: swap(path, partner(run, name)),
    "stale copy": lambda path, run, name: path.write_bytes(stale(run, name).read_bytes()),
    "become a folder": lambda path, *_: (path.unlink(), path.mkdir()),
    "become a link": lambda path, *_: (path.rename(path.parent / "moved"), path.symlink_to("moved")),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_damage_is_a_named_error(driver, run, name, damage):
    path = locate(run, name)
    before = path.read_bytes()
    DAMAGES[damage](path, run, name)
    assert not path.is_file() or path.is_symlink() or path.read_bytes() != before, "no damage was done"
    if (name, damage) == (MANIFEST, "delete"):
        return  # see below
    with pytest.raises(NAMED) as caught:
        RunDirectory.open(run).checkpoints(driver.IDENTITY).latest()
    if damage == "swap":
        assert any(str(p) in str(caught.value) for p in (path, partner(run, name)))
    else:
        assert str(path) in str(caught.value)
    problems = verify_run(run)
    assert problems
    if name == "config.json" and damage in ("swap", "stale copy"):
        assert {problem.kind for problem in problems} == {"IdentityMismatch"}
    elif damage != "swap":
        assert path.relative_to(run).as_posix() in {problem.path for problem in problems}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [name for name in FILES if name != "config.json"])
def test_a_worker_is_told_of_damage_too(driver, run, name, damage):
    checkpoints = RunDirectory.open(run).checkpoints(driver.IDENTITY)
    checkpoints.latest()
    reference = checkpoints.reference()
    DAMAGES[damage](locate(run, name), run, name)
    with pytest.raises(NAMED):
        reference.load()


def test_without_the_newest_manifest_the_round_before_resumes_to_the_same_bits(driver, run):
    (run / MANIFEST).unlink()
    assert verify_run(run) == []
    assert driver.same(RunDirectory.open(run).checkpoints(driver.IDENTITY).latest(), driver.expected(2))
    driver.run(run, 5)
    assert driver.same(RunDirectory.open(run).checkpoints(driver.IDENTITY).latest(), driver.expected(5))


@pytest.mark.parametrize("number", range(ROUND))
@pytest.mark.parametrize("damage", ["truncate half", "flip a bit", "delete", "stale"])
def test_a_damaged_older_manifest_breaks_the_chain(driver, run, number, damage):
    path = run / f"manifests/{number:08d}.json"
    if damage == "stale":
        path.write_bytes((run / f"manifests/{(number + 1) % ROUND:08d}.json").read_bytes())
    else:
        DAMAGES[damage](path)
    with pytest.raises(CorruptObject, match=path.name):
        RunDirectory.open(run).checkpoints(driver.IDENTITY).latest()
    assert f"manifests/{path.name}" in {problem.path for problem in verify_run(run)}


def test_a_manifest_of_another_history_is_no_part_of_the_chain(driver, run, tmp_path):
    driver.run(tmp_path / "twin", ROUND)  # the same bits, committed at another time
    shutil.copy(tmp_path / "twin/manifests/00000001.json", run / "manifests/00000001.json")
    with pytest.raises(CorruptObject, match="one of the two was replaced"):
        RunDirectory.open(run).checkpoints(driver.IDENTITY).latest()
    assert "CorruptObject" in {problem.kind for problem in verify_run(run)}


def test_damage_to_the_round_before_is_found_by_verify(driver, run):
    path = locate(run, "weights.zarr/c/0/0", ROUND - 1)
    flip(path, 9, 3)
    assert [problem.path for problem in verify_run(run)] == [path.relative_to(run).as_posix()]
    assert driver.same(RunDirectory.open(run).checkpoints(driver.IDENTITY).latest(), driver.expected(ROUND))


def test_every_bit_of_every_small_file_counts(driver, run):
    """A sample of all bits: one bit of every byte of the files, which one varying with the position."""
    for name in ("weights.zarr/c/0/0", "active.zarr/zarr.json", "active.zarr/c/0", "config.json"):
        path = locate(run, name)
        for position in range(0, path.stat().st_size, 7):
            flip(path, position, position % 8)
            with pytest.raises(StorageError):
                RunDirectory.open(run).checkpoints(driver.IDENTITY).latest()
            flip(path, position, position % 8)
    assert RunDirectory.open(run).checkpoints(driver.IDENTITY).latest().round == ROUND


def test_a_deleted_chunk_of_zeros_is_not_taken_for_zeros(driver, tmp_path):
    path = tmp_path / "run"
    driver.run(path, 0)
    chunk = locate(path, "duals.zarr/c/0/0", 0)  # round 0 has zeros there
    chunk.unlink()
    with pytest.raises(CorruptObject, match="duals"):
        RunDirectory.open(path).checkpoints(driver.IDENTITY).latest()
