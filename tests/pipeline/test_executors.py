"""From ``scheduler=`` to a place to compute, and one cluster through all of the public functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bitfleet as bf
import dask.array as da
import numpy as np
import pytest
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.pipeline.config import ClusterTable
from bitfleet.pipeline.executors import SERIAL, Where, choose, joined, open_executor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = np.random.default_rng(6).normal(size=(200, 8)).astype(np.float32)


@pytest.fixture
def client(clusters: Callable[[int], Any]) -> Any:
    return clusters(2)


def test_words_and_addresses() -> None:
    assert choose(None) == choose("serial") == SERIAL
    assert choose(None).in_process
    local = choose("local", n_workers=3, memory_limit=None)
    assert local.table == ClusterTable(scheduler="local", n_workers=3)
    assert not local.in_process
    assert choose(None, n_workers=3) == local
    assert choose(local) is local
    assert choose(ClusterTable(scheduler="local", n_workers=3)) == local


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("local", True),
        ("serial", True),
        ("inproc://10.0.0.1/1/1", True),
        ("tcp://127.0.0.1:8786", True),
        ("tls://[::1]:8786", True),
        ("tcp://localhost:8786", True),
        ("tcp://10.0.0.1:8786", False),
        ("tls://scheduler:8786", False),
    ],
)
def test_which_schedulers_see_our_folders(address: str, here: bool) -> None:
    assert choose(address).on_this_machine is here


def test_the_serial_executor_needs_nothing() -> None:
    with open_executor(SERIAL) as executor:
        assert isinstance(executor, SerialExecutor)
    with joined(SERIAL) as there:
        assert there == SERIAL


def test_a_client_is_used_and_not_closed(client: Any) -> None:
    where = choose(client)
    assert where.table.scheduler == client.scheduler.address
    notes: list[str] = []
    with open_executor(where, note=notes.append), joined(where) as there:
        assert there.client is client
    assert client.status == "running"
    assert notes == []


def test_a_folder_that_workers_do_not_see_is_noticed(client: Any, tmp_path: Path) -> None:
    with open_executor(choose(client), shared=tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_joined_place_keeps_what_a_run_records(client: Any) -> None:
    where = Where(ClusterTable(scheduler="local", n_workers=2), client)
    with joined(where) as there, open_executor(there):
        assert there.table.n_workers == 2


def test_an_estimator_on_a_cluster_learns_the_same(client: Any, tmp_path: Path) -> None:
    for estimator in (
        bf.ITQ(n_bits=6, n_iter=2, random_state=0),
        bf.POSH(n_bits=24, n_active=3, n_epochs=2, random_state=0),
    ):
        expected = estimator.fit(ROWS).model_
        lazy = da.from_array(ROWS, chunks=(70, 3))
        alone = estimator.fit(lazy, scheduler=client).model_
        assert alone.digest == expected.digest
        assert alone.path is None  # its run was a temporary one
        run = tmp_path / type(estimator).__name__
        kept = estimator.fit(ROWS, scheduler=client, checkpoint=run, preprocess_on=ROWS).model_
        assert kept.digest == estimator.fit(ROWS, preprocess_on=ROWS).model_.digest
        assert kept.path == run / "model.zarr"


def test_encoding_on_a_cluster_writes_the_same(client: Any, tmp_path: Path) -> None:
    model = bf.FruitFly(n_bits=24, n_active=3, random_state=0).fit(ROWS).model_
    serial = bf.encode(model, ROWS, tmp_path / "serial.zarr", active=True)
    distributed = bf.encode(model, ROWS, tmp_path / "dask.zarr", scheduler=client, active=True)
    assert distributed.digest == serial.digest
    np.testing.assert_array_equal(distributed.active(0, 200), serial.active(0, 200))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dask.zarr", "serial.zarr"]
    lazy = model.encode(da.from_array(ROWS, chunks=(60, 8)))
    np.testing.assert_array_equal(client.compute(lazy).result(), serial.rows(0, 200))
