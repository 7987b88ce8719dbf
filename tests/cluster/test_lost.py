"""Workers and schedulers that die, and workers that are not what they should be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import cluster_toys as toys
import dask
import pytest
from bitfleet.cluster.dask_executor import DaskExecutor
from bitfleet.cluster.errors import ClusterLost, EnvironmentMismatch
from bitfleet.cluster.launch import connect
from bitfleet.cluster.serial import SerialExecutor
from bitfleet.cluster.session import Session, Stranded, list_workers
from distributed import Client

HERE = Path(__file__).parent


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@contextmanager
def process(module: str, *arguments: str, **variables: str):
    """A scheduler or worker of its own, as on a cluster that we have not launched."""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    command = [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--no-dashboard"]
    env = {**os.environ, "PYTHONPATH": path, **variables}
    started = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def worker(scheduler: str, name: str, **variables: str):
    return process("dask_worker", scheduler, "--name", name, "--nthreads", "1", "--no-nanny", **variables)


@pytest.fixture
def foreign(tmp_path):
    """A scheduler in a process of its own: its client and the process."""
    file = tmp_path / "scheduler.json"
    arguments = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
    with process("dask_scheduler", *arguments) as scheduler:
        wait_until(file.exists)
        with dask.config.set({"distributed.comm.timeouts.connect": "3s"}):
            client = Client(scheduler_file=str(file))
            yield client, scheduler
            client.close()


def test_two_workers_killed_in_mid_round_change_nothing(tmp_path, capfd):
    n_leaves = 40
    arguments = toys.Formula(n_leaves * 4), toys.leaves(n_leaves)
    expected = SerialExecutor().reduce(*arguments, toys.Sum(), toys.EMPTY, fan_in=4)
    killed = []

    def kill_two():
        wait_until(lambda: len(list(tmp_path.glob("pid-*"))) >= 3)
        for path in sorted(tmp_path.glob("pid-*"))[:2]:
            killed.append(int(path.name.removeprefix("pid-")))
            os.kill(killed[-1], signal.SIGKILL)
            time.sleep(0.3)

    with connect(n_workers=3) as client:
        executor = DaskExecutor(client)
        killer = threading.Thread(target=kill_two)
        killer.start()
        got = executor.reduce(*arguments, toys.Slow(str(tmp_path)), toys.EMPTY, fan_in=4)
        killer.join()
        survivors = {int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")}
        assert len(killed) == 2 < len(survivors)  # others took over
    assert {name: array.tobytes() for name, array in got.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }
    assert capfd.readouterr() == ("", "")


@pytest.mark.long  # two of them are killed below
def test_the_only_worker_killed_in_mid_round_changes_nothing(tmp_path):
    """Its successor has another address, and tasks that were meant for the dead one do not wait for it."""
    arguments = toys.Formula(80), toys.leaves(20)
    expected = SerialExecutor().reduce(*arguments, toys.Sum(), toys.EMPTY, fan_in=4)

    def kill():
        wait_until(lambda: len(list(tmp_path.glob("pid-*"))) >= 1)
        os.kill(int(next(tmp_path.glob("pid-*")).name.removeprefix("pid-")), signal.SIGKILL)

    with connect(n_workers=1) as client:
        killer = threading.Thread(target=kill)
        killer.start()
        got = DaskExecutor(client).reduce(*arguments, toys.Slow(str(tmp_path)), toys.EMPTY, fan_in=4)
        killer.join()
    assert len(list(tmp_path.glob("pid-*"))) == 2
    assert {name: array.tobytes() for name, array in got.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }


def test_a_result_whose_only_worker_dies_before_it_is_fetched_is_not_waited_for_in_vain():
    with connect(n_workers=1) as client:
        (where,) = list_workers(client)
        with Session(client, 60) as session:
            future = session.submit("pid", os.getpid, worker=where)
            assert session.next_ended() is future
            (pid,) = client.run(os.getpid).values()
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: future.status != "finished")
            with pytest.raises(Stranded):
                session.result(future)
        with Session(client, 60, hints=False) as session:
            future = session.submit("pid", os.getpid)
            assert session.wait_for(future) not in (pid, os.getpid())


def test_an_error_of_the_task_itself_is_raised_even_if_it_is_a_timeout(two):
    with Session(two, 60) as session, pytest.raises(TimeoutError, match="of my own"):
        session.wait_for(session.submit("late", toys.raise_timeout))


def test_a_block_that_kills_every_worker_ends_the_round(tmp_path):
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        connect_as_configured() as client,
        pytest.raises(ClusterLost, match=r"2 workers died .* ran out of memory.* is intact"),
    ):
        DaskExecutor(client).reduce(toys.Formula(4), toys.leaves(1), toys.Deadly(), toys.EMPTY)


@contextmanager
def connect_as_configured():
    from distributed import LocalCluster

    with (
        LocalCluster(1, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_a_scheduler_that_dies_ends_the_round_at_once(foreign, tmp_path):
    client, scheduler = foreign
    with worker(client.scheduler.address, "w"):
        executor = DaskExecutor(client, worker_timeout=60)

        def kill():
            wait_until(lambda: list(tmp_path.glob("pid-*")))
            scheduler.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(ClusterLost, match=r"scheduler.*committed round is intact.*resume"):
            executor.reduce(toys.Formula(400), toys.leaves(100), toys.Slow(str(tmp_path)), toys.EMPTY)
        killer.join()
        with pytest.raises(ClusterLost):
            executor.map(toys.Describe(), toys.Formula(4), toys.leaves(1), toys.EMPTY)


def test_a_cluster_without_workers_is_given_up_after_a_while(foreign, tmp_path):
    client, _ = foreign
    with pytest.raises(ClusterLost, match=r"no worker has arrived in 0\.2 s"):
        DaskExecutor(client, worker_timeout=0.2)
    with worker(client.scheduler.address, "w") as only:
        executor = DaskExecutor(client, worker_timeout=30)
        executor._worker_timeout = 1
        thread = threading.Thread(
            target=lambda: (wait_until(lambda: list(tmp_path.glob("pid-*"))), only.kill())
        )
        thread.start()
        with pytest.raises(ClusterLost, match="no worker for 1 s"):
            executor.reduce(toys.Formula(400), toys.leaves(100), toys.Slow(str(tmp_path)), toys.EMPTY)
        thread.join()


@pytest.fixture
def without_numba(tmp_path) -> dict[str, str]:
    folder = tmp_path / "no-numba"
    folder.mkdir()
    (folder / "numba.py").write_text("raise ImportError('not installed here')")
    path = [str(folder), str(HERE), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(path).strip(os.pathsep)}


def test_workers_of_another_environment_are_refused(foreign, tmp_path, without_numba):
    client, _ = foreign
    address = client.scheduler.address
    arguments = toys.Formula(240), toys.leaves(60), toys.Slow(str(tmp_path)), toys.EMPTY
    with worker(address, "right") as right:
        executor = DaskExecutor(client, worker_timeout=60)
        with worker(address, "wrong", **without_numba):
            wait_until(lambda: len(client.nthreads()) == 2)
            with pytest.raises(EnvironmentMismatch, match=r"kernels: numba .* expected, numpy found"):
                DaskExecutor(client)
            # a worker that joined after the handshake is refused by its first task
            with pytest.raises(EnvironmentMismatch, match=r"worker wrong at tcp.* numpy found"):
                executor.reduce(*arguments)
            right.kill()
            wait_until(lambda: len(client.nthreads()) == 1)
            got = DaskExecutor(client, allow_environment_change=True).reduce(*arguments)
    assert got["count"] == 240
