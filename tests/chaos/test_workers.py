"""However many workers, in whatever order, whoever dies: the same SHA-256 of model and codes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import bitfleet as bf
import pytest
from bitfleet.cluster.dask_executor import DaskExecutor
from bitfleet.cluster.launch import connect
from bitfleet.pipeline import encode, runs
from bitfleet.pipeline.config import build_method
from bitfleet.pipeline.errors import Interrupted
from bitfleet.pipeline.executors import choose
from bitfleet.pipeline.model import Model
from bitfleet.pipeline.opening import checkpoints_of, prepare
from bitfleet.pipeline.train import train
from bitfleet.tasks.protocols import DataInfo
from chaos_cases import BLOCK_ROWS, BRIEF, LONG, METHODS, PLAN, marked, method_of
from slow_reader import slowed, victims

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client


@pytest.fixture(scope="module")
def mortal() -> Iterator[Client]:
    """Three workers that may die: each is replaced."""
    with connect("local", n_workers=3, memory_limit="1 GiB") as client:
        yield client


@pytest.mark.parametrize(
    ("n_workers", "dtype"),
    [
        (2, "float32"),
        (4, "float64"),
        pytest.param(1, "float32", marks=pytest.mark.long),
        pytest.param(4, "float32", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("case", marked(METHODS))
def test_any_number_of_workers(
    clusters, datasets, undisturbed, tmp_path, case, n_workers, dtype, monkeypatch
):
    client = clusters(n_workers)
    name, params = method_of(case)
    expected = undisturbed(case, dtype)
    model = bf.train(datasets[dtype], tmp_path / "run", name, scheduler=client, **PLAN, **params)
    monkeypatch.setattr(encode, "base_rows", lambda n_features: BLOCK_ROWS)  # 8 tasks, not 1
    codes = bf.encode(model, datasets[dtype], tmp_path / "codes.zarr", scheduler=client)
    assert codes.chunk_rows == BLOCK_ROWS
    assert (model.digest, codes.digest) == expected


DEADLY = ("posh",)  # the others in the long tests: replacing workers takes time


@pytest.mark.parametrize(
    ("case", "n_deaths"),
    [
        *(
            pytest.param(case, 0, marks=pytest.mark.long if case in LONG and case not in BRIEF else ())
            for case in METHODS
        ),
        *(pytest.param(case, 2, marks=() if case in DEADLY else pytest.mark.long) for case in METHODS),
    ],
)
def test_any_order_and_workers_killed_in_mid_round(
    mortal, datasets, undisturbed, tmp_path, case, n_deaths, monkeypatch
):
    name, params = method_of(case)
    expected = undisturbed(case, "float32")
    run = prepare(datasets["float32"], tmp_path / "run", build_method(name, params), **PLAN)
    folders = [tmp_path / "training", tmp_path / "encoding"]
    for folder in folders:
        folder.mkdir()
    reader = run.dataset.reader()
    # a round reads 8 blocks: one death in the first, one in the second where there is a second
    deaths = [
        (3, 6 if name in ("lsh", "fruit_fly", "isohash", "sklsh", "klsh") else 13)[:n_deaths],
        (2, 5)[:n_deaths],
    ]

    train(
        run.method,
        slowed(reader, folders[0], deaths[0]),
        DaskExecutor(mortal),
        checkpoints_of(run),
        run.plan,
        0,
    )
    stored = checkpoints_of(run).latest()
    model = Model(run.method, stored, DataInfo(run.plan.n_rows, run.dataset.n_features))
    model = bf.load(model.save(tmp_path / "model.zarr"))
    assert model.digest == expected[0]

    monkeypatch.setattr(encode, "base_rows", lambda n_features: BLOCK_ROWS)
    codes = encode.encode_to(
        model,
        slowed(reader, folders[1], deaths[1]),
        run.dataset.digest,
        tmp_path / "codes.zarr",
        DaskExecutor(mortal),
    )
    assert codes.digest == expected[1]
    for folder in folders:
        assert len(victims(folder)) == n_deaths


@pytest.mark.parametrize(
    ("chunk_rows", "dtype"),
    [
        (7, "float64"),
        pytest.param(64, "float32", marks=pytest.mark.long),
        pytest.param(1000, "float32", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("case", marked(METHODS))
def test_any_chunking_of_the_input(undisturbed, rechunked, tmp_path, case, chunk_rows, dtype):
    name, params = method_of(case)
    again = rechunked(chunk_rows, dtype)
    model = bf.train(again, tmp_path / "run", name, **PLAN, **params)
    codes = bf.encode(model, again, tmp_path / "codes.zarr")
    assert (model.digest, codes.digest) == undisturbed(case, dtype)


RESUMED = ("itq", "posh", "posh-paper")


@pytest.mark.parametrize(
    "case",
    [case if case in RESUMED else pytest.param(case, marks=pytest.mark.long) for case in METHODS],
)
def test_started_by_one_worker_and_resumed_by_four_with_other_memory(
    clusters, small, data, undisturbed, tmp_path, case
):
    name, params = method_of(case)
    rounds: list[object] = []
    control = runs.Control(emit=rounds.append, should_stop=lambda: len(rounds) > 1)  # start, one round
    with suppress(Interrupted):  # some methods have but one round
        run = tmp_path / "run"
        runs.start(data, run, build_method(name, params), where=choose(small), **PLAN, control=control)
    assert _limits(small) != _limits(clusters(4))
    assert bf.resume(tmp_path / "run", scheduler=clusters(4)).digest == undisturbed(case)[0]


@pytest.fixture(scope="module")
def small() -> Iterator[Client]:
    """One worker with less memory than the others."""
    with connect("local", n_workers=1, memory_limit="600 MiB") as client:
        yield client


def _limits(client: Client) -> set[int]:
    return {info["memory_limit"] for info in client.scheduler_info()["workers"].values()}
