from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from bitfleet.storage.models import save_model
from bitfleet.storage.objects import LocalObjects
from bitfleet.storage.rounds import read_manifest
from bitfleet.storage.run import RunDirectory
from bitfleet.storage.verify import Problem, verify_model, verify_run


def test_a_sound_run_has_no_problems(driver, tmp_path):
    RunDirectory.create(tmp_path, driver.CONFIG)
    assert verify_run(tmp_path) == []
    for rounds in range(5):
        driver.run(tmp_path, rounds)
        assert verify_run(tmp_path) == []


def test_all_problems_are_listed_not_only_the_first(driver, tmp_path):
    driver.run(tmp_path, 4)
    attempt = json.loads((tmp_path / "manifests/00000004.json").read_text())["attempt"]
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "manifests/00000001.json").unlink()
    (tmp_path / "objects" / attempt / "weights.zarr/zarr.json").write_text("{}")
    (tmp_path / "objects" / attempt / "active.zarr/c/0").unlink()
    assert {(problem.path, problem.kind) for problem in verify_run(tmp_path)} == {
        ("config.json", "CorruptObject"),
        ("manifests/00000001.json", "CorruptObject"),
        (f"objects/{attempt}/weights.zarr/zarr.json", "CorruptObject"),
        (f"objects/{attempt}/active.zarr/c/0", "CorruptObject"),
    }


def test_the_whole_round_gone_is_a_problem_if_it_is_the_newest(driver, tmp_path):
    driver.run(tmp_path, 3)
    for number, sound in ((2, True), (3, False)):
        attempt = json.loads((tmp_path / f"manifests/{number:08d}.json").read_text())["attempt"]
        shutil.rmtree(tmp_path / "objects" / attempt)
        assert (verify_run(tmp_path) == []) is sound


def test_an_identity_that_changes_within_a_run_is_a_problem(driver, tmp_path):
    driver.run(tmp_path, 1)
    manifest = read_manifest(LocalObjects(tmp_path), 1)
    for field in ("fan_in", "environment"):
        other = replace(manifest, identity={**manifest.identity, field: "another"})
        (tmp_path / "manifests/00000001.json").write_bytes(other.to_bytes())
        assert [(p.path, p.kind) for p in verify_run(tmp_path)] == (
            [] if field == "environment" else [("manifests/00000001.json", "IdentityMismatch")]
        )


@pytest.mark.parametrize("kind", ["nothing", "a file", "an empty folder"])
def test_what_is_no_run_is_a_problem_not_an_exception(tmp_path, kind):
    path = tmp_path / "run"
    if kind == "a file":
        path.write_text("")
    elif kind == "an empty folder":
        path.mkdir()
    assert [problem.path for problem in verify_run(path)] == ["config.json"]


def test_models_are_verified_too(tmp_path):
    save_model(tmp_path / "model", {"method": "lsh"}, {})
    assert verify_model(tmp_path / "model") == []
    (tmp_path / "model/zarr.json").write_text("{}")
    assert [problem.path for problem in verify_model(tmp_path / "model")] == ["model"]
    assert [problem.path for problem in verify_model(tmp_path / "absent")] == ["absent"]


def test_a_problem_reads_as_a_sentence():
    problem = Problem("config.json", "CorruptObject", "is missing")
    assert str(problem) == "config.json: is missing [CorruptObject]"
