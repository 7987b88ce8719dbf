"""Bad lines to an object store: throttled, broken off, answered by nobody; and what must not be said."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import traceback
from pathlib import Path

import numpy as np
import pytest
from bitfleet.storage import s3 as client
from bitfleet.storage.datasets import DatasetWriter, open_dataset
from bitfleet.storage.errors import (
    ManifestConflict,
    StorageError,
    StoreRefused,
    StoreUnavailable,
    UnsafeObject,
)
from bitfleet.storage.models import load_model, save_model
from bitfleet.storage.object_paths import ObjectPath
from bitfleet.storage.places import place
from bitfleet.storage.rounds import read_chain
from bitfleet.storage.run import RunDirectory
from bitfleet.storage.s3_objects import objects_at
from bitfleet.storage.verify import verify_run
from bitfleet.tasks.protocols import RowRange

ROWS = np.random.default_rng(0).normal(size=(100, 5)).astype(np.float32)


def write(path, vectors=ROWS, **options):
    writer = DatasetWriter(path, n_features=5, dtype="float32", **options)
    writer.append(vectors)
    return writer.close()


def actions(line):
    return [action for _, _, action in line.seen if action]


def check_run(driver, run, rounds):
    chain = read_chain(objects_at(run))
    assert [manifest.round for manifest in chain] == list(range(rounds + 1))
    assert driver.same(RunDirectory.open(run).checkpoints(driver.IDENTITY).latest(), driver.expected(rounds))
    assert verify_run(run) == []


# --- what a bad line may not change ---------------------------------------------------------------------


def test_a_throttled_store_is_waited_for(driver, s3, bad_line):
    bad_line.policy = lambda number, method, path: "throttle" if number % 5 == 4 else ""
    driver.run(s3 / "run", 4)
    assert len(actions(bad_line)) > 20
    check_run(driver, s3 / "run", 4)


@pytest.mark.parametrize(
    "action",
    [
        "lose answer",
        pytest.param("cut", marks=pytest.mark.long),
        pytest.param("lose request", marks=pytest.mark.long),
        pytest.param("slow", marks=pytest.mark.long),
    ],
)
def test_lines_that_break_lose_nothing_and_repeat_nothing(driver, s3, bad_line, action):
    bad_line.policy = lambda number, method, path: action if number % 7 == 6 else ""
    driver.run(s3 / "run", 2)
    data = write(s3 / "x.zarr", chunk_rows=16)
    np.testing.assert_array_equal(data.reader().read(RowRange(0, 100)).vectors, ROWS)
    assert len(actions(bad_line)) > 10
    bad_line.policy = lambda number, method, path: ""
    check_run(driver, s3 / "run", 2)
    open_dataset(s3 / "x.zarr").verify()


def test_a_commit_whose_answer_is_lost_is_ours(driver, s3, bad_line):
    """Whether the client repeats the request or gives up, the manifest that it finds is its own."""
    driver.run(s3 / "run", 1)
    lost = itertools.count()

    def lose(number, method, path):
        manifest = method == "PUT" and path.endswith("manifests/00000002.json")
        return "lose answer" if manifest and next(lost) == 0 else ""

    bad_line.policy = lose
    driver.run(s3 / "run", 3)
    assert actions(bad_line) == ["lose answer"]
    check_run(driver, s3 / "run", 3)


@pytest.mark.long  # without a real line in test_checkpoints.py
def test_a_lost_answer_does_not_hide_that_another_driver_won(driver, s3, bad_line, s3_endpoint, monkeypatch):
    run = s3 / "run"
    driver.run(run, 1)

    def lose(number, method, path):
        if not (method == "PUT" and path.endswith("manifests/00000002.json")) or actions(bad_line):
            return ""
        with monkeypatch.context() as aside:  # the other driver has a good line
            aside.setenv("AWS_ENDPOINT_URL", s3_endpoint)
            driver.run(run, 2)
        return "lose request"

    bad_line.policy = lose
    with pytest.raises(ManifestConflict, match="round 2 was committed by process"):
        driver.run(run, 3)
    assert verify_run(run) == []
    driver.run(run, 3)
    check_run(driver, run, 3)


def test_a_store_that_stays_silent_is_an_error_and_the_rounds_before_are_intact(
    driver, s3, bad_line, monkeypatch
):
    monkeypatch.setattr(client, "MAX_RETRIES", 1)
    client._client.cache_clear()
    driver.run(s3 / "run", 1)
    bad_line.policy = lambda number, method, path: (
        "throttle" if method == "PUT" and "/objects/" in path else ""
    )
    with pytest.raises(StoreUnavailable, match=r"round 2 of s3://.* could not be written.*503.*intact"):
        driver.run(s3 / "run", 2)
    bad_line.policy = lambda number, method, path: "throttle"
    with pytest.raises(StoreUnavailable, match="did not do what was asked"):
        RunDirectory.open(s3 / "run")
    bad_line.policy = lambda number, method, path: ""
    driver.run(s3 / "run", 2)
    check_run(driver, s3 / "run", 2)


def test_a_store_that_cannot_be_reached_is_no_corruption(s3, bad_line, monkeypatch):
    monkeypatch.setattr(client, "MAX_RETRIES", 1)
    client._client.cache_clear()
    data = write(s3 / "x.zarr", chunk_rows=16)
    reader = data.reader()
    bad_line.policy = lambda number, method, path: "throttle" if "/c/" in path else ""
    with pytest.raises(StoreUnavailable):
        reader.read(RowRange(0, 100))
    with pytest.raises(StoreUnavailable):
        write(s3 / "y.zarr")
    bad_line.policy = lambda number, method, path: ""
    assert reader.read(RowRange(0, 100)).vectors.shape == (100, 5)


def test_a_store_that_ignores_conditions_is_refused_before_anything_is_written(driver, s3, bad_line):
    bad_line.policy = lambda number, method, path: "ignore"
    with pytest.raises(StoreRefused, match="ignores `If-None-Match"):
        RunDirectory.create(s3 / "run", driver.CONFIG)
    assert s3.walk() == []


# --- access, and what is never said ---------------------------------------------------------------------


def test_refused_access_says_what_to_check(s3, bad_line):
    bad_line.policy = lambda number, method, path: "refuse"
    with pytest.raises(StoreRefused, match=r"refuses access \(403 Forbidden\); check AWS_ACCESS_KEY"):
        open_dataset(s3 / "x.zarr")
    assert len(bad_line.seen) == 1  # waiting would change nothing


def test_an_absent_bucket_is_named(s3):
    for call in (open_dataset, RunDirectory.open, lambda path: save_model(path, {}, {"a": ROWS})):
        with pytest.raises(StoreRefused, match=r"s3://no-such-bucket/x.*there is no such bucket"):
            call("s3://no-such-bucket/x")


@pytest.mark.parametrize(
    ("endpoint", "match"),
    [
        ("http://storage.example.org", "plain http is for this machine alone"),
        ("http://10.0.0.7:9000", "plain http is for this machine alone"),
        ("https://someone:hidden@storage.example.org", "holds a name or password"),
        ("ftp://127.0.0.1", "expected an endpoint https"),
    ],
)
def test_credentials_travel_over_https_alone(s3, monkeypatch, endpoint, match):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(StoreRefused, match=match) as caught:
        open_dataset(s3 / "x.zarr")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["s3://AKIA:hidden@bucket/x", "s3://hidden@bucket/x", "https://hidden/x", "s3:///x"]
)
def test_addresses_hold_no_credentials(address):
    for path in (address, Path(address)) if address.startswith("s3://AK") else (address,):
        with pytest.raises(StoreRefused) as caught:
            place(path)
        assert "hidden" not in str(caught.value)


def test_the_secret_is_nowhere_but_in_the_environment(driver, s3, bad_line, caplog, monkeypatch):
    """Objects and log are looked through by the fixture; here whatever travels or is shown."""
    secret, key = os.environ["AWS_SECRET_ACCESS_KEY"], os.environ["AWS_ACCESS_KEY_ID"]
    caplog.set_level(logging.DEBUG)
    checkpoints = driver.run(s3 / "run", 2)
    data = write(s3 / "x.zarr")
    data.reader().read(RowRange(0, 10))
    travelling = [data, data.reader(), checkpoints.reference(), RunDirectory.open(s3 / "run"), s3 / "run"]
    shown = [repr(item) + str(item) for item in travelling]
    sent = [pickle.dumps(item) for item in travelling]
    monkeypatch.setattr(client, "MAX_RETRIES", 0)
    for action in ("throttle", "refuse", "lose answer"):
        client._client.cache_clear()
        bad_line.policy = lambda number, method, path, action=action: action
        with pytest.raises(StorageError) as caught:
            driver.run(s3 / "run", 3)
        shown.append("".join(traceback.format_exception(caught.value)))
        sent.append(pickle.dumps(caught.value))
    for text in (*shown, caplog.text):
        assert secret not in text
        assert key not in text
    for data in sent:
        assert secret.encode() not in data
        assert key.encode() not in data


# --- addresses ------------------------------------------------------------------------------------------


def test_an_address_survives_pathlib_and_pickle(s3):
    path = s3 / "a/b.zarr"
    assert place(str(path)) == place(Path(str(path))) == pickle.loads(pickle.dumps(path)) == path
    assert (path.name, path.stem, path.suffix, path.parent) == ("b.zarr", "b", ".zarr", s3 / "a")
    assert path.relative_to(s3) == "a/b.zarr"
    assert path.is_relative_to(s3 / "a")
    assert not path.is_relative_to(s3 / "a/b")
    with pytest.raises(TypeError, match="a file or folder of this machine"):
        os.fspath(path)
    with pytest.raises(UnsafeObject):
        path / "../c"


def test_a_folder_is_there_as_long_as_anything_is_in_it(s3):
    path = ObjectPath(s3.bucket, "a")
    assert not path.exists()
    (path / "b/c").put(b"1")
    assert path.is_dir()
    assert not path.is_file()
    assert [child.name for child in path.iterdir()] == ["b"]
    (path / "b/c").unlink()
    (path / "b/c").unlink(missing_ok=True)
    assert not path.exists()


def test_models_are_saved_over_a_bad_line(s3, bad_line):
    bad_line.policy = lambda number, method, path: ("", "lose answer", "", "throttle")[number % 4]
    digest = save_model(s3 / "m", {"n": 1}, {"a": ROWS})
    header, arrays = load_model(s3 / "m")
    assert (header, arrays["a"].tobytes()) == ({"n": 1}, ROWS.tobytes())
    assert len(digest) == 64
