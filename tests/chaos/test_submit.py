"""Jobs handed over to a cluster: the client leaves, drivers and schedulers die, the bits stay the same."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.storage import requests
from bitfleet.storage.objects import LocalObjects
from bitfleet.storage.rounds import read_chain
from chaos_cases import PLAN, digits
from distributed import Client
from foreign import Site, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PARAMS = {"n_bits": 96, "n_active": 6, "n_epochs": 12}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A scheduler and two workers of one thread, each replaced when it is killed."""
    with Site(tmp_path_factory.mktemp("site"), 2) as started:
        yield started


@pytest.fixture(scope="module")
def expected(data, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Digests of model and codes of a run left alone in this process."""
    folder = tmp_path_factory.mktemp("expected")
    model = bf.train(data, folder / "run", "posh", **PLAN, **PARAMS)
    return model.digest, bf.encode(model, data, folder / "codes").digest


def job_file(folder: Path, data: Path, **tables: Any) -> Path:
    """A job file that trains and encodes in ``folder``."""
    content = {
        "data": {"path": str(data)},
        "method": {"name": "posh", **PARAMS},
        "run": {"path": "run", **PLAN},
        "encode": {"path": "codes.zarr"},
        **tables,
    }
    lines = [
        line
        for name, table in content.items()
        for line in (f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items()))
    ]
    path = folder / "job.toml"
    path.write_text("\n".join(lines))
    return path


def submit_in(folder: Path, data: Path, site: Site) -> bf.Job:
    folder.mkdir()
    return bf.submit(job_file(folder, data), scheduler=site.address)


def kinds(job: bf.Job) -> list[str]:
    return [event["kind"] for event in job.follow()]


def kill_driver(job: bf.Job, at_round: int, seen: set[str]) -> None:
    """Kill the worker that hosts the driver, once it has come to a round; not the same driver twice."""

    def there() -> bool:
        found = requests.announced_driver(job.run)
        return found is not None and found["driver"] not in seen and _round(job) >= at_round

    wait_until(there)
    found = requests.announced_driver(job.run)
    assert found is not None
    seen.add(found["driver"])
    kill(found["pid"])


def kill_driver_and(then: Callable[[], object], job: bf.Job) -> None:
    wait_until(lambda: _round(job) >= 1)
    found = requests.announced_driver(job.run)
    assert found is not None
    then()
    kill(found["pid"])


def _round(job: bf.Job) -> int:
    newest = sorted((job.run / "manifests").glob("0*.json"))
    return int(newest[-1].stem) if newest else -1


def test_the_client_leaves_and_the_driver_is_killed_twice(cli, site, data, expected, tmp_path):
    file = job_file(tmp_path, data)
    told = cli("submit", file, "--scheduler", site.address, "--json")  # a process that ends at once
    job, seen = bf.Job(told["run"]), set()
    for at_round in (2, 5):
        kill_driver(job, at_round, seen)
    result = job.result(timeout=200)
    assert (result["model"], result["codes"]) == expected
    assert (bf.load(job.run).digest, bf.open_codes(tmp_path / "codes.zarr").digest) == expected
    assert len(seen) == 2 < kinds(job).count("job_started") + 1
    chain = read_chain(LocalObjects(job.run))
    assert [manifest.round for manifest in chain] == list(range(len(chain)))
    assert len({manifest.driver["pid"] for manifest in chain}) == 3
    assert cli("verify", job.run, "--json")["problems"] == []
    watched = cli.start(
        "watch", job.run, "--json"
    )  # needs no scheduler; of an ended run it tells all at once
    lines = [json.loads(line) for line in watched.communicate(timeout=200)[0].splitlines()]
    assert watched.returncode == 0
    assert lines[-1]["state"] == "finished"
    assert [line["round"] for line in lines if line.get("kind") == "round"][-1] == lines[-1]["round"] == 13


def test_cancelled_and_submitted_again(site, data, expected, tmp_path):
    content = {
        "data": {"path": str(data)},
        "method": {"name": "posh", **PARAMS},
        "run": {"path": str(tmp_path / "run"), **PLAN},
        "encode": {"path": str(tmp_path / "codes.zarr")},
    }
    job = bf.submit(content, scheduler=site.address)
    assert job.status()["state"] == "running"
    wait_until(lambda: _round(job) >= 2)
    assert job.cancel()
    found = job.wait(200)
    assert found["state"] == "interrupted"
    assert "cancelled (by process" in found["reason"]
    assert 2 <= found["round"] < 13
    with pytest.raises(bf.JobFailed, match=r"interrupted: cancelled .* bitfleet resume"):
        job.result()
    assert not job.cancel()
    again = bf.submit(content, scheduler=site.address)
    result = again.result(timeout=200)
    assert (result["model"], result["codes"]) == expected


@pytest.mark.long
def test_jobs_wait_for_the_only_worker_of_one_thread(data, expected, tmp_path, monkeypatch):
    monkeypatch.setattr("bitfleet.pipeline.job.WORKER_SECONDS", 0.1)
    requests.ask_to_stop(tmp_path / "run")  # and was heard, the day before
    with Site(tmp_path) as site:
        job = bf.submit(job_file(tmp_path, data), scheduler=site.address)
        assert job.cancel()
        job = bf.submit(job_file(tmp_path, data), scheduler=site.address)
        found = job.status()
        assert (found["state"], found["stage"], found["round"]) == ("running", "waiting", None)
        cancelled = submit_in(tmp_path / "cancelled", data, site)
        assert cancelled.cancel()
        refused = submit_in(tmp_path / "refused", tmp_path / "nowhere.zarr", site)
        site.start_worker(nanny=False)
        result = job.result(timeout=200)  # the driver has left the thread to the tasks
        with pytest.raises(bf.JobFailed, match=r"interrupted: cancelled"):
            cancelled.result(timeout=200)
        with pytest.raises(bf.JobFailed, match=r"failed: .*there is no data set") as failed:
            refused.result(timeout=200)
        assert failed.value.code == 3
    assert (result["model"], result["codes"]) == expected
    with pytest.raises(bf.ConfigError, match=r"there is no run at .* was refused: .*there is no data set"):
        bf.Job(tmp_path / "refused" / "run").status()
    bf.train(data, tmp_path / "refused" / "run", "lsh", n_bits=8)  # the folder is not spoilt


def test_what_is_wrong_is_told_before_the_client_leaves(site, data, tmp_path):
    with pytest.raises(bf.DataRefused, match="there is no data set"):
        bf.submit(job_file(tmp_path, tmp_path / "nowhere.zarr"), scheduler=site.address)
    with pytest.raises(bf.ConfigError, match="--scheduler"):
        bf.submit(job_file(tmp_path, data))
    assert not (tmp_path / "run").exists()
    with pytest.raises(bf.ConfigError, match=r"there is no run at .*as soon as a worker is there"):
        bf.Job(tmp_path / "run").status()


def test_a_job_that_fails_says_so(site, data, tmp_path):
    np.save(tmp_path / "narrow.npy", digits(50)[:, :30])
    bf.ingest(tmp_path / "narrow.npy", tmp_path / "narrow.zarr")
    file = job_file(tmp_path, data, encode={"path": "codes.zarr", "data": "narrow.zarr"})
    job = bf.submit(file, scheduler=site.address, settings={"method.n_epochs": 1})
    with pytest.raises(bf.JobFailed, match=r"failed: .*61 features, got 30") as failed:
        job.result(timeout=200)
    assert failed.value.code == 2
    assert job.status()["stage"] == "encode"


@pytest.mark.long
def test_a_driver_that_cannot_go_on_says_so(site, data, tmp_path, monkeypatch):
    """Its data is taken away before another worker takes over; its folder, under its feet."""
    monkeypatch.setattr("bitfleet.pipeline.job.SEEN_SECONDS", 1.0)
    moved = tmp_path / "x.zarr"
    shutil.copytree(data, moved)
    job = submit_in(tmp_path / "data", moved, site)
    kill_driver_and(lambda: moved.rename(tmp_path / "elsewhere.zarr"), job)
    with pytest.raises(bf.JobFailed, match=r"failed: .*there is no data set"):
        job.result(timeout=200)
    job = submit_in(tmp_path / "folder", data, site)
    wait_until(lambda: _round(job) >= 1)
    job.run.rename(tmp_path / "taken")
    with pytest.raises(bf.ConfigError, match="there is no run at"):
        job.wait(timeout=200)
    time.sleep(5)
    assert not job.run.exists()


@pytest.mark.long
def test_workers_with_much_to_do_do_not_hold_back_who_submits(site, data, expected, tmp_path, monkeypatch):
    monkeypatch.setattr("bitfleet.pipeline.job.ACCEPT_SECONDS", 0.5)
    with Client(site.address) as client:
        client.wait_for_workers(2, timeout=60)
        busy = [client.submit(time.sleep, 10, pure=False) for _ in client.scheduler_info()["workers"]]
        begun = time.monotonic()
        job = submit_in(tmp_path / "job", data, site)
        assert time.monotonic() - begun < 8
        assert job.status()["stage"] == "waiting"
        result = job.result(timeout=200)
        assert all(future.done() for future in busy)
    assert (result["model"], result["codes"]) == expected


@pytest.mark.long  # the short one is in cluster/test_lost.py
def test_a_scheduler_that_dies_ends_both_kinds_of_driver(cli, data, expected, tmp_path):
    """A driver here ends with exit code 5, one on a worker ends with it; both runs go on elsewhere."""
    command = ("train", data, tmp_path / "here", "--method", "posh", "--n-bits", 96, "--n-active", 6, "--set",
               "n_epochs=12", "--block-rows", 128, "--fan-in", 3, "--json", "--scheduler")  # fmt: skip
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    with Site(tmp_path / "first", 2) as site:
        job = bf.submit(job_file(tmp_path, data), scheduler=site.address)
        here = cli.start(*command, site.address)
        wait_until(lambda: _round(job) >= 1 and _round(bf.Job(tmp_path / "here")) >= 1)
        begun = time.monotonic()
        site.kill_scheduler()
        out, complaint = here.communicate(timeout=200)
        assert time.monotonic() - begun < 30
        assert here.returncode == 5, complaint
        assert "last committed round is intact" in json.loads(out)["error"]["message"]
        assert site.left() == []
    for run in (job.run, tmp_path / "here"):
        assert cli("verify", run, "--json")["problems"] == []
    assert bf.Job(tmp_path / "here").status()["state"] == "interrupted"
    silent = job.run / "heartbeat.json"
    if silent.exists():  # its driver had no time to say anything; a minute later that says enough
        os.utime(silent, (time.time() - 61,) * 2)
    assert job.status()["state"] == "interrupted"
    with Site(tmp_path / "second", 1) as site:
        again = bf.submit(job_file(tmp_path, data), scheduler=site.address)
        assert (
            cli("resume", tmp_path / "here", "--scheduler", site.address, "--json")["digest"] == expected[0]
        )
        result = again.result(timeout=200)
    assert (result["model"], result["codes"]) == expected
