from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import resource
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from bitfleet.storage.checkpoints import Checkpoints, MemoryCheckpoints
from bitfleet.storage.clean import clean_run
from bitfleet.storage.errors import CorruptObject, IdentityMismatch, ManifestConflict, StorageError
from bitfleet.storage.identity import describe, differences
from bitfleet.storage.run import RunDirectory
from bitfleet.storage.s3_objects import objects_at
from bitfleet.storage.verify import verify_run
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

WRITING = [
    "commit.between_objects",
    "commit.before_fsync",
    "create.before_write",
    "create.before_fsync",
    "create.before_link",
]


def attempts(run):
    return objects_at(run).list("objects")


def reopen(driver, path, **options):
    identity = options.pop("identity", driver.IDENTITY)
    return RunDirectory.open(path).checkpoints(identity, **options)


# --- reading back what was committed --------------------------------------------------------------------


def test_a_new_run_has_no_round(driver, tmp_path):
    checkpoints = RunDirectory.create(tmp_path / "run", driver.CONFIG).checkpoints(driver.IDENTITY)
    assert checkpoints.latest() is None
    assert checkpoints.history() == []
    with pytest.raises(ValueError, match="no round to refer to"):
        checkpoints.reference()


@pytest.mark.parametrize("name", ["run", "a run with blanks", "Läufe/α=0.5", "x" * 200])
def test_the_latest_round_is_read_back_bit_for_bit(driver, tmp_path, name):
    driver.run(tmp_path / name, 4)
    assert driver.same(reopen(driver, tmp_path / name).latest(), driver.expected(4))


def test_a_resumed_run_ends_in_the_same_bits(driver, home):
    for rounds in (0, 1, 3, 6):
        driver.run(home / "run", rounds)
    assert driver.same(reopen(driver, home / "run").latest(), driver.expected(6))


@settings(max_examples=40, deadline=None)
@given(
    arrays=st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True),
        npst.arrays(
            st.sampled_from(["bool", "uint8", "int64", "uint64", "float32", "float64"]),
            npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
        ),
        max_size=3,
    ),
    scalars=st.dictionaries(
        st.text(max_size=8).filter(lambda name: name not in ("round", "time")),
        st.none()
        | st.booleans()
        | st.integers(-(2**80), 2**80)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8),
        max_size=4,
    ),
)
def test_any_state_is_read_back_bit_for_bit(driver, tmp_path_factory, arrays, scalars):
    path = tmp_path_factory.mktemp("any") / "run"
    state = driver.State(0, arrays, scalars)
    checkpoints = RunDirectory.create(path, {}).checkpoints({})
    checkpoints.commit(state)
    found = RunDirectory.open(path).checkpoints({}).latest()
    assert driver.same(found, state)
    assert [type(value) for value in found.scalars.values()] == [
        type(scalars[name]) for name in found.scalars
    ]
    assert driver.same(pickle.loads(pickle.dumps(checkpoints.reference())).load(), state)


def test_arrays_come_back_read_only(driver, tmp_path):
    driver.run(tmp_path / "run", 1)
    with pytest.raises(ValueError, match="read-only"):
        reopen(driver, tmp_path / "run").latest().arrays["weights"][0, 0] = 1.0


def test_the_history_holds_every_round_although_old_arrays_are_gone(driver, tmp_path):
    history = driver.run(tmp_path / "run", 5).history()
    assert [row["round"] for row in history] == [0, 1, 2, 3, 4, 5]
    assert [row["loss"] for row in history] == [driver.expected(r).scalars["loss"] for r in range(6)]
    assert all(row["time"].endswith("+00:00") for row in history)


# --- references, as workers get them --------------------------------------------------------------------


def test_a_reference_is_small_and_reads_its_round_even_if_a_later_one_is_there(driver, tmp_path):
    checkpoints = driver.run(tmp_path / "run", 3)
    reference = checkpoints.reference()
    checkpoints.commit(driver.advance(checkpoints.latest()))
    assert len(pickle.dumps(reference)) < 1000
    assert driver.same(reference.load(), driver.expected(3))
    assert checkpoints.reference().key != reference.key


def test_a_reference_to_another_manifest_is_refused(driver, tmp_path):
    reference = driver.run(tmp_path / "run", 2).reference()
    with pytest.raises(CorruptObject, match="not the manifest that this task was sent for"):
        replace(reference, key="0" * 64).load()


def test_a_reference_to_a_round_that_another_driver_has_retired_names_that_driver(driver, home):
    reference = driver.run(home / "run", 0).reference()
    driver.run(home / "run", 1)
    assert reference.load().round == 0
    driver.run(home / "run", 3)
    with pytest.raises(ManifestConflict, match=f"round 1 was committed by process {os.getpid()} on "):
        reference.load()


# --- the manifest on disk -------------------------------------------------------------------------------


def test_a_manifest_is_what_hashlib_and_json_say(driver, tmp_path):
    driver.run(tmp_path / "run", 2)
    texts = [(tmp_path / f"run/manifests/{r:08d}.json").read_text() for r in range(3)]
    manifests = [json.loads(text) for text in texts]
    digests = []
    for manifest in manifests:
        stated = manifest.pop("sha256")
        canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert stated == hashlib.sha256(canonical.encode()).hexdigest()
        digests.append(stated)
    assert [manifest["parent"] for manifest in manifests] == [None, *digests[:2]]
    files = {
        path.relative_to(tmp_path / "run").as_posix(): path.read_bytes()
        for path in (tmp_path / "run/objects" / manifests[2]["attempt"]).rglob("*")
        if path.is_file()
    }
    assert {record["path"]: record["sha256"] for record in manifests[2]["objects"]} == {
        name: hashlib.sha256(data).hexdigest() for name, data in files.items()
    }
    assert {record["path"]: record["size"] for record in manifests[2]["objects"]} == {
        name: len(data) for name, data in files.items()
    }
    assert manifests[2]["identity"] == driver.IDENTITY


# --- what must not be committed -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "scalars", "error", "match"),
    [
        ({"w": np.zeros((3, 4)).T}, {}, ValueError, "not C-contiguous"),
        ({"w": np.zeros(3, ">f8")}, {}, TypeError, "native NumPy array"),
        ({"w": np.array(["a"])}, {}, TypeError, "bool or numbers, got dtype <U1"),
        ({"w": np.array([None])}, {}, TypeError, "got dtype object"),
        ({"w": [1.0]}, {}, TypeError, "got list"),
        ({"../w": np.zeros(3)}, {}, ValueError, "array name"),
        ({}, {"loss": np.float64(1.0)}, TypeError, "'loss'.*got float64"),
        ({}, {"loss": float("nan")}, ValueError, "only finite numbers"),
        ({}, {"loss": [1.0]}, TypeError, "got list"),
        ({}, {"round": 1}, ValueError, "other than"),
    ],
)
def test_states_that_would_not_come_back_as_they_are_are_refused(
    driver, tmp_path, arrays, scalars, error, match
):
    checkpoints = RunDirectory.create(tmp_path / "run", {}).checkpoints({})
    for either in (checkpoints, MemoryCheckpoints()):
        with pytest.raises(error, match=match):
            either.commit(driver.State(0, arrays, scalars))
    assert checkpoints.latest() is None


def test_rounds_follow_one_another(driver, tmp_path):
    checkpoints = driver.run(tmp_path / "run", 2)
    with pytest.raises(ValueError, match=r"expected round 3 .* got 4"):
        checkpoints.commit(replace(driver.expected(4)))
    with pytest.raises(ValueError, match=r"call latest\(\) first"):
        reopen(driver, tmp_path / "run").commit(driver.expected(3))


def test_a_committed_round_is_never_committed_again(driver, home):
    checkpoints = driver.run(home / "run", 2)
    for number in (0, 1, 2):
        with pytest.raises(ManifestConflict, match=f"round {number} was committed by process"):
            checkpoints.commit(driver.expected(number))


def test_a_round_that_another_driver_made_anew_is_not_built_upon(driver, tmp_path):
    path = tmp_path / "run"
    checkpoints = driver.run(path, 2)
    (path / "manifests/00000002.json").unlink()
    state = driver.expected(3)
    with pytest.raises(CorruptObject, match=r"00000002\.json is missing: it was there"):
        checkpoints.commit(state)
    driver.run(path, 2)  # the same bits, but another commit
    with pytest.raises(ManifestConflict, match="round 2 was committed by process"):
        checkpoints.commit(state)
    assert verify_run(path) == []


def test_keeping_fewer_than_two_rounds_is_refused(driver, tmp_path):
    with pytest.raises(ValueError, match="keep >= 2"):
        RunDirectory.create(tmp_path / "run", {}).checkpoints({}, keep=1)


# --- identity -------------------------------------------------------------------------------------------


def test_each_field_that_differs_is_named(driver, tmp_path):
    driver.run(tmp_path / "run", 1)
    other = {**driver.IDENTITY, "fan_in": 4, "environment": {"numpy": "2", "blas": "a"}, "new": 1}
    with pytest.raises(IdentityMismatch) as caught:
        reopen(driver, tmp_path / "run", identity=other, allow_environment_change=True).latest()
    assert "fan_in: stored 8, given 4" in str(caught.value)
    assert "new: stored '(absent)', given 1" in str(caught.value)
    assert "environment" not in str(caught.value)


def test_of_another_method_only_the_name_is_told():
    found = differences({"method": {"name": "a", "x": 1}, "seed": 0}, {"method": {"name": "b"}, "seed": 1})
    assert describe(list(found)) == "  method.name: stored 'a', given 'b'\n  seed: stored 0, given 1"
    assert "method.x: stored 1, given 2" in describe(
        list(differences({"method": {"x": 1}}, {"method": {"x": 2}}))
    )


def test_another_environment_is_allowed_only_explicitly(driver, tmp_path):
    driver.run(tmp_path / "run", 1)
    other = {**driver.IDENTITY, "environment": {"numpy": "2", "blas": "a"}}
    with pytest.raises(IdentityMismatch, match=r"environment.numpy: stored '1', given '2'[\s\S]*allow"):
        reopen(driver, tmp_path / "run", identity=other).latest()
    checkpoints = reopen(driver, tmp_path / "run", identity=other, allow_environment_change=True)
    checkpoints.commit(driver.advance(checkpoints.latest()))
    assert verify_run(tmp_path / "run") == []
    assert reopen(driver, tmp_path / "run", identity=other).latest().round == 2


def test_true_is_not_one(driver, tmp_path):
    RunDirectory.create(tmp_path / "run", {}).checkpoints({"center": True}).commit(driver.start())
    with pytest.raises(IdentityMismatch, match="center: stored True, given 1"):
        RunDirectory.open(tmp_path / "run").checkpoints({"center": 1}).latest()


# --- retention ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [2, 3])
def test_only_the_newest_rounds_keep_their_arrays(driver, home, keep):
    driver.run(home / "run", 5, keep=keep)
    assert [int(name[:8]) for name in attempts(home / "run")] == list(range(6))[-keep:]
    assert len(list((home / "run/manifests").iterdir())) == 6


def test_retention_does_not_touch_what_no_manifest_names(driver, tmp_path):
    driver.run(tmp_path / "run", 1)
    stray = tmp_path / "run/objects" / f"00000000-{'a' * 32}"
    stray.mkdir()
    (tmp_path / "run/objects/notes.txt").write_text("mine")
    driver.run(tmp_path / "run", 5)
    assert stray.is_dir()
    assert (tmp_path / "run/objects/notes.txt").read_text() == "mine"


# --- failures of the disk -------------------------------------------------------------------------------


def fail(number: int):
    def action():
        raise OSError(number, "injected")

    return action


@pytest.mark.parametrize("point", WRITING)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_leaves_nothing_and_the_round_can_be_committed_again(driver, tmp_path, point, number):
    faults = driver.At(point, 2, fail(number))
    faults.now = 2
    driver.run(tmp_path / "run", 1)
    checkpoints = reopen(driver, tmp_path / "run", faults=faults)
    state = driver.advance(checkpoints.latest())
    with pytest.raises(StorageError, match=r"round 2 .* could not be written.*rounds before it are intact"):
        checkpoints.commit(state)
    assert len(attempts(tmp_path / "run")) == 2
    assert clean_run(tmp_path / "run", grace_seconds=0) == []
    assert driver.same(reopen(driver, tmp_path / "run").latest(), driver.expected(1))
    checkpoints.commit(state)
    assert driver.same(reopen(driver, tmp_path / "run").latest(), driver.expected(2))


def test_a_folder_that_cannot_be_synced_claims_nothing_but_may_have_committed(driver, tmp_path):
    driver.run(tmp_path / "run", 1)
    faults = driver.At("create.after_link", 2, fail(errno.EIO))
    with pytest.raises(StorageError, match="injected"):
        driver.run(tmp_path / "run", 2, faults)
    assert verify_run(tmp_path / "run") == []
    assert driver.same(reopen(driver, tmp_path / "run").latest(), driver.expected(2))


def test_the_kernel_refusing_large_files_is_reported_with_the_size_needed(driver, tmp_path):
    driver.run(tmp_path / "run", 0)
    checkpoints = reopen(driver, tmp_path / "run")
    checkpoints.latest()
    noise = np.random.default_rng(0).normal(size=(400, 100))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StorageError, match="needs up to 320,000 bytes"):
            checkpoints.commit(driver.State(1, {"noise": noise}, {}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(attempts(tmp_path / "run")) == 1
    checkpoints.commit(driver.State(1, {"noise": noise}, {}))
    assert reopen(driver, tmp_path / "run").latest().arrays["noise"].tobytes() == noise.tobytes()


def test_a_full_disk_leaves_the_rounds_before_intact(driver, tmp_path):
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", tmp_path], capture_output=True)
    if mount.returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        checkpoints = driver.run(tmp_path / "run", 1)
        noise = np.random.default_rng(0).normal(size=(1000, 100))
        with pytest.raises(StorageError, match="No space left on device"):
            checkpoints.commit(driver.State(2, {"noise": noise}, {}))
        driver.run(tmp_path / "run", 3)
        assert driver.same(reopen(driver, tmp_path / "run").latest(), driver.expected(3))
        assert verify_run(tmp_path / "run") == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)


# --- answers that are lost on the way -------------------------------------------------------------------


class LostResponse:
    """A store behind a bad line: ``create`` does its work, or does not, and the answer never comes."""

    def __init__(self, root, *, performs: bool, times: int = 1, before=lambda: None) -> None:
        self.store = objects_at(root)
        self.performs, self.times, self.before = performs, times, before

    def __getattr__(self, verb):
        return getattr(self.store, verb)

    def create(self, key, data):
        if self.times == 0:
            return self.store.create(key, data)
        self.times -= 1
        self.before()
        if self.performs:
            self.store.create(key, data)
        raise TimeoutError("no answer")


def over(driver, store, path) -> Checkpoints:
    run = RunDirectory.open(path)
    return Checkpoints(store, str(run.path), run.config_digest, driver.IDENTITY)


@pytest.mark.parametrize("performs", [True, False])
def test_a_commit_whose_answer_is_lost_is_recognised_as_ours(driver, home, performs):
    driver.run(home / "run", 1)
    checkpoints = over(driver, LostResponse(home / "run", performs=performs), home / "run")
    checkpoints.commit(driver.advance(checkpoints.latest()))
    assert checkpoints.reference().round == 2
    assert driver.same(reopen(driver, home / "run").latest(), driver.expected(2))


def test_a_lost_answer_does_not_hide_that_another_driver_won(driver, home):
    path = home / "run"
    driver.run(path, 1)
    store = LostResponse(path, performs=True, before=lambda: driver.run(path, 2))
    checkpoints = over(driver, store, path)
    with pytest.raises(ManifestConflict, match="round 2 was committed by"):
        checkpoints.commit(driver.advance(checkpoints.latest()))
    assert len(attempts(path)) == 2
    assert verify_run(path) == []


def test_a_line_that_stays_dead_is_an_error(driver, tmp_path):
    driver.run(tmp_path / "run", 1)
    checkpoints = over(driver, LostResponse(tmp_path / "run", performs=False, times=9), tmp_path / "run")
    with pytest.raises(StorageError, match="no answer"):
        checkpoints.commit(driver.advance(checkpoints.latest()))
    assert reopen(driver, tmp_path / "run").latest().round == 1


def test_objects_cleaned_away_under_a_sleeping_driver_are_not_named(driver, home):
    path = home / "run"
    driver.run(path, 1)
    faults = driver.At("commit.before_manifest", 2, lambda: clean_run(path, grace_seconds=0))
    with pytest.raises(StorageError, match="was removed before round 2 was committed"):
        driver.run(path, 2, faults)
    assert reopen(driver, path).latest().round == 1
    driver.run(path, 2)
    assert verify_run(path) == []


# --- in memory ------------------------------------------------------------------------------------------


def test_memory_checkpoints_speak_the_same_verbs(driver):
    checkpoints = MemoryCheckpoints()
    assert checkpoints.latest() is None
    state = driver.start()
    checkpoints.commit(state)
    first = checkpoints.reference()
    checkpoints.commit(driver.advance(state))
    assert driver.same(first.load(), state)
    assert driver.same(checkpoints.latest(), driver.expected(1))
    assert checkpoints.reference().key != first.key
    assert [(row["round"], row["note"]) for row in checkpoints.history()] == [(0, "start"), (1, "round 1")]
    with pytest.raises(ValueError, match="expected round 2"):
        checkpoints.commit(driver.start())
    with pytest.raises(ValueError, match="read-only"):
        checkpoints.latest().arrays["weights"][:] = 0


def test_memory_references_of_equal_content_have_equal_keys(driver):
    keys = set()
    for _ in range(2):
        checkpoints = MemoryCheckpoints()
        checkpoints.commit(driver.start())
        keys.add(checkpoints.reference().key)
    assert len(keys) == 1
