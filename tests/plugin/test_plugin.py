"""A method of somebody else's package: no file of ours knows it, and it is a method like any other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline.cli import app
from bitfleet.pipeline.methods_table import markdown_table
from bitfleet.tasks import registry
from typer.testing import CliRunner

PACKAGE = Path(__file__).parent / "package"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "add_a_method.md"
PARAMS: dict[str, Any] = {"n_bits": 6, "n_iter": 60}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the package and its entry point where Python looks, here and in processes that are started."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    there = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PACKAGE), *([there] if there else [])]))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    X = np.random.default_rng(0).normal(size=(640, 20)) * np.linspace(4, 1, 20) + 3
    with bf.DatasetWriter(tmp_path / "data.zarr", n_features=20, dtype="float64") as writer:
        writer.append(X)
    return tmp_path / "data.zarr"


def called(*words: object) -> Any:
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_it_trains_resumes_encodes_and_is_found(installed: None, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", data, run, "--method", "power_hash", "--n-bits", "6", "--set", "n_iter=60"]
    command = [sys.executable, "-m", "bitfleet.pipeline.cli", *map(str, words), "--block-rows", "64"]
    driver = subprocess.Popen([*command, "--scheduler", "serial"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(6000):
            if len(list((run / "manifests").glob("*.json"))) > 4 or driver.poll() is not None:
                break
            time.sleep(0.005)
    finally:
        driver.kill()
        driver.wait()
    killed_after = len(list((run / "manifests").glob("*.json"))) - 1
    assert 0 < killed_after < 61
    resumed = called("resume", run)
    assert resumed["round"] == 61
    undisturbed = bf.train(data, tmp_path / "other", "power_hash", block_rows=64, **PARAMS)
    assert resumed["digest"] == undisturbed.digest
    called("encode", run, data, tmp_path / "codes.zarr")
    codes = bf.open_codes(tmp_path / "codes.zarr").rows(0, 640)
    assert np.array_equal(codes, undisturbed.encode(bf.open_dataset(data).rows(0, 640)))
    metrics = called("evaluate", run, data, data, "--metrics", "recall10@100")["metrics"]
    assert 0.15 < metrics[0]["value"] <= 1
    called("export", run, tmp_path / "card.md")
    assert (tmp_path / "card.md").read_text("utf-8").startswith("# PowerHash, 6 bits")


def test_it_learns_what_it_says(installed: None, data: Path, tmp_path: Path) -> None:
    """The directions span what the covariance's leading eigenvectors span."""
    model = bf.train(data, tmp_path / "run", "power_hash", block_rows=100, **PARAMS)
    X = bf.open_dataset(data).rows(0, 640)
    _, vectors = np.linalg.eigh(np.cov(X.T))
    angles = np.linalg.svd(vectors[:, -6:].T @ model.state.arrays["weights"], compute_uv=False)
    np.testing.assert_allclose(angles, 1, atol=1e-3)


@pytest.mark.long
def test_workers_know_it(installed: None, data: Path, tmp_path: Path) -> None:
    alone = bf.train(data, tmp_path / "alone", "power_hash", block_rows=64, n_bits=6, n_iter=3)
    table = {"scheduler": "local", "n_workers": 2}
    there = bf.train(data, tmp_path / "there", "power_hash", block_rows=64, n_bits=6, n_iter=3, **table)
    assert there.digest == alone.digest


def test_the_command_line_and_the_table_name_it(installed: None, tmp_path: Path) -> None:
    rows = {row["name"]: row for row in called("methods")["methods"]}
    assert rows["power_hash"]["package"] == "bitfleet_power"
    assert rows["power_hash"]["parameters"]["n_iter"] == 10
    assert set(registry.METHODS) < set(rows)
    assert "n_iter : int, default 10" in called("methods", "power_hash")["description"]
    assert "| `power_hash` | `PowerHash` | dense | `n_bits=16`" in markdown_table()
    wrong = CliRunner().invoke(app, ["methods", "power_hush"])
    assert wrong.exit_code == 2
    assert "did you mean 'power_hash'?" in wrong.output
    job = '[data]\npath = "data.zarr"\n[method]\nname = "power_hash"\nn_its = 3\n[run]\npath = "r"\n'
    (tmp_path / "job.toml").write_text(job)
    refused = CliRunner().invoke(app, ["run", str(tmp_path / "job.toml")])
    assert refused.exit_code == 2
    assert "n_its" in refused.output


def test_a_package_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "bad-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[bitfleet.methods]\nbad = no_such_module:Bad\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (row,) = [row for row in called("methods")["methods"] if row["name"] == "bad"]
    assert "cannot be imported" in row["error"]
    assert "cannot be imported" in markdown_table()


def test_without_the_package_its_models_say_what_is_missing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as there:
        there.syspath_prepend(str(PACKAGE))
        bf.train(data, tmp_path / "run", "power_hash", n_bits=6, n_iter=1).save(tmp_path / "model")
    with pytest.raises(bf.ConfigError, match="unknown method 'power_hash'"):
        bf.load(tmp_path / "model")


def test_the_page_shows_this_package() -> None:
    blocks = dict(re.findall(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S))
    assert blocks["bitfleet_power.py"] == (PACKAGE / "bitfleet_power.py").read_text("utf-8")
    points = (PACKAGE / "bitfleet_power-0.1.dist-info" / "entry_points.txt").read_text("utf-8")
    name, value = points.splitlines()[1].split(" = ")
    assert f'[project.entry-points."bitfleet.methods"]\n{name} = "{value}"\n' in blocks["pyproject.toml"]
