"""However many workers, in whatever order, whoever dies: the same SHA-256 of model and codes."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.cluster.dask_executor import DaskExecutor
from bitfleet.cluster.launch import connect
from bitfleet.pipeline.config import build_method
from bitfleet.pipeline.model import Model
from bitfleet.pipeline.opening import checkpoints_of, prepare
from bitfleet.pipeline.train import train
from bitfleet.tasks.protocols import DataInfo
from chaos_cases import BLOCK_ROWS, METHODS, digits, method_of
from slow_reader import slowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda n: f"{n}-workers")
def client(request) -> Iterator[Client]:
    with connect("local", n_workers=request.param, memory_limit="1 GiB") as client:
        yield client


@pytest.mark.parametrize("case", METHODS)
def test_any_number_of_workers(client, data, undisturbed, tmp_path, case):
    name, params = method_of(case)
    model = bf.train(data, tmp_path / "run", name, scheduler=client, block_rows=BLOCK_ROWS, **params)
    codes = bf.encode(model, data, tmp_path / "codes.zarr", scheduler=client)
    assert (model.digest, codes.digest) == undisturbed(case)


@pytest.mark.parametrize("case", ["itq", "posh"])
@pytest.mark.parametrize("deaths", [0, 2])
def test_any_order_and_dead_workers(data, undisturbed, tmp_path, case, deaths):
    name, params = method_of(case)
    run = prepare(data, tmp_path / "run", build_method(name, params), block_rows=BLOCK_ROWS)
    checkpoints = checkpoints_of(run)
    with connect("local", n_workers=3, memory_limit="1 GiB") as client:
        victims = list(client.run(os.getpid).values())[:deaths]

        def kill() -> None:
            for pid in victims:
                time.sleep(0.4)
                os.kill(pid, signal.SIGKILL)

        killer = threading.Timer(0.6, kill)
        killer.start()
        state = train(
            run.method, slowed(run.dataset.reader(), 0.4), DaskExecutor(client), checkpoints, run.plan, 0
        )
        killer.join()
        survivors = set(client.run(os.getpid).values())
    assert not survivors & set(victims)
    model = Model(run.method, state, DataInfo(run.plan.n_rows, run.dataset.n_features))
    assert model.digest == undisturbed(case)[0]
    assert bf.encode(model, data, tmp_path / "codes.zarr").digest == undisturbed(case)[1]


@pytest.mark.parametrize("chunk_rows", [64, 100, 1000])
def test_any_chunking_of_the_input(undisturbed, data, tmp_path, chunk_rows):
    """The stored chunks, and the chunks of a file that was several, decide nothing."""
    parts = np.array_split(digits(1000), 3)
    for i, part in enumerate(parts):
        np.save(tmp_path / f"{i}.npy", part)
    files = [tmp_path / f"{i}.npy" for i in range(3)]
    again = bf.ingest(files, tmp_path / "again.zarr", chunk_rows=chunk_rows)
    assert again.chunk_rows == chunk_rows
    assert again.digest == bf.open_dataset(data).digest
    name, params = method_of("posh")
    model = bf.train(again, tmp_path / "run", name, block_rows=BLOCK_ROWS, **params)
    codes = bf.encode(model, again, tmp_path / "codes.zarr")
    assert (model.digest, codes.digest) == undisturbed("posh")
