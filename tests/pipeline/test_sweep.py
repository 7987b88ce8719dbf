"""Sweeps: the numbers of single runs, each cell once, whatever happens in between."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import bitfleet as bf
import numpy as np
import pytest
import xarray
from bitfleet.pipeline import sweep as sweep_module
from bitfleet.pipeline.cli import app
from bitfleet.pipeline.digits import load_digits
from bitfleet.pipeline.errors import ConfigError
from bitfleet.pipeline.sweep_result import pareto, recommend
from bitfleet.storage.errors import DestinationExists
from bitfleet.storage.events import Heartbeat
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path

METRICS = ["recall10@100", "map@100"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """900 digits to search and 60 to ask for, as data sets."""
    folder = tmp_path_factory.mktemp("sweep")
    images, labels = load_digits()
    for name, rows in (("digits", slice(0, 900)), ("queries", slice(900, 960))):
        np.savez(folder / f"{name}.npz", X=images[rows, ::7], y=labels[rows])
        bf.ingest(folder / f"{name}.npz", folder / f"{name}.zarr")
    return folder


def plan(folder: Path, out: Path | str, methods=None, **table) -> dict:
    return {
        "sweep": {"path": str(out), "n_bits": [8, 16], "seeds": [0, 1], "metrics": METRICS, **table},
        "data": [
            {"name": "digits", "path": str(folder / "digits.zarr"), "queries": str(folder / "queries.zarr")}
        ],
        "method": methods or [{"name": "lsh"}, {"name": "itq", "n_iter": 5, "label": "ITQ, short"}],
    }


@pytest.fixture(scope="module")
def done(folder, tmp_path_factory) -> tuple[Path, xarray.Dataset]:
    path = tmp_path_factory.mktemp("done") / "sweep"
    return path, bf.sweep(plan(folder, path))


def test_a_cell_is_what_a_run_of_its_own_gives(folder, done, tmp_path):
    _path, table = done
    model = bf.train(folder / "digits.zarr", tmp_path / "run", "itq", n_bits=16, n_iter=5, seed=1)
    alone = bf.evaluate(model, folder / "digits.zarr", folder / "queries.zarr", METRICS, seed=1)
    cell = table.sel({"data": "digits", "method": "ITQ, short", "n_bits": 16, "seed": 1})
    for metric in METRICS:
        assert float(cell[metric]) == float(alone["value"].sel(metric=metric))
        assert float(cell[f"{metric}_standard_error"]) == float(alone["standard_error"].sel(metric=metric))
        assert table[metric].attrs["definition"] == alone.attrs[metric]
    assert float(cell["bytes_per_vector"]) == 2
    assert float(cell["encode_microseconds"]) > 0
    assert np.isfinite(table[METRICS[0]].values).all()


def test_the_table_is_kept_and_opens_with_xarray(done):
    path, table = done
    kept = xarray.open_zarr(path / "result.zarr")
    xarray.testing.assert_identical(kept.load(), table)
    assert kept["encode_microseconds"].attrs["units"] == "us"
    assert list(kept["method"].values) == ["lsh", "ITQ, short"]


def test_what_is_done_is_not_done_again(folder, done, monkeypatch):
    path, table = done
    computed = []
    original = sweep_module.compute_cell

    def counted(cell, place):
        computed.append(cell.name)
        return original(cell, place)

    monkeypatch.setattr(sweep_module, "compute_cell", counted)
    xarray.testing.assert_identical(bf.sweep(plan(folder, path)), table)
    assert computed == []
    more = [{"name": "lsh"}, {"name": "itq", "n_iter": 5}, {"name": "fruit_fly", "n_bits": 64, "n_active": 4}]
    grown = bf.sweep(plan(folder, path, more))
    assert computed == ["fruit_fly, 64 bits, seed 0, digits", "fruit_fly, 64 bits, seed 1, digits"]
    assert grown.sizes == {"data": 1, "method": 3, "n_bits": 3, "seed": 2}
    assert np.isnan(grown["map@100"].sel({"method": "lsh", "n_bits": 64})).all()
    sparse = grown.sel({"data": "digits", "method": "fruit_fly", "n_bits": 64, "seed": 0})
    assert float(sparse["bytes_per_vector"]) == 3  # 4 numbers of 6 bits
    bf.sweep(plan(folder, path))  # leaves the table of the first sweep there


def test_workers_give_the_same_numbers(folder, done, clusters, tmp_path):
    _path, table = done
    again = bf.sweep(plan(folder, tmp_path / "sweep"), scheduler=clusters(2))
    for metric in METRICS:
        np.testing.assert_array_equal(again[metric].values, table[metric].values)


def test_killed_twice_no_cell_is_computed_twice(folder, done, tmp_path):
    _path, table = done
    job = tmp_path / "sweep.toml"
    job.write_text(
        f'[sweep]\npath = "out"\nn_bits = [8, 16]\nseeds = [0, 1]\nmetrics = {json.dumps(METRICS)}\n'
        f'[[data]]\nname = "digits"\npath = "{folder}/digits.zarr"\nqueries = "{folder}/queries.zarr"\n'
        '[[method]]\nname = "lsh"\n[[method]]\nname = "itq"\nn_iter = 5\nlabel = "ITQ, short"\n'
    )
    cells = tmp_path / "out/cells"
    kept: dict[str, int] = {}
    for least in (1, 4):
        process = subprocess.Popen(
            [sys.executable, "-m", "bitfleet.pipeline.cli", "sweep", str(job), "--quiet"]
        )
        deadline = time.monotonic() + 60
        while len(list(cells.glob("*.json"))) < least:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = {path.name: path.stat().st_mtime_ns for path in cells.glob("*.json")}
        assert kept.items() <= now.items()
        kept = now
    assert len(kept) < 8
    result = bf.sweep(job)
    assert kept.items() <= {path.name: path.stat().st_mtime_ns for path in cells.glob("*.json")}.items()
    for metric in METRICS:
        np.testing.assert_array_equal(result[metric].values, table[metric].values)
    assert not any((tmp_path / "out/work").iterdir())


def test_a_damaged_record_is_computed_again(folder, tmp_path):
    small = plan(folder, tmp_path / "s", [{"name": "lsh", "n_bits": 8}], seeds=[0])
    first = bf.sweep(small)
    (record,) = (tmp_path / "s/cells").iterdir()
    record.write_text(record.read_text().replace('"value": 0.', '"value": 1.'))
    again = bf.sweep(small)
    np.testing.assert_array_equal(again["map@100"].values, first["map@100"].values)
    assert {path.suffix for path in (tmp_path / "s/cells").iterdir()} == {".json", ".damaged"}


def test_a_cell_that_cannot_be_computed_is_named_and_stops_no_other(folder, tmp_path):
    methods = [
        {"name": "posh", "n_bits": 32, "n_active": 2, "n_components": 100},
        {"name": "lsh", "n_bits": 8},
    ]
    table = bf.sweep(plan(folder, tmp_path / "s", methods, seeds=[0]))
    (failure,) = table.attrs["failed"]
    assert failure.startswith("posh, 32 bits, seed 0, digits: posh cannot be trained on this data")
    assert np.isfinite(float(table["map@100"].sel({"method": "lsh", "n_bits": 8, "seed": 0}).squeeze()))
    assert "Could not be computed" in (tmp_path / "s/report.html").read_text()


def test_the_command_says_by_its_exit_code_that_a_cell_failed(folder, tmp_path):
    job = tmp_path / "sweep.toml"
    for params, code in (("", 0), ("n_components = 500\n", 1)):
        job.write_text(
            f"""
            sweep = {{ path = "out", n_bits = [32] }}
            data = [{{ name = "digits", path = "{folder}/digits.zarr", queries = "{folder}/queries.zarr" }}]
            [[method]]
            name = "posh"
            n_active = 2
            n_epochs = 1
            {params}
            """
        )
        result = CliRunner().invoke(app, ["sweep", str(job), "--json"])
        assert result.exit_code == code, result.output
        assert len(json.loads(result.stdout)["failed"]) == code


def test_nothing_but_a_table_of_a_sweep_is_replaced(folder, tmp_path):
    small = plan(folder, tmp_path / "s", [{"name": "lsh", "n_bits": 8}], seeds=[0])
    mine = tmp_path / "s/result.zarr"
    shutil.copytree(folder / "queries.zarr", mine)
    before = {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()}
    with pytest.raises(DestinationExists, match="not the table of a sweep"):
        bf.sweep(small)
    assert {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()} == before
    assert os.listdir(tmp_path / "s") == ["result.zarr"]  # and it is said before anything is computed
    mine.rename(tmp_path / "mine.zarr")
    (tmp_path / "s/.tmp-new-result.zarr").mkdir()  # of one that was killed while it wrote
    xarray.testing.assert_identical(bf.sweep(small).load(), xarray.open_zarr(mine).load())
    xarray.testing.assert_identical(bf.sweep(small).load(), xarray.open_zarr(mine).load())
    assert sorted(os.listdir(tmp_path / "s")) == ["cells", "report.html", "result.zarr", "work"]


def test_what_two_names_share_is_computed_once(folder, clusters, tmp_path):
    small = plan(folder, tmp_path / "s", [{"name": "itq", "n_bits": 8, "n_iter": 5}], seeds=[0])
    small["data"].append({**small["data"][0], "name": "the same"})
    said: list[str] = []
    table = bf.sweep(small, scheduler=clusters(2), note=said.append)
    assert table.attrs["failed"] == []
    assert table.attrs["n_cells"] == table.attrs["n_done"] == 2
    assert np.isfinite(table["map@100"].values).all()
    assert sum(text.startswith("1/1 ") for text in said) == 1
    small["method"] = [{"name": "posh", "n_bits": 32, "n_active": 2, "n_components": 100}]
    assert len(bf.sweep(small).attrs["failed"]) == 2


def test_a_second_process_is_turned_away(folder, tmp_path):
    small = plan(folder, tmp_path / "s", [{"name": "lsh", "n_bits": 8}], seeds=[0])
    (tmp_path / "s").mkdir()
    with Heartbeat(tmp_path / "s"), pytest.raises(ConfigError, match="another sweep computes in"):
        bf.sweep(small)
    assert os.listdir(tmp_path / "s") == []
    assert bf.sweep(small).attrs["n_done"] == 1


def test_no_cell_is_kept_of_data_that_changed_under_the_sweep(folder, tmp_path):
    shutil.copytree(folder / "digits.zarr", tmp_path / "digits.zarr")
    small = plan(folder, tmp_path / "s", [{"name": "lsh", "n_bits": [8, 16]}], seeds=[0])
    small["data"][0]["path"] = str(tmp_path / "digits.zarr")

    def swapped() -> bool:  # between two cells
        shutil.rmtree(tmp_path / "digits.zarr")
        shutil.copytree(folder / "queries.zarr", tmp_path / "digits.zarr")
        return False

    (failure,) = bf.sweep(small, should_stop=swapped).attrs["failed"]
    assert "digits.zarr has changed since the sweep began" in failure
    assert len(os.listdir(tmp_path / "s/cells")) == 1


def test_a_method_that_fits_in_no_memory_stops_no_other(folder, tmp_path):
    methods = [{"name": "lsh", "n_bits": 2**40}, {"name": "itq", "n_bits": 8, "n_iter": 2}]
    table = bf.sweep(plan(folder, tmp_path / "s", methods, seeds=[0]))
    (failure,) = table.attrs["failed"]
    assert "Unable to allocate" in failure
    assert table.attrs["n_done"] == 1


def test_data_that_do_not_fit_are_refused_before_anything_is_trained(folder, tmp_path):
    rng = np.random.default_rng(0)
    for name, n_features in (("bare", 112), ("narrow", 3)):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(20, n_features)))
        bf.ingest(tmp_path / f"{name}.npy", tmp_path / f"{name}.zarr")
    for name, message in (("bare", "map@100 needs labels and .*bare.zarr has none"), ("narrow", "features")):
        for role in ("queries", "path") if name == "bare" else ("queries", "train"):
            small = plan(folder, tmp_path / "s")
            small["data"][0][role] = str(tmp_path / f"{name}.zarr")
            with pytest.raises(ConfigError, match=message):
                bf.sweep(small)
    assert not (tmp_path / "s").exists()


def test_a_stop_between_cells_keeps_what_is_done(folder, tmp_path):
    with pytest.raises(KeyboardInterrupt, match="stopped after 1 of 8 cells; give the same command again"):
        bf.sweep(plan(folder, tmp_path / "s"), should_stop=lambda: True)
    assert len(os.listdir(tmp_path / "s/cells")) == 1


def test_the_page_says_what_to_take_and_is_safe(folder, tmp_path):
    methods = [{"name": "lsh", "label": "<b>LSH</b>"}, {"name": "itq", "n_iter": 2}]
    table = bf.sweep(plan(folder, tmp_path / "s", methods))
    page = (tmp_path / "s/report.html").read_text()
    assert page.count("<script") == 1  # the page's own
    assert "<b>LSH" not in page
    assert "&lt;b&gt;LSH&lt;/b&gt;" in page
    assert re.search(r"8 bytes per vector: itq with 16 bits keeps \d+\.\d % of exact recall10@100 ± ", page)
    assert page.count("<svg") == 2
    assert table.attrs["recommendations"][0].startswith("8 bytes per vector: itq with 16 bits")


points = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from([0.1, 0.2, 0.3, 0.4])), min_size=1, max_size=12
)


@given(points)
def test_the_front_is_what_nothing_beats(values):
    rows = [{"bytes_per_vector": cost, "mean": mean, "id": i} for i, (cost, mean) in enumerate(values)]
    front = {(row["bytes_per_vector"], row["mean"]) for row in pareto(rows)}
    beaten = {
        (a["bytes_per_vector"], a["mean"])
        for a in rows
        for b in rows
        if b["bytes_per_vector"] <= a["bytes_per_vector"]
        and b["mean"] >= a["mean"]
        and (b["bytes_per_vector"], b["mean"]) != (a["bytes_per_vector"], a["mean"])
    }
    assert front == {(row["bytes_per_vector"], row["mean"]) for row in rows} - beaten


def test_advice_knows_when_it_knows_nothing(done):
    _path, table = done
    one_seed = table.isel(seed=[0]).assign_attrs(table.attrs)
    assert all("too few seeds to tell" in entry["text"] for entry in recommend(one_seed))
    same = table.copy(deep=True)
    same["recall10@100"][:] = 0.5
    assert [entry["sure"] for entry in recommend(same)] == [False] * len(recommend(same))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_bits": [8, 8]}, "expected each value once"),
        ({"n_bit": [8]}, r"unknown key sweep\.n_bit"),
        ({"metrics": []}, "metrics"),
        ({"metrics": ["recall10@100", "foo@3"]}, "unknown metrics 'foo@3'"),
        ({"seeds": [0, -1]}, r"expected seeds >= 0, got \[0, -1\]"),
        ({"path": "s3://bucket/sweep"}, "expected a folder"),
        ({"path": ""}, r"sweep\.path"),
        ({"metrics": ["map@10", " map@10"]}, "expected each value once"),
        ({"seeds": [2**63]}, r"sweep\.seeds\.0: Input should be less than"),
    ],
)
def test_mistakes_are_named(folder, tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        bf.sweep(plan(folder, tmp_path / "s", **change))
    assert not (tmp_path / "s").exists()


def test_a_misspelt_key_of_one_of_several_tables_is_named(folder, tmp_path):
    small = plan(folder, tmp_path / "s")
    small["data"][0]["quries"] = small["data"][0].pop("queries")
    with pytest.raises(ConfigError, match=r"unknown key data\.0\.quries \(did you mean 'queries'\?\)"):
        bf.sweep(small)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DestinationExists, match="is a file; give the sweep a folder"):
        bf.sweep(plan(folder, tmp_path / "file"))


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ([{"name": "lsh"}, {"name": "lsh"}], r"two of \[\[method\]\] are called 'lsh'; give each a label"),
        ([{"label": "x"}], r"expected name = .* in each \[\[method\]\]"),
        ([{"name": "itq", "n_itr": 3}], "no parameter 'n_itr' \\(did you mean 'n_iter'"),
        ([{"name": "kmeans"}], "unknown method 'kmeans'"),
        ([{"name": "lsh", "n_bits": [8, 8]}], "expected each value once"),
        ([{"name": "lsh", "label": "a\0"}], "expected a name of printable characters"),
    ],
)
def test_methods_that_do_not_exist_are_named(folder, tmp_path, methods, message):
    with pytest.raises(ConfigError, match=message):
        bf.sweep(plan(folder, tmp_path / "s", methods))
