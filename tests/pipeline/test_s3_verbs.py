"""Every verb on `s3://`: the same results as on a disk."""

from __future__ import annotations

import json
import shutil
import threading
import time

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline.cli import app
from bitfleet.pipeline.errors import Interrupted
from bitfleet.storage.run import RunDirectory
from typer.testing import CliRunner

METHOD = ("--method", "itq", "--n-bits", "16", "--set", "n_iter=1", "--scheduler", "serial")


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """Return a function that runs a verb in an empty folder, which has to stay empty."""
    monkeypatch.chdir(tmp_path)

    def run(*words, code=0):
        result = CliRunner().invoke(app, [*map(str, words), "--json"])
        assert result.exit_code == code, result.output
        assert "s3:/bucket" not in result.output.replace("s3://", "")
        return json.loads(result.stdout)

    yield run
    assert not [child for child in tmp_path.iterdir() if ":" in child.name]


@pytest.fixture
def vectors(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(200, 16)).astype(np.float32))
    np.save(tmp_path / "y.npy", rng.integers(0, 3, 200))
    bf.ingest(tmp_path / "x.npy", tmp_path / "x.zarr", labels=tmp_path / "y.npy", chunk_rows=100)
    return tmp_path / "x.npy"


@pytest.mark.long  # some twenty processes
def test_the_way_from_vectors_to_a_report(cli, s3, vectors, tmp_path):
    data, run, codes = s3 / "p/x.zarr", s3 / "p/run", s3 / "p/codes.zarr"
    made = cli("ingest", vectors, data, "--labels", tmp_path / "y.npy", "--chunk-rows", 100)
    assert made["digest"] == bf.open_dataset(tmp_path / "x.zarr").digest
    alone = cli("train", tmp_path / "x.zarr", tmp_path / "run", *METHOD)
    there = cli("train", data, run, *METHOD)
    assert (there["run"], there["digest"]) == (str(run), alone["digest"])
    assert cli("resume", run)["digest"] == alone["digest"]
    assert cli("status", run)["state"] == "finished"
    encoded = [
        cli("encode", r, d, c)["digest"]
        for r, d, c in ((run, data, codes), (tmp_path / "run", tmp_path / "x.zarr", tmp_path / "codes.zarr"))
    ]
    assert encoded[0] == encoded[1]
    searches = [
        cli("search", c, d, "--model", r, "--rescore", d, "--k", 3)["ids"]
        for c, d, r in ((codes, data, run), (tmp_path / "codes.zarr", tmp_path / "x.zarr", tmp_path / "run"))
    ]
    assert searches[0] == searches[1]
    metrics = ("--metrics", "map@10,recall10@100")
    evaluated = [
        cli("evaluate", r, d, d, *metrics)["metrics"]
        for r, d in ((run, data), (tmp_path / "run", tmp_path / "x.zarr"))
    ]
    assert evaluated[0] == evaluated[1]
    assert cli("report", run)["report"] == str(run / "report.html")
    assert b"map@10" in (run / "report.html").read_bytes()
    for path, kind in ((run, "run"), (data, "dataset"), (codes, "codes"), (run / "model.zarr", "model")):
        found = cli("inspect", path)
        assert (found["kind"], found["path"]) == (kind, str(path))
        assert cli("verify", path)["clean"]
    assert cli("clean", run)["removed"] == []
    assert cli("describe", codes)["n_bits"] == 16
    (codes / "codes/c/0/0").put(b"damaged")
    assert not cli("verify", codes, code=4)["clean"]


def test_a_run_is_watched_and_cancelled_from_elsewhere(cli, s3, vectors, tmp_path):
    run, ends = s3 / "p/run", []

    def drive():
        try:
            bf.train(tmp_path / "x.zarr", run, "itq", n_bits=16, n_iter=2000)
        except Interrupted as stop:
            ends.append(stop)

    driver = threading.Thread(target=drive)
    driver.start()
    deadline = time.monotonic() + 60
    while not RunDirectory.exists(run) or (cli("status", run)["round"] or 0) < 2:
        assert driver.is_alive()
        assert time.monotonic() < deadline
    assert cli("status", run)["state"] == "running"
    assert cli("cancel", run)["asked"]
    driver.join(60)
    assert "cancel" in str(ends[0])
    watched = CliRunner().invoke(app, ["watch", str(run), "--json"])
    *events, last = [json.loads(line) for line in watched.stdout.splitlines()]
    assert (watched.exit_code, last["state"]) == (130, "interrupted")
    assert [event["round"] for event in events if event["kind"] == "round"] == list(
        range(1, last["round"] + 1)
    )


@pytest.mark.long
def test_a_job_file_of_addresses(cli, s3, vectors, tmp_path):
    data = cli("ingest", vectors, s3 / "x.zarr", "--labels", tmp_path / "y.npy")
    (tmp_path / "job.toml").write_text(
        f"""
        data.path = "{data["path"]}"
        method = {{ name = "lsh", n_bits = 16 }}
        run.path = "{s3}runs/lsh"
        cluster.scheduler = "serial"
        encode.path = "{s3}codes.zarr"
        evaluate = {{ metrics = ["map@10"], queries = "{data["path"]}" }}
        """
    )
    first = cli("run", tmp_path / "job.toml")
    assert first["report"] == f"{s3}runs/lsh/report.html"
    before = {item["path"]: item["e_tag"] for item in s3.walk() if not item["path"].endswith("report.html")}
    assert cli("run", tmp_path / "job.toml") == first
    after = {item["path"]: item["e_tag"] for item in s3.walk() if not item["path"].endswith("report.html")}
    new = {name for name in after if after[name] != before.get(name)}
    assert all("/events/" in name for name in new), new  # what is done is not done again


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("inspect", "s3://AKIA:hidden@bucket/x"), 2, "without credentials"),
        (("ingest", "x.npy", "gs://bucket/x"), 2, "s3://bucket/prefix"),
        (("inspect", "s3://no-such-bucket/x"), 2, "there is no such bucket"),
        (("stream", "incoming", "s3://no-such-bucket/stream", "--n-bits", "8"), 2, "there is no such bucket"),
        (("train", "x.zarr", "s3://no-such-bucket/run", *METHOD), 2, "there is no such bucket"),
    ],
    ids=["credentials", "scheme", "bucket", "stream", "run"],
)
def test_mistakes(cli, s3, vectors, words, code, message):
    (vectors.parent / "incoming").mkdir()
    shutil.copy(vectors, vectors.parent / "incoming" / "0.npy")
    found = cli(*words, code=code)
    assert message in found["error"]["message"]
    assert "hidden" not in json.dumps(found)
