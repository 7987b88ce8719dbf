"""Memory: what is projected is not exceeded, what cannot fit is refused, what is full does not hang."""

from __future__ import annotations

from pathlib import Path

import bitfleet as bf
import dask
import numpy as np
import psutil
import pytest
from bitfleet.cluster import worker
from bitfleet.cluster.launch import connect
from bitfleet.pipeline.config import build_method
from bitfleet.pipeline.executors import choose
from bitfleet.pipeline.opening import foresee
from bitfleet.storage.readers import StoredBlock
from bitfleet.tasks.protocols import RowRange
from chaos_cases import PLAN, method_of
from foreign import wait_until

MiB = 2**20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """70,000 rows of 256 bytes: three blocks of 32 MiB in memory."""
    folder = tmp_path_factory.mktemp("large")
    np.save(folder / "x.npy", np.random.default_rng(0).integers(0, 255, (70_000, 256), np.uint8))
    return bf.ingest(folder / "x.npy", folder / "x.zarr").path


def peak() -> int:
    """The most memory that this process has had; `getrusage` would begin with what its parent had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("itq", {"n_bits": 64, "n_iter": 2}),
        ("posh", {"n_bits": 512, "n_active": 16, "n_epochs": 1}),
    ],
)
def test_the_measured_peak_is_below_the_projected(large, tmp_path, name, params):
    where = choose("local", n_workers=1, memory_limit="700 MiB")
    projected = foresee(large, build_method(name, params), where=where)["worker_peak_bytes"]
    with connect("local", n_workers=1, memory_limit="700 MiB") as client:
        bf.train(large, tmp_path / "run", name, scheduler=client, **params)
        (measured,) = client.run(peak).values()
    print(f"measured {measured / MiB:.0f} MiB of {projected / MiB:.0f} MiB projected")
    assert 100 * MiB < measured <= projected < 3 * measured


def test_what_cannot_fit_is_refused_with_what_would(cli, large, tmp_path):
    command = ("train", large, tmp_path / "run", "--method", "itq", "--n-bits", 64, "--set", "n_iter=1")
    refused = cli(*command, "--memory-limit", "450 MiB", "--workers", 1, code=2)
    assert "give each worker at least " in refused["stderr"]
    assert not (tmp_path / "run").exists()
    least = int(refused["stderr"].split("at least ")[1].split(" MiB")[0].replace(",", ""))
    assert 450 < least < 1000
    where = choose("local", n_workers=1, memory_limit=f"{least} MiB")
    method = build_method("itq", {"n_bits": 64, "n_iter": 1})
    assert foresee(large, method, where=where)["worker_peak_bytes"] <= least * MiB
    with pytest.raises(bf.ConfigError, match="at least"):
        foresee(large, method, where=choose("local", n_workers=1, memory_limit=f"{0.9 * least} MiB"))


def fill(n_bytes: int) -> int:
    """Make this worker keep a block that nobody will ask for; return what the process then has."""
    block = StoredBlock(np.zeros(1, np.int64), np.ones((1, n_bytes // 4), np.float32))
    worker._blocks()._keep(("nobody", RowRange(0, 1)), block)
    return psutil.Process().memory_info().rss


def is_paused(dask_worker) -> bool:
    return dask_worker.status.name == "paused"


def test_workers_that_dask_has_paused_give_up_what_they_keep_and_go_on(data, undisturbed, tmp_path):
    """The kept blocks alone fill the only worker, so it computes nothing until they are gone."""
    name, params = method_of("posh")
    config = {"distributed.worker.memory.pause": 0.3, "distributed.worker.memory.spill": False}
    with dask.config.set(config), connect("local", n_workers=1, memory_limit="1200 MiB") as client:
        assert client.submit(fill, 340 * MiB).result() > 0.3 * 1200 * MiB
        wait_until(lambda: all(client.run(is_paused).values()))
        model = bf.train(data, tmp_path / "run", name, scheduler=client, **PLAN, **params)
        (rss,) = client.run(lambda: psutil.Process().memory_info().rss).values()
    assert rss < 0.3 * 1200 * MiB
    assert model.digest == undisturbed("posh")[0]


@pytest.mark.long
@pytest.mark.parametrize("case", ["posh", "itq"])
def test_workers_that_spill_everything_give_the_same_bits(data, undisturbed, tmp_path, case):
    config = {"distributed.worker.memory.target": 1e-6, "distributed.worker.memory.spill": 1e-6}
    with dask.config.set(config), connect("local", n_workers=2, memory_limit="1 GiB") as client:
        name, params = method_of(case)
        model = bf.train(data, tmp_path / case, name, scheduler=client, **PLAN, **params)
        assert model.digest == undisturbed(case)[0]
