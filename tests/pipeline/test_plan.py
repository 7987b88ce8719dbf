"""What a job will take: the model's arithmetic by hand, and the plan beside the run itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline.cli import app
from bitfleet.pipeline.plan_model import (
    ROUND_SECONDS,
    STATE_BANDWIDTH,
    TASK_SECONDS,
    Hardware,
    Pass,
    pass_seconds,
    round_network_bytes,
    round_seconds,
)
from bitfleet.pipeline.rehearsal import RoundCosts
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path

MiB = 2**20


def costs(n_leaves: int, **others) -> RoundCosts:
    values = {
        "update": 0.5,
        "merge": 0.1,
        "advance": 2.0,
        "sum_bytes": 6 * MiB,
        "state_bytes": 0,
    }
    return RoundCosts(n_leaves, **values | others, flop=None, sequential=False)


class TestModel:
    def test_a_round_by_hand(self):
        # 40 leaves on 4 workers, one a task: 10 waves; above the pieces ceil(log8(40)) = 2 levels
        data = Pass(fetch=0.3, widen=0.1, file_bytes=1000, kept=0.5, fan_in=8)
        there = Hardware(workers=4, bandwidth=6 * MiB)
        fixed = 40 * 0.1 / 4 + 2 * 7 * (0.1 + 1.0) + 2.0 + ROUND_SECONDS
        assert round_seconds(costs(40), data, there, first=True) == pytest.approx(10 * 0.9 + fixed)
        assert round_seconds(costs(40), data, there, first=False) == pytest.approx(10 * 0.75 + fixed)
        state = costs(40, state_bytes=int(STATE_BANDWIDTH))
        assert round_seconds(state, data, there, first=True) == pytest.approx(9 + fixed + 2)

    def test_whatever_is_slowest_decides(self):
        data = Pass(fetch=0.0, widen=0.0, file_bytes=1e6, kept=0.0, fan_in=8)
        slow_disk = Hardware(workers=100, storage_bandwidth=1e6)
        assert pass_seconds(50, 0.5, data, slow_disk, slots=100) == 50
        assert pass_seconds(50, 1e-6, data, Hardware(workers=100), slots=100) == 50 * TASK_SECONDS

    def test_a_core_that_is_idle_reads_ahead(self):
        data = Pass(fetch=0.3, widen=0.1, file_bytes=0, kept=0.0, fan_in=8)
        assert pass_seconds(10, 0.5, data, Hardware(0, cores=2), slots=1) == pytest.approx(6.0)
        assert pass_seconds(10, 0.5, data, Hardware(0, cores=1), slots=1) == pytest.approx(9.0)

    def test_workers_share_the_cores_of_their_machine(self):
        assert Hardware(8, threads=2, cores=4).slots == 4
        assert (Hardware(8, threads=2).slots, Hardware(0).slots) == (16, 1)

    def test_network_bytes_are_those_of_the_documentation(self):
        # docs/cluster.md: POSH, D = 1024, d = 784, two workers, f = 8: 98 MiB for 40 blocks and for 63
        of_posh = [costs(n, sum_bytes=8 * 1024 * 784) for n in (40, 63)]
        assert [round_network_bytes(one, Hardware(2), 8) for one in of_posh] == [98 * MiB] * 2
        assert round_network_bytes(costs(3), Hardware(2), 8) == 3 * 6 * MiB  # no more sums than leaves
        assert round_network_bytes(costs(40), Hardware(0), 8) == 0


@pytest.fixture
def job(tmp_path: Path) -> dict:
    rng = np.random.default_rng(0)
    with bf.DatasetWriter(tmp_path / "x.zarr", n_features=24, dtype="float16", chunk_rows=512) as writer:
        writer.append(rng.standard_normal((5000, 24)).astype(np.float16))
    return {
        "data": {"path": str(tmp_path / "x.zarr")},
        "method": {"name": "itq", "n_bits": 16, "n_iter": 3},
        "run": {"path": str(tmp_path / "run"), "block_rows": 512},
        "cluster": {"scheduler": "serial"},
        "encode": {"path": str(tmp_path / "codes.zarr")},
    }


def test_a_plan_tells_what_the_run_then_takes(job, tmp_path):
    plan = bf.plan(job)
    assert not (tmp_path / "run").exists()
    model = bf.train(job["data"]["path"], tmp_path / "run", "itq", n_bits=16, n_iter=3)
    codes = bf.encode(model, job["data"]["path"], tmp_path / "codes.zarr")
    files = (tmp_path / "x.zarr" / "vectors").rglob("*")
    stored = sum(file.stat().st_size for file in files if file.is_file())
    assert plan["rounds"] == model.state.round == 4
    assert plan["blocks"] == 10
    assert plan["bytes_read"] == pytest.approx(4 * stored, rel=0.08)  # the last block is not whole
    assert plan["flop"] == 10 * 512 * (2 * 24 * 24 + 3 * (2 * 24 * 16 + 4 * 16 * 16))
    assert plan["code_bytes"] == codes.n_rows * 2
    assert (plan["network_bytes"], plan["kept_share"], plan["workers"]) == (0, 0.0, 0)
    assert 0 < plan["train_seconds"] + plan["encode_seconds"] == pytest.approx(plan["seconds"], abs=0.02)


def test_ten_times_the_rows_take_ten_times_as_much_on_as_many_workers(job):
    settings = {"run.block_rows": 64}
    del job["encode"]
    plans = [bf.plan(job, rows=64 * blocks, workers=50, settings=settings) for blocks in (500, 5_000)]
    few, many = plans
    assert (few["blocks"], many["blocks"]) == (500, 5_000)
    assert many["bytes_read"] == pytest.approx(10 * few["bytes_read"], rel=1e-6)
    assert many["flop"] == 10 * few["flop"]
    assert many["network_bytes"] < 4 * few["network_bytes"]  # workers and depth, not rows
    # and a disk that all share is what they wait for
    slow = bf.plan(job, rows=64 * 5_000, workers=50, storage_bandwidth=1e6, settings=settings)
    assert slow["train_seconds"] >= slow["bytes_read"] / 1e6 > many["train_seconds"]


def test_what_is_refused(job):
    with pytest.raises(bf.ConfigError, match="give each worker at least"):
        bf.plan(job, workers=2, memory_limit="300 MiB")
    with pytest.raises(bf.ConfigError, match="memory limit such as"):
        bf.plan(job, workers=2, memory_limit="much")
    for wrong in ({"rows": 0}, {"workers": -1}, {"threads": 0}, {"speed": 0.0}):
        with pytest.raises(bf.ConfigError, match=next(iter(wrong))):
            bf.plan(job, **wrong)


def test_on_the_command_line(job, tmp_path):
    tables = {key: job[key] for key in ("data", "method", "run")}
    text = "".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )
    (tmp_path / "job.toml").write_text(text)
    words = ["plan", str(tmp_path / "job.toml"), "--workers", "3", "--bandwidth", "1 GB/s", "--json"]
    done = CliRunner().invoke(app, words)
    result = json.loads(done.stdout)
    assert (result["workers"], result["rounds"]) == (3, 4)
    assert result["network_bytes"] > 0
    refused = CliRunner().invoke(app, [*words, "--storage-bandwidth", "fast"])
    assert refused.exit_code == 2
    assert "bytes a second" in refused.stderr
