"""Runs through the public functions: what is kept, what goes on, and what is refused."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import dask
import dask.array as da
import distributed  # noqa: F401  (its defaults must be there before they are overridden)
import numpy as np
import pytest
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline import opening, runs
from bitfleet.pipeline import train as loop
from bitfleet.pipeline.arrays import spool
from bitfleet.pipeline.config import RunConfig, build_method
from bitfleet.pipeline.errors import Interrupted
from bitfleet.pipeline.model import Model
from bitfleet.pipeline.train import Event, RoundCommitted, RunFinished, RunStarted
from bitfleet.storage.datasets import ArrayReader
from bitfleet.storage.memory import MemoryCheckpoints
from bitfleet.storage.run import RunDirectory, status
from bitfleet.storage.verify import verify_run
from bitfleet.tasks.protocols import DataInfo, LeafPlan

if TYPE_CHECKING:
    from pathlib import Path

PARAMS = {"n_bits": 6, "n_iter": 3}


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(2).normal(size=(300, 10)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(rows: np.ndarray) -> str:
    """The digest of the same training with nothing but memory in play."""
    method, reader = build_method("itq", PARAMS), ArrayReader(rows)
    state = loop.train(method, reader, SerialExecutor(), MemoryCheckpoints(), LeafPlan(300, 64, 8), 0)
    return Model(method, state, DataInfo(300, 10)).digest


@pytest.fixture
def dataset(rows: np.ndarray, tmp_path: Path) -> bf.Dataset:
    return spool(rows, tmp_path / "x.zarr")


def train(data: Any, run: Path, **changes: Any) -> Any:
    return bf.train(data, run, "itq", **(PARAMS | {"block_rows": 64} | changes))


def stop_after(rounds: int) -> runs.Control:
    """A control that asks for a stop once that many rounds are committed."""
    seen: list[Event] = []

    def should_stop() -> bool:
        return sum(isinstance(event, RoundCommitted) for event in seen) >= rounds

    return runs.Control(emit=seen.append, should_stop=should_stop)


def interrupted(data: Any, run: Path, rounds: int, **options: Any) -> None:
    method = build_method("itq", PARAMS)
    with pytest.raises(Interrupted) as stop:
        runs.start(data, run, method, block_rows=64, control=stop_after(rounds), **options)
    assert stop.value.run == run
    assert stop.value.round == rounds


def test_a_run_and_an_estimator_learn_the_same(dataset: bf.Dataset, rows: np.ndarray, tmp_path: Path) -> None:
    model = bf.train(dataset, tmp_path / "run", "itq", **PARAMS)
    estimator = bf.ITQ(**PARAMS, random_state=0).fit(rows)
    assert estimator.model_.digest == model.digest
    assert bf.load(tmp_path / "run").digest == model.digest


def test_what_a_run_keeps(dataset: bf.Dataset, tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = train(dataset, run)
    config = RunConfig.from_json(RunDirectory.open(run).config)
    assert config.data == str(dataset.path)
    assert config.data_digest == dataset.digest
    assert config.method == {"name": "itq", "center": True, "n_components": None, **PARAMS}
    assert (config.seed, config.block_rows, config.fan_in) == (0, 64, 8)
    assert model.path == run / "model.zarr"
    assert verify_run(run) == []
    state = status(run)
    assert (state["state"], state["round"], state["rounds"]) == ("finished", model.state.round, 4)
    kinds = [event["kind"] for event in RunDirectory.open(run).events().read()]
    assert kinds == ["run_started", "training", *["round"] * 4, "memory", "run_finished"]


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_an_interrupted_run_goes_on_to_the_same_bits(
    rounds: int, dataset: bf.Dataset, expected: str, tmp_path: Path
) -> None:
    interrupted(dataset, tmp_path / "run", rounds)
    assert status(tmp_path / "run")["state"] == "interrupted"
    with pytest.raises(bf.ConfigError, match="has no model yet"):
        bf.load(tmp_path / "run")
    assert bf.resume(tmp_path / "run").digest == expected
    assert status(tmp_path / "run")["state"] == "finished"


def test_a_driver_here_is_cancelled_from_outside(dataset: bf.Dataset, expected: str, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def ask(event: Event) -> None:
        if isinstance(event, RoundCommitted) and event.round == 2:
            assert bf.Job(run).cancel()

    method = build_method("itq", PARAMS)
    with pytest.raises(Interrupted, match=r"cancelled \(by process .*\) after round 2; go on with"):
        runs.start(dataset, run, method, block_rows=64, control=runs.Control(emit=ask))
    assert bf.Job(run).status()["state"] == "interrupted"
    assert not bf.Job(run).cancel()
    assert bf.resume(run).digest == expected  # whoever goes on does not want it cancelled any more
    assert bf.Job(run).wait(0)["state"] == "finished"


def test_training_again_goes_on_too(dataset: bf.Dataset, expected: str, tmp_path: Path) -> None:
    interrupted(dataset, tmp_path / "run", 2)
    events: list[Event] = []
    method = build_method("itq", PARAMS)
    model = runs.start(
        dataset, tmp_path / "run", method, block_rows=64, control=runs.Control(emit=events.append)
    )
    assert isinstance(events[0], RunStarted)
    assert events[0].resumed_from == 2
    assert [event.round for event in events if isinstance(event, RoundCommitted)] == [3, 4]
    assert isinstance(events[-1], RunFinished)
    assert events[-1].model == model.digest == expected


def test_a_finished_run_returns_its_model(dataset: bf.Dataset, tmp_path: Path) -> None:
    model = train(dataset, tmp_path / "run")
    before = sorted(p for p in (tmp_path / "run").rglob("*") if p.is_file())
    assert bf.resume(tmp_path / "run").digest == model.digest
    assert train(dataset, tmp_path / "run").digest == model.digest
    assert sorted(p for p in (tmp_path / "run").rglob("*") if p.is_file()) == before


def test_a_model_that_was_not_saved_is_saved_by_resume(dataset: bf.Dataset, tmp_path: Path) -> None:
    model = train(dataset, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model.zarr")
    again = bf.resume(tmp_path / "run", scheduler="tcp://nobody:1")  # nothing is left to compute
    assert again.digest == model.digest
    assert bf.load(tmp_path / "run").digest == model.digest


def test_a_run_without_a_round_begins_at_round_0(dataset: bf.Dataset, expected: str, tmp_path: Path) -> None:
    opening.prepare(dataset, tmp_path / "run", build_method("itq", PARAMS), block_rows=64)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["config.json"]
    assert bf.resume(tmp_path / "run").digest == expected


def test_the_configuration_is_there_before_the_cluster(
    dataset: bf.Dataset, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(bf.ClusterLost), dask.config.set({"distributed.comm.timeouts.connect": "1 s"}):
        train(dataset, tmp_path / "run", scheduler="tcp://127.0.0.1:9")
    assert RunDirectory.exists(tmp_path / "run")
    found = status(tmp_path / "run")
    assert found["state"] == "interrupted"  # to be resumed, like any run whose cluster is lost
    assert "no scheduler answers" in found["reason"]
    assert bf.resume(tmp_path / "run", scheduler="serial").digest == expected


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"n_bits": 5}, r"method\.n_bits: stored 6, given 5"),
        ({"n_iter": 9}, r"method\.n_iter"),
        ({"seed": 1}, r"seed: stored 0, given 1"),
        ({"block_rows": 32}, r"block_rows: stored 64, given 32"),
        ({"fan_in": 4}, r"fan_in: stored 8, given 4"),
    ],
)
def test_another_run_in_the_same_place_is_a_conflict(
    changes: dict, field: str, dataset: bf.Dataset, tmp_path: Path
) -> None:
    train(dataset, tmp_path / "run")
    with pytest.raises(bf.IdentityMismatch, match=field):
        train(dataset, tmp_path / "run", **changes)


def test_other_data_is_a_conflict(dataset: bf.Dataset, rows: np.ndarray, tmp_path: Path) -> None:
    interrupted(dataset, tmp_path / "run", 1)
    other = spool(rows + 1, tmp_path / "other.zarr")
    for given in (other, rows + 1):
        with pytest.raises(bf.IdentityMismatch, match="data"):
            train(given, tmp_path / "run")
    assert not (tmp_path / "run" / "data.zarr").exists()
    with pytest.raises(bf.IdentityMismatch, match="is not the data of this run"):
        bf.resume(tmp_path / "run", data=other.path)
    with pytest.raises(bf.IdentityMismatch, match="preprocess_on"):
        train(dataset, tmp_path / "run", preprocess_on=other)


def test_data_may_move(dataset: bf.Dataset, expected: str, tmp_path: Path) -> None:
    interrupted(dataset, tmp_path / "run", 1)
    moved = tmp_path / "elsewhere" / "x.zarr"
    moved.parent.mkdir()
    dataset.path.rename(moved)
    with pytest.raises(bf.DataRefused, match="there is no data set"):
        bf.resume(tmp_path / "run")
    assert bf.resume(tmp_path / "run", data=moved).digest == expected


def test_a_run_with_its_own_data_may_move(rows: np.ndarray, expected: str, tmp_path: Path) -> None:
    interrupted(da.from_array(rows, chunks=(70, 10)), tmp_path / "run", 1)
    assert RunConfig.from_json(RunDirectory.open(tmp_path / "run").config).data == "data.zarr"
    (tmp_path / "run").rename(tmp_path / "moved run")
    assert bf.resume(tmp_path / "moved run").digest == expected


def test_a_wrong_start_leaves_nothing(rows: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(bf.ConfigError, match="cannot be trained on this data"):
        train(rows[:0], tmp_path / "run")
    with pytest.raises(bf.ConfigError, match="has no parameter 'bits'"):
        train(rows, tmp_path / "run", bits=3)
    with pytest.raises(bf.ConfigError, match="fan_in >= 2"):
        train(rows, tmp_path / "run", fan_in=1)
    assert not list(tmp_path.rglob("*.json"))


def test_a_driver_that_is_overtaken_does_not_end_the_run(dataset: bf.Dataset, tmp_path: Path) -> None:
    run, method = tmp_path / "run", build_method("itq", PARAMS)
    seen: list[int] = []

    def overtake() -> bool:
        if not seen:  # after round 0 of the first driver a second one comes and does everything
            seen.append(bf.resume(run).state.round)
        return False

    with pytest.raises(bf.ManifestConflict, match=r"committed by"):
        runs.start(dataset, run, method, block_rows=64, control=runs.Control(should_stop=overtake))
    assert seen == [4]
    assert status(run)["state"] == "finished"
    assert verify_run(run) == []


def test_there_is_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(bf.ConfigError, match="there is no run at"):
        bf.resume(tmp_path)


def test_a_changed_environment_needs_to_be_allowed(
    dataset: bf.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(dataset, tmp_path / "run", 2)
    real = opening.fingerprint.environment()
    monkeypatch.setattr(opening.fingerprint, "environment", lambda: real | {"numpy": "0.1"})
    with pytest.raises(bf.IdentityMismatch, match=r"environment\.numpy: stored .*, given '0\.1'"):
        bf.resume(tmp_path / "run")
    model = bf.resume(tmp_path / "run", allow_environment_change=True)
    assert bf.resume(tmp_path / "run").digest == model.digest  # a finished run computes nothing


def test_preprocessing_on_other_rows(dataset: bf.Dataset, rows: np.ndarray, tmp_path: Path) -> None:
    other = rows[:100] * 2 + 3
    model = train(dataset, tmp_path / "run", preprocess_on=other)
    np.testing.assert_allclose(model.state.arrays["mean"], other.mean(axis=0, dtype=np.float64), rtol=1e-12)
    interrupted(dataset, tmp_path / "again", 1, preprocess_on=spool(other, tmp_path / "t.zarr"))
    assert bf.resume(tmp_path / "again").digest == model.digest
    own = train(dataset, tmp_path / "own", preprocess_on=dataset)
    plain = train(dataset, tmp_path / "plain")
    # other blocks than the run's own, so only the same to rounding
    np.testing.assert_allclose(own.state.arrays["mean"], plain.state.arrays["mean"], rtol=1e-12, atol=1e-15)


def test_methods_can_be_objects(dataset: bf.Dataset, expected: str, tmp_path: Path) -> None:
    method = build_method("itq", PARAMS)
    first = bf.train(dataset, tmp_path / "a", method, block_rows=64)
    assert first.digest == expected
    changed = bf.train(dataset, tmp_path / "c", method, n_bits=5)
    assert changed.n_bits == 5
    with pytest.raises(bf.ConfigError, match="expected the name of a method or a method, got int"):
        bf.train(dataset, tmp_path / "d", 7)


def test_damage_is_an_error_and_never_a_number(dataset: bf.Dataset, tmp_path: Path) -> None:
    interrupted(dataset, tmp_path / "run", 2)
    config = tmp_path / "run" / "config.json"
    content = config.read_text()
    config.write_text(content.replace('"seed": 0', '"seed": 1'))
    assert config.read_text() != content
    with pytest.raises(bf.CorruptObject, match=r"config\.json"):
        bf.resume(tmp_path / "run")
    config.write_text(content)
    newest = tmp_path / "run" / "manifests" / "00000002.json"
    document = json.loads(newest.read_text())
    chunk = tmp_path / "run" / document["objects"][0]["path"]
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(bf.CorruptObject):
        bf.resume(tmp_path / "run")


def test_unknown_schedulers_are_refused(dataset: bf.Dataset, tmp_path: Path) -> None:
    with pytest.raises(bf.ConfigError, match=r"cluster: scheduler: expected .local., .serial."):
        train(dataset, tmp_path / "run", scheduler="yarn")
    with pytest.raises(bf.ConfigError, match=r"or a connected distributed\.Client, got int"):
        train(dataset, tmp_path / "run", scheduler=5)


@pytest.mark.parametrize(
    ("key", "value"), [("block_rows", 2.5), ("block_rows", True), ("fan_in", 2.5), ("seed", True)]
)
def test_what_is_no_whole_number_is_refused_in_a_line(
    rows: np.ndarray, tmp_path: Path, key: str, value: Any
) -> None:
    with pytest.raises(bf.ConfigError, match=f"{key}.*integer") as refused:
        train(rows, tmp_path / "run", **{key: value})
    assert "\n" not in str(refused.value)
