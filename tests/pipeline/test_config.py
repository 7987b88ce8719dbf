"""Job files, method tables and the configuration that a run records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.pipeline.config import (
    RunConfig,
    build_method,
    load_job,
    method_names,
    method_table,
    parse_assignment,
)
from bitfleet.pipeline.errors import ConfigError
from bitfleet.tasks.methods.itq import ITQ

if TYPE_CHECKING:
    from pathlib import Path

JOB = """
[data]
path = "digits.zarr"

[method]
name = "itq"
n_bits = 16

[run]
path = "runs/itq"
seed = 3

[cluster]
scheduler = "local"
n_workers = 2
memory_limit = "2 GiB"

[encode]
path = "codes.zarr"

[evaluate]
metrics = ["map@1000", "recall@100"]
queries = "/elsewhere/queries.zarr"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_job_file_of_the_documentation(tmp_path: Path) -> None:
    job = load_job(write(tmp_path, JOB))
    assert job.build_method() == ITQ(n_bits=16)
    assert job.cluster.n_workers == 2
    assert job.run.seed == 3
    assert job.evaluate is not None
    assert job.evaluate.metrics == ("map@1000", "recall@100")


def test_relative_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    write(folder, JOB)
    monkeypatch.chdir(tmp_path)
    job = load_job("a folder/job.toml")
    assert job.data.path == str(folder / "digits.zarr")
    assert job.run.path == str(folder / "runs/itq")
    assert job.encode is not None
    assert job.encode.path == str(folder / "codes.zarr")
    assert job.evaluate is not None
    assert job.evaluate.queries == "/elsewhere/queries.zarr"


def test_only_three_tables_are_required(tmp_path: Path) -> None:
    text = '[data]\npath = "d"\n[method]\nname = "lsh"\n[run]\npath = "r"\n'
    job = load_job(write(tmp_path, text))
    assert (job.encode, job.evaluate, job.cluster.scheduler, job.run.fan_in) == (None, None, "local", 8)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("n_workers = 2", "n_worker = 2", r"unknown key cluster\.n_worker \(did you mean 'n_workers'\?\)"),
        ("[cluster]", "[clutser]", r"unknown key clutser \(did you mean 'cluster'\?\)"),
        ("n_bits = 16", "n_bit = 16", r"method 'itq' has no parameter 'n_bit' \(did you mean 'n_bits'\?\)"),
        ("n_bits = 16", 'n_bits = "16"', r"itq\.n_bits: .*valid integer.*got '16'"),
        ("n_bits = 16", "n_bits = true", r"itq\.n_bits: .*valid integer.*got True"),
        ("n_bits = 16", "n_bits = 0", r"method 'itq': .*n_bits"),
        ("seed = 3", "seed = -1", r"run\.seed: .*greater than or equal to 0, got -1"),
        ('name = "itq"', 'name = "os.system"', r"unknown method 'os\.system', expected one of"),
        ('name = "itq"', "", r'method: expected name = "\.\.\." in \[method\]'),
        ('scheduler = "local"', 'scheduler = "yarn"', r"cluster\.scheduler: expected .local., .serial., an"),
        ('path = "digits.zarr"', "", r"data\.path is required"),
        ("[data]", "[data", r"is not valid TOML"),
        ('"recall@100"]', '"recal@100"]', r"evaluate\.metrics: unknown metrics 'recal@100'; known are"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in JOB
    with pytest.raises(ConfigError, match=message):
        load_job(write(tmp_path, JOB.replace(old, new)))


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_job(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_job(tmp_path)


def test_overrides_replace_what_the_file_says(tmp_path: Path) -> None:
    job = load_job(write(tmp_path, JOB), {"evaluate.metrics": "map@10, recall@5", "evaluate.queries": "q"})
    assert job.evaluate is not None
    assert job.evaluate.metrics == ("map@10", "recall@5")
    job = load_job(write(tmp_path, JOB), {"method.n_bits": 8, "run.seed": 9, "evaluate.queries": "q"})
    assert job.build_method() == ITQ(n_bits=8)
    assert job.run.seed == 9
    with pytest.raises(ConfigError, match=r"unknown key run\.sede"):
        load_job(write(tmp_path, JOB), {"run.sede": 9})
    with pytest.raises(ConfigError, match="is a value, not a table"):
        load_job(write(tmp_path, JOB), {"run.seed.low": 9})


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("n_bits=64", ("n_bits", 64)),
        ("density = 0.5", ("density", 0.5)),
        ("center=false", ("center", False)),
        ("schedule=reset", ("schedule", "reset")),
        ("schedule='a=b'", ("schedule", "a=b")),
        ("n_components=none", ("n_components", None)),
        ('metrics=["a", "b"]', ("metrics", ["a", "b"])),
    ],
)
def test_assignments(text: str, pair: tuple[str, object]) -> None:
    assert parse_assignment(text) == pair


@pytest.mark.parametrize("text", ["n_bits", "=3", ""])
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(ConfigError, match="expected NAME=VALUE"):
        parse_assignment(text)


@pytest.mark.parametrize("name", method_names())
def test_a_method_survives_its_table(name: str) -> None:
    method = build_method(name, {})
    table = method_table(method)
    assert build_method(table.pop("name"), table) == method


def test_numpy_numbers_are_numbers() -> None:
    method = build_method("itq", {"n_bits": np.int64(8), "center": np.bool_(True)})
    assert method == ITQ(n_bits=8)
    assert type(method_table(method)["n_bits"]) is int


def run_config(**changes: object) -> RunConfig:
    values: dict = {
        "data": "data.zarr",
        "data_digest": "ab",
        "method": method_table(ITQ(n_bits=8)),
        "seed": 0,
        "block_rows": 4,
        "fan_in": 8,
    }
    return RunConfig(**(values | changes))


def test_a_run_configuration_survives_json() -> None:
    config = run_config(preprocess_on="x", cluster={"scheduler": "tcp://h:1"})
    again = RunConfig.from_json(config.to_json())
    assert again == config
    assert again.build_method() == ITQ(n_bits=8)


def test_where_it_computes_is_no_part_of_what_a_run_is() -> None:
    assert run_config(cluster={"scheduler": "tcp://h:1"}).identity() == run_config().identity()
    assert run_config(data="moved.zarr").identity() == run_config().identity()
    for change in ({"seed": 1}, {"fan_in": 2}, {"block_rows": 2}, {"data_digest": "cd"}):
        assert run_config(**change).identity() != run_config().identity()


def test_a_newer_run_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"config\.json: format_version"):
        RunConfig.from_json(run_config().to_json() | {"format_version": 2})


CLUSTER = '[cluster]\nscheduler = "local"\nn_workers = 2\nmemory_limit = "2 GiB"'
CLUSTERS = {
    "slurm": '[cluster]\nlauncher = "slurm"\nn_workers = 4\nmax_workers = 8\n[cluster.slurm]\nqueue = "long"',
    "ssh": '[cluster]\nlauncher = "ssh"\n[cluster.ssh]\nhosts = ["a", "b"]',
    "kubernetes": '[cluster]\nlauncher = "kubernetes"\n[cluster.kubernetes]\nimage = "i"\ninsecure = true',
    "tls://head:8786": '[cluster]\nlauncher = "address"\nscheduler = "tls://head:8786"',
    "local": '[cluster]\nlauncher = "local"\nmax_workers = 3',
}


@pytest.mark.parametrize("scheduler", CLUSTERS)
def test_a_launcher_is_remembered_by_the_run(tmp_path: Path, scheduler: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace(CLUSTER, CLUSTERS[scheduler]))
    table = load_job(path).cluster
    assert table.scheduler == scheduler
    kept = json.loads(json.dumps(run_config(cluster=table.model_dump()).to_json()))
    assert RunConfig.from_json(kept).cluster == table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('launcher = "yarn"', r"expected launcher to be one of local, serial, address, slurm"),
        ('launcher = "address"', r"launcher = \"address\" needs scheduler = \"tls://"),
        ('launcher = "slurm"\nscheduler = "local"', r"starts a scheduler of its own, not 'local'"),
        ('launcher = "ssh"', r"needs a table \[cluster\.ssh\]"),
        ('launcher = "slurm"\n[cluster.pbs]\nqueue = "q"', r"\[cluster\.pbs\] is for launcher = \"pbs\""),
        ('launcher = "slurm"\n[cluster.slurm]\nque = "q"', r"unknown key .*que \(did you mean 'queue'\?\)"),
        ("n_workers = 3\nmax_workers = 2", r"max_workers = 2 is less than n_workers = 3"),
        ("insecure = true", r"insecure are for a scheduler that is given by its address"),
        ('memory_limit = "lots"', r"cluster\.memory_limit: expected a size such as \"4 GiB\", got 'lots'"),
        ('memory_limit = "-4 GiB"', r"cluster\.memory_limit: expected a size"),
        ('memory_limit = "2000000 PiB"', r"cluster\.memory_limit: expected a size"),
        ('scheduler = "http://head:80"', r"cluster\.scheduler: expected an address such as .*, got http://…"),
        ('launcher = "kubernetes"\n[cluster.kubernetes]\nimage = "i"\nname = "A B"', r"kubernetes\.name: "),
        ('launcher = "kubernetes"\n[cluster.kubernetes]\nimage = "i"\nmount = "/m"', r"give claim = "),
        ("worker_timeout = inf", r"cluster\.worker_timeout: .*finite"),
        ('launcher = "ssh"\n[cluster.ssh]\nhosts = [""]', r"cluster\.ssh\.hosts\.0"),
        ('scheduler = "tls://head"', r"cluster\.scheduler: expected a host and a port alone"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_named(tmp_path: Path, table: str, message: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace(CLUSTER, f"[cluster]\n{table}"))
    with pytest.raises(ConfigError, match=message):
        load_job(path)


SECRETS = [
    'scheduler = "tls://ada:hushhush@head:8786"',
    'launcher = "kubernetes"\n[cluster.kubernetes]\nimage = "i"\nenv = {AWS_SECRET_ACCESS_KEY = "hushhush"}',
    'launcher = "slurm"\n[cluster.slurm]\nprologue = ["export DB_PASSWORD=hushhush"]',
    'launcher = "pbs"\n[cluster.pbs]\ndirectives = ["-v API_KEY=hushhush"]',
]


@pytest.mark.parametrize("table", SECRETS)
def test_what_a_run_would_keep_holds_no_credentials(tmp_path: Path, table: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace(CLUSTER, f"[cluster]\n{table}"))
    with pytest.raises(ConfigError, match=r"cluster\.") as caught:
        load_job(path)
    assert "hushhush" not in str(caught.value)


def test_variables_that_lead_to_credentials_are_none(tmp_path: Path) -> None:
    prologue = [
        "export AWS_SHARED_CREDENTIALS_FILE=~/.aws",
        'export DB_PASSWORD="$(cat ~/.password)"',
        "export TOKENIZERS_PARALLELISM=false",
        ". ~/.secrets",
    ]
    path = tmp_path / "job.toml"
    table = f'[cluster]\nlauncher = "slurm"\n[cluster.slurm]\nprologue = {json.dumps(prologue)}'
    path.write_text(JOB.replace(CLUSTER, table))
    assert load_job(path).cluster.slurm.prologue == tuple(prologue)  # type: ignore[union-attr]
