"""A whole job on `s3://` with Dask: killed, resumed elsewhere, and the same bits as on a disk."""

from __future__ import annotations

import os
import time

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.cluster.errors import PathNotShared
from bitfleet.pipeline.inspection import verify_path
from bitfleet.storage.claims import CLAIM
from bitfleet.storage.errors import IdentityMismatch
from bitfleet.storage.rounds import read_chain
from bitfleet.storage.run import status
from bitfleet.storage.s3_objects import objects_at
from chaos_cases import PLAN, method_of
from distributed.protocol import pickle as wire

SEEN = r"2 of 2 workers cannot read what .* s3://.*plain http.*the variables AWS_"


@pytest.fixture
def workers(s3, clusters):
    """Two workers with the credentials in their environment, where they are looked for."""
    client = clusters(2)
    names = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    client.run(exec, f"import os; os.environ.update({names!r})")
    yield client
    client.run(exec, f"import os; [os.environ.pop(name, None) for name in {sorted(names)!r}]")


def command(data, run, client, case):
    name, params = method_of(case)
    given = [word for key, value in params.items() for word in ("--set", f"{key}={value}")]
    plan = ["--block-rows", PLAN["block_rows"], "--fan-in", PLAN["fan_in"], "--seed", PLAN.get("seed", 0)]
    return ["train", data, run, "--method", name, *given, *plan, "--scheduler", client.scheduler.address]


@pytest.mark.long
def test_a_driver_killed_on_its_way_is_resumed_to_the_bits_of_a_local_run(
    cli, s3, workers, data, undisturbed
):
    stored, run = s3 / "data/x.zarr", s3 / "runs/posh"
    assert bf.ingest(data, stored).digest == bf.open_dataset(data).digest
    driver = cli.start(*command(stored, run, workers, "posh"))
    deadline = time.monotonic() + 90
    while not (run / "manifests/00000001.json").exists():
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < deadline
    driver.kill()
    driver.communicate()
    before = len(read_chain(objects_at(run)))
    found = status(run)
    assert (found["state"], found["round"]) == ("interrupted", before - 1)

    model = bf.resume(str(run), scheduler=workers)
    codes = bf.encode(model, str(stored), str(s3 / "codes.zarr"), scheduler=workers)
    assert (model.digest, codes.digest) == undisturbed("posh")
    chain = read_chain(objects_at(run))
    assert [manifest.round for manifest in chain] == list(range(len(chain)))
    assert len(chain) > before
    assert len({manifest.driver["pid"] for manifest in chain}) == 2
    assert status(run)["state"] == "finished"
    assert verify_path(run) == []
    left = {item["path"].split("/")[0] for item in s3.walk()}
    assert left == {"data", "runs", "codes.zarr"}  # no scratch folders
    assert not any(item["path"].endswith((CLAIM, ".tmp")) for item in s3.walk())


def test_a_worker_that_cannot_reach_the_store_is_named(s3, workers, data):
    workers.run(exec, "import os; os.environ['AWS_ENDPOINT_URL'] = 'http://192.0.2.1:9000'")
    with pytest.raises(PathNotShared, match=SEEN):
        bf.train(data, str(s3 / "run"), "lsh", n_bits=8, scheduler=workers)


@pytest.fixture
def sent(workers, monkeypatch):
    """Everything that goes to the scheduler in pickled form from now on."""
    seen, dumps = [], wire.dumps

    def recorded(*args, **kwargs):
        seen.append(dumps(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(wire, "dumps", recorded)
    return seen


def test_arrays_are_kept_with_the_run_and_credentials_stay_at_home(s3, workers, sent):
    rows = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    est = bf.LSH(n_bits=16, random_state=0).fit(rows, scheduler=workers, checkpoint=str(s3 / "run"))
    alone = bf.LSH(n_bits=16, random_state=0).fit(rows)
    assert est.model_.digest == alone.model_.digest
    assert bf.open_dataset(str(s3 / "run/data.zarr")).n_rows == 200
    assert bf.load(str(s3 / "run")).digest == est.model_.digest
    assert any(str(s3).encode() in message for message in sent)
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        assert not any(os.environ[name].encode() in message for message in sent)
    with pytest.raises(IdentityMismatch, match="seed"):
        bf.LSH(n_bits=16, random_state=1).fit(rows, scheduler=workers, checkpoint=str(s3 / "run"))


@pytest.mark.long
def test_a_submitted_job_lives_in_the_bucket_alone(s3, workers, data):
    """Watching and fetching the result need neither the scheduler nor a file of this machine."""
    bf.ingest(data, s3 / "x.zarr")
    job = {
        "data": {"path": str(s3 / "x.zarr")},
        "method": {"name": "itq", "n_bits": 16, "n_iter": 3},
        "run": {"path": str(s3 / "run")},
        "encode": {"path": str(s3 / "codes.zarr")},
        "evaluate": {"metrics": ["recall10@100"], "queries": str(s3 / "x.zarr")},
    }
    submitted = bf.submit(job, scheduler=workers)
    assert submitted.run == s3 / "run"
    result = bf.Job(str(s3 / "run")).result(timeout=100)
    assert result["model"] == bf.load(s3 / "run").digest
    assert result["codes"] == bf.encode(s3 / "run", s3 / "x.zarr", s3 / "again.zarr").digest
    kinds = [event["kind"] for event in submitted.follow()]
    assert kinds.count("round") == bf.load(s3 / "run").state.round
    assert kinds[-1] == "job_finished"
    assert submitted.status()["state"] == "finished"
    assert (s3 / "run/report.html").is_file()


@pytest.mark.long
def test_two_drivers_in_two_processes_make_one_chain(cli, s3, workers, data, undisturbed):
    stored, run = s3 / "x.zarr", s3 / "run"
    bf.ingest(data, stored)
    both = [cli.start(*command(stored, run, workers, "posh")) for _ in range(2)]
    ends = [(process.communicate(timeout=120)[1], process.returncode) for process in both]
    assert sorted(code for _, code in ends) in ([0, 0], [0, 4]), ends
    assert all("committed by" in complaint for complaint, code in ends if code == 4)
    assert bf.load(run).digest == undisturbed("posh")[0]
    chain = read_chain(objects_at(run))
    assert [manifest.round for manifest in chain] == list(range(len(chain)))
    assert verify_path(run) == []
