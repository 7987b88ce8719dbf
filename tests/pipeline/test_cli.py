"""The command line as a shell sees it: exit codes, one JSON result, one readable line for an error."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline import train as loop
from bitfleet.pipeline.cli import app
from bitfleet.pipeline.config import build_method
from bitfleet.pipeline.errors import ConfigError
from bitfleet.pipeline.model import Model
from bitfleet.storage.memory import MemoryCheckpoints
from bitfleet.storage.run import RunDirectory
from bitfleet.tasks.kernels import _numba
from bitfleet.tasks.protocols import DataInfo, LeafPlan
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path

VERBS = [
    "ingest", "train", "resume", "encode", "fit-decoder", "index", "search", "describe", "evaluate",
    "distortion", "sweep", "plan", "export", "methods",
    "stream", "run", "submit", "status", "watch", "cancel", "inspect", "verify", "clean", "report", "demo",
]  # fmt: skip
TRAIN = ["--method", "itq", "--n-bits", "8", "--set", "n_iter=3", "--scheduler", "serial"]


class Result:
    """What one call of the command line left behind."""

    def __init__(self, arguments: list[Any]) -> None:
        done = CliRunner().invoke(app, [str(a) for a in arguments])
        self.code, self.stdout, self.stderr = done.exit_code, done.stdout, done.stderr

    @property
    def json(self) -> Any:
        """The one JSON value on standard output."""
        return json.loads(self.stdout)


def cli(*arguments: Any, code: int = 0) -> Result:
    result = Result(list(arguments))
    assert result.code == code, result.stderr
    return result


@pytest.fixture
def data(tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]) -> Path:
    """A folder with x.zarr (500 rows with labels) and q.zarr (100 more)."""
    vectors, labels = blobs
    np.savez(tmp_path / "x.npz", vectors=vectors[:500], labels=labels[:500])
    np.savez(tmp_path / "q.npz", vectors=vectors[500:], labels=labels[500:])
    for name in ("x", "q"):
        bf.ingest(tmp_path / f"{name}.npz", tmp_path / f"{name}.zarr")
    return tmp_path


def test_the_whole_way(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    ingested = cli("ingest", data / "x.npz", data / "again.zarr", "--json").json
    assert (ingested["rows"], ingested["features"], ingested["labels"]) == (500, 24, True)
    trained = cli("train", data / "x.zarr", data / "run", *TRAIN, "--json").json
    assert trained["digest"] == bf.load(data / "run").digest
    again = cli("resume", data / "run", "--json").json
    assert again == trained
    encoded = cli("encode", data / "run", data / "x.zarr", data / "c.zarr", "--json").json
    assert encoded["model"] == trained["digest"]
    np.testing.assert_array_equal(
        bf.open_codes(data / "c.zarr").rows(0, 500), bf.load(data / "run").encode(data / "x.zarr")
    )
    measured = cli(
        "evaluate", data / "run", data / "x.zarr", data / "q.zarr", "--codes", data / "c.zarr",
        "--metrics", "map@100,recall10@100", "--json",
    ).json  # fmt: skip
    values = {entry["name"]: entry["value"] for entry in measured["metrics"]}
    expected = bf.evaluate(data / "run", data / "x.zarr", data / "q.zarr", ["map@100", "recall10@100"])
    assert values == pytest.approx(dict(zip(values, expected["value"].values.tolist(), strict=True)))
    assert (data / "run" / "results.json").exists()
    (data / "run" / "results.json").unlink()
    (data / "run" / "results.json").mkdir()  # nothing can be written there: the measurement is not lost
    repeated = cli(
        "evaluate", data / "run", data / "x.zarr", data / "q.zarr", "--metrics", "map@100", "--json"
    )
    assert repeated.json["metrics"][0]["value"] == values["map@100"]
    assert "does not keep this evaluation" in caplog.text
    (data / "run" / "results.json").rmdir()
    better = cli(
        "evaluate", data / "run", data / "x.zarr", data / "q.zarr", "--metrics", "recall10@10", "--json",
        "--asymmetric", "--rescore", "3", "--metric", "cosine",
    ).json  # fmt: skip
    same = bf.evaluate(
        data / "run", data / "x.zarr", data / "q.zarr", "recall10@10", asymmetric=True, rescore=3,
        distance="cosine",
    )  # fmt: skip
    assert better["metrics"][0]["value"] == float(same["value"][0])
    assert (better["asymmetric"], better["rescore"], better["true_neighbors"]) == (True, 3, "cosine distance")
    assert cli("report", data / "run", "--json").json["report"].endswith("report.html")
    cli("train", data / "x.zarr", data / "other", *(text.replace("8", "4") for text in TRAIN))
    cli("report", data / "run", "--beside", data / "other", "--dest", data / "both.html")
    assert {"ITQ, 8 bits", "ITQ, 4 bits"} <= set(re.findall(r"ITQ, . bits", (data / "both.html").read_text()))
    status = cli("status", data / "run", "--json").json
    assert (status["state"], status["round"], status["rounds"]) == ("finished", 4, 4)
    assert set(status["metrics"]) == {"loss", "loss_codes"}
    for path, kind in [
        ("run", "run"),
        ("run/model.zarr", "model"),
        ("x.zarr", "dataset"),
        ("c.zarr", "codes"),
    ]:
        assert cli("inspect", data / path, "--json").json["kind"] == kind
        assert cli("verify", data / path, "--json").json == {
            "path": str(data / path), "clean": True, "problems": [],
        }  # fmt: skip
    assert cli("clean", data / "run", "--grace", 0, "--json").json["removed"] == []


def test_people_read_standard_error(data: Path) -> None:
    result = cli("train", data / "x.zarr", data / "run", *TRAIN)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0] == "itq: 500 rows of 24 features in 1 block"
    assert re.fullmatch(r"round 2/4  loss [\d.]+  [\d.]+ s", lines[2])
    assert cli("train", data / "x.zarr", data / "other", *TRAIN, "--quiet").stderr == ""


def test_who_computes_for_the_first_time_is_told_why_it_waits(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    monkeypatch.setattr(_numba, "cache_folder", lambda: kernels)
    told = "the first use on this machine: kernels are compiled"
    assert told in cli("train", data / "x.zarr", data / "a", *TRAIN).stderr
    assert told not in cli("train", data / "x.zarr", data / "b", *TRAIN, "--quiet").stderr
    (kernels / "some").mkdir()
    (kernels / "some" / "kernel.nbi").touch()
    assert told not in cli("train", data / "x.zarr", data / "c", *TRAIN).stderr


def test_a_dry_run_writes_nothing(data: Path) -> None:
    plan = cli(
        "train", data / "x.zarr", data / "run", *TRAIN, "--block-rows", 100, "--dry-run", "--json"
    ).json
    assert (plan["rounds"], plan["blocks"], plan["block_bytes"]) == (4, 5, 100 * 24 * 4)
    assert not (data / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "x.zarr", "run", "--method", "ithq"], 2, r"unknown method 'ithq'.* did you mean 'itq'\?"),
        (["train", "x.zarr", "run", "--method", "itq", "--set", "iter=3"], 2, "no parameter 'iter'"),
        (
            ["train", "x.zarr", "run", "--method", "itq", "--set", "n_iter"],
            2,
            "expected NAME=VALUE, such as",
        ),
        (["train", "x.zarr", "run", "--method", "itq", "--scheduler", "yarn"], 2, "expected .local."),
        (["train", "x.zarr", "run", "--method", "itq", "--scheduler", ""], 2, "expected .local."),
        (["train", "x.npz", "run", "--method", "itq"], 3, "expected a data set, this is a file"),
        (
            ["train", "x.zarr", "x.npz/run", "--method", "itq", "--scheduler", "serial"],
            2,
            "not a directory; c",
        ),
        (
            ["train", "x.zarr", "a" * 300, "--method", "itq", "--scheduler", "serial"],
            2,
            "name too long; choose",
        ),
        (["ingest", "none.npy", "new.zarr"], 3, "none.npy"),
        (["ingest", "x.npz"], 2, "expected SRC… DEST"),
        (["ingest", "x.npz", "x.zarr"], 2, "x.zarr exists"),
        (["resume", "x.zarr"], 2, "there is no run at"),
        (["status", "none"], 2, "there is no run at"),
        (["encode", "none", "x.zarr", "c.zarr"], 2, "expected a model or a run"),
        (["inspect", "none"], 2, "there is nothing at none"),
        (["inspect", "x.npz"], 2, "is no run, model, data set or codes"),
        (["run", "none.toml"], 2, "expected a job file"),
    ],
)
def test_mistakes(
    arguments: list[str], code: int, message: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    result = cli(*arguments, "--json", code=code)
    assert re.search(message, result.stderr)
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("bitfleet: ")
    assert result.json["error"]["exit_code"] == code
    assert cli(*arguments, code=code).stdout == ""


def test_nan_is_refused_with_3(tmp_path: Path) -> None:
    rows = np.zeros((10, 3), np.float32)
    rows[7, 1] = np.nan
    np.save(tmp_path / "x.npy", rows)
    result = cli("ingest", tmp_path / "x.npy", tmp_path / "x.zarr", code=3)
    assert "7" in result.stderr
    dropped = cli("ingest", tmp_path / "x.npy", tmp_path / "x.zarr", "--nonfinite", "drop", "--json").json
    assert dropped["rows"] == 9


def test_conflict_and_damage_are_4(data: Path) -> None:
    cli("train", data / "x.zarr", data / "run", *TRAIN)
    other = cli("train", data / "x.zarr", data / "run", *TRAIN, "--seed", 1, code=4)
    assert "seed: stored 0, given 1" in other.stderr
    chunk = next(
        p
        for p in (data / "run" / "model.zarr" / "weights").rglob("*")
        if p.name != "zarr.json" and p.is_file()
    )
    chunk.write_bytes(chunk.read_bytes()[:-3])
    result = cli("verify", data / "run", "--json", code=4)
    assert result.json["clean"] is False
    assert len(result.json["problems"]) == 1
    cli("encode", data / "run", data / "x.zarr", data / "c.zarr", code=4)
    (data / "x.zarr" / "zarr.json").unlink()
    assert cli("verify", data / "x.zarr", "--json", code=4).json["clean"] is False


def test_a_lost_cluster_is_5(data: Path) -> None:
    import dask
    import distributed  # noqa: F401  (its defaults must be there before they are overridden)

    with dask.config.set({"distributed.comm.timeouts.connect": "1 s"}):
        result = cli(
            "train", data / "x.zarr", data / "run", *TRAIN[:6], "--scheduler", "tcp://127.0.0.1:9", code=5
        )
    assert "tcp://127.0.0.1:9" in result.stderr


def test_unforeseen_errors_are_1_and_debug_shows_where(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bitfleet.pipeline import inspection

    def broken(path: Path) -> None:
        raise ZeroDivisionError("one over none")

    monkeypatch.setattr(inspection, "inspect_path", broken)
    plain = cli("inspect", data, code=1)
    assert plain.stderr == "bitfleet: ZeroDivisionError: one over none (--debug shows where)\n"
    assert "Traceback" in cli("inspect", data, "--debug", code=1).stderr


def test_clean_tells_what_it_would_remove(data: Path) -> None:
    cli("train", data / "x.zarr", data / "run", *TRAIN)
    debris = data / "run" / "objects" / ("00000009-" + "0" * 32)
    debris.mkdir()
    for flags, left in ((["--dry-run"], True), ([], False)):
        result = cli("clean", data / "run", "--grace", 0, *flags, "--json").json
        assert result["removed"] == [f"objects/{debris.name}"]
        assert debris.exists() is left


def test_a_run_is_watched_to_its_end(data: Path) -> None:
    run = data / "watched"
    cli("train", data / "x.zarr", run, *TRAIN)
    watched = cli("watch", run, "--json")
    lines = [json.loads(line) for line in watched.stdout.splitlines()]
    assert watched.code == 0
    assert [line["kind"] for line in lines[:2]] == ["run_started", "training"]
    assert [line["round"] for line in lines if line.get("kind") == "round"] == [1, 2, 3, 4]
    assert (lines[-1]["state"], lines[-1]["round"]) == ("finished", 4)
    shown = cli("watch", run).stderr
    assert "round 4/4" in shown
    assert "finished after round 4" in shown
    nobody = cli("cancel", run, "--json")
    assert nobody.json == {"path": str(run), "asked": False, "state": "finished"}
    assert "no driver is at work" in nobody.stderr


def test_how_a_run_ended_is_what_watching_it_ends_with(data: Path) -> None:
    run = data / "ended"
    cli("train", data / "x.zarr", run, *TRAIN)
    for kind, fields, code in [
        ("run_failed", {"error": "out of space", "exit_code": 2}, 2),
        ("run_interrupted", {"reason": "asked"}, 130),
    ]:
        RunDirectory.open(run).events().append(kind, **fields)
        cli("watch", run, code=code)
    cli("submit", data / "nowhere.toml", code=2)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_an_example(verb: str) -> None:
    result = cli(verb, "--help")
    text = " ".join(result.stdout.split())
    assert f"Example: bitfleet {verb} " in text
    for flag in ("--json", "--quiet", "--debug"):
        assert flag in text


def test_the_verbs_are_these() -> None:
    names = [command.name for command in app.registered_commands]
    assert sorted(names) == sorted(VERBS)
    assert cli("--version").stdout.strip() == f"bitfleet {bf.__version__}"


JOB = """
[data]
path = "x.zarr"
[method]
name = "itq"
n_bits = 8
n_iter = 3
[run]
path = "runs/a"
[cluster]
scheduler = "serial"
[encode]
path = "codes.zarr"
[evaluate]
queries = "q.zarr"
metrics = ["map@100", "recall10@100"]
"""


def test_a_job_file_is_a_whole_run(data: Path) -> None:
    (data / "job.toml").write_text(JOB)
    first = cli("run", data / "job.toml", "--json").json
    assert first["model"] == bf.load(data / "runs" / "a").digest
    assert first["codes"] == bf.open_codes(data / "codes.zarr").digest
    assert set(first["metrics"]) == {"map@100", "recall10@100"}
    assert (data / "runs" / "a" / "report.html").exists()
    assert cli("run", data / "job.toml", "--json").json == first
    other = ["--set", "evaluate.asymmetric=true", "--set", "evaluate.rescore=2"]
    found = cli("run", data / "job.toml", "--json", *other).json["metrics"]
    assert found["recall10@100"] > first["metrics"]["recall10@100"]
    both = ["--set", "evaluate.refine=2", "--set", "evaluate.rescore=2"]
    assert "got both" in cli("run", data / "job.toml", *both, code=2).stderr
    assert cli("run", data / "job.toml", "--json").json == first
    assert cli("report", data / "runs" / "a", "--json").json["report"] == first["report"]
    cli("run", data / "job.toml", "--set", "method.n_bits=9", code=4)
    changed = ["--set", "method.n_bits=9", "--set", "run.path=runs/b"]
    assert "codes of another model" in cli("run", data / "job.toml", *changed, code=2).stderr


KILLED = """
import os, signal, sys
import bitfleet as bf
from bitfleet.storage.dataset_writer import DatasetWriter
from bitfleet.storage.codes_writer import CodesWriter
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
DatasetWriter.close = CodesWriter.write = die
"""


@pytest.mark.long
def test_what_a_kill_left_does_not_stand_in_the_way(data: Path) -> None:
    (data / "job.toml").write_text(JOB)
    ingest = ("ingest", data / "x.npz", data / "new.zarr", "--json")
    for arguments in (ingest, ("run", data / "job.toml")):
        script = KILLED + "from bitfleet.pipeline.cli import app; app(sys.argv[1:])"
        command = [sys.executable, "-c", script, *map(str, arguments)]
        assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    with pytest.raises(bf.CorruptObject, match="unfinished"):
        bf.open_codes(data / "codes.zarr")
    assert cli(*ingest).json["digest"] == bf.open_dataset(data / "x.zarr").digest
    done = cli("run", data / "job.toml", "--json").json
    assert done["codes"] == bf.encode(data / "runs" / "a", data / "x.zarr", data / "again.zarr").digest
    assert [p.name for p in data.iterdir() if p.name.startswith(".")] == []


@pytest.mark.long  # the next test has local workers, too
def test_a_job_on_a_cluster_gives_the_same(data: Path) -> None:
    (data / "job.toml").write_text(JOB)
    serial = cli("run", data / "job.toml", "--json").json
    local = cli(
        "run", data / "job.toml", "--set", "cluster.scheduler=local", "--set", "cluster.n_workers=2",
        "--set", "run.path=runs/b", "--set", "encode.path=codes-b.zarr", "--json",
    ).json  # fmt: skip
    for key in ("model", "codes", "metrics"):
        assert local[key] == serial[key]


@pytest.mark.parametrize("where", [["--scheduler", "serial"], ["--workers", "2"]], ids=["serial", "local"])
def test_ctrl_c_ends_after_a_round_and_resume_goes_on(where: list[str], data: Path) -> None:
    command = [sys.executable, "-m", "bitfleet.pipeline.cli"]
    options = ["--method", "itq", "--n-bits", "8", "--set", "n_iter=25", "--block-rows", "100"]
    driver = subprocess.Popen(
        [*command, "train", "x.zarr", "run", *options, *where],
        cwd=data,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert driver.stderr is not None
    seen = []
    for line in driver.stderr:
        seen.append(line)
        if line.startswith("round 2/"):
            os.killpg(driver.pid, signal.SIGINT)  # as a terminal does: to every process of the job
    text = "".join(seen)
    assert driver.wait(60) == 130, text
    assert "Traceback" not in text
    stopped = re.search(r"stopped after round (\d+); go on with: bitfleet resume (.*)", text)
    assert stopped is not None, text
    assert stopped.group(2) == str(data / "run")
    assert cli("status", data / "run", "--json").json["state"] == "interrupted"
    resumed = cli("resume", data / "run", "--scheduler", "serial", "--json").json
    assert int(stopped.group(1)) < resumed["round"] == 26
    reader = bf.open_dataset(data / "x.zarr").reader()
    method = build_method("itq", {"n_bits": 8, "n_iter": 25})
    state = loop.train(method, reader, SerialExecutor(), MemoryCheckpoints(), LeafPlan(500, 100, 8), 0)
    assert resumed["digest"] == Model(method, state, DataInfo(500, 24)).digest


def test_configuration_errors_are_value_errors() -> None:
    assert issubclass(ConfigError, ValueError)


def test_distortion_prints_the_constant_the_critical_bits_and_warnings(data: Path) -> None:
    cli("train", data / "x.zarr", data / "run", *TRAIN)
    cli("encode", data / "run", data / "x.zarr", data / "codes.zarr")
    given = (data / "codes.zarr", data / "x.zarr")
    found = bf.max_distortion(*given, "affine")
    done = cli("distortion", *given, "--fit", "affine", "--checkpoint", data / "pass", "--json")
    assert done.json == found.summary()
    assert cli("status", data / "pass", "--json").json["state"] == "finished"
    shown = cli("distortion", *given)
    assert "constant_T" in shown.stderr
    assert "critical_bits" in shown.stderr
    for warning in found.refit("scale").warnings:
        assert warning in " ".join(shown.stderr.split())
    assert cli("distortion", *given, "--fit", "linear", code=2).stderr.startswith("bitfleet: expected fit")


@pytest.mark.parametrize(
    ("line", "expected"), [("bitfleet exp", "export"), ("bitfleet train --n-b", "--n-bits")]
)
def test_a_shell_completes_verbs_and_options(line: str, expected: str) -> None:
    asked = {"_BITFLEET_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = CliRunner().invoke(app, env=asked, prog_name="bitfleet")
    assert done.stdout.split() == [expected]
