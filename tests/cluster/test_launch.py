"""Getting a client: local workers that leave nothing behind, addresses, clients of the caller."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.request import urlopen

import psutil
import pytest
from bitfleet.cluster.errors import ClusterLost, PathNotShared
from bitfleet.cluster.launch import check_shared_path, connect


def gone(pids, seconds=30):
    deadline = time.monotonic() + seconds
    while alive := [pid for pid in pids if psutil.pid_exists(pid) and not is_zombie(pid)]:
        if time.monotonic() > deadline:
            return alive
        time.sleep(0.1)
    return []


def is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def read_environment() -> dict[str, str]:
    return dict(os.environ)


def read_allowed_failures(dask_scheduler) -> int:
    return dask_scheduler.allowed_failures


def test_local_workers_are_separate_quiet_and_gone_afterwards(capfd):
    with connect(n_workers=2, memory_limit="700 MiB") as client:
        pids = list(client.run(os.getpid).values())
        assert len({*pids, os.getpid()}) == 3
        info = client.scheduler_info()["workers"].values()
        assert {(w["nthreads"], w["memory_limit"]) for w in info} == {(1, 700 * 2**20)}
        assert client.dashboard_link.startswith("http://127.0.0.1:")
        assert client.scheduler.address.startswith("tcp://127.0.0.1:")
        assert client.run_on_scheduler(read_allowed_failures) >= 10
        for environ in client.run(read_environment).values():
            assert environ["OPENBLAS_NUM_THREADS"] == environ["OMP_NUM_THREADS"] == "1"
    assert gone(pids) == []
    assert client.status == "closed"
    assert capfd.readouterr() == ("", "")


def test_the_dashboard_is_loaded_by_the_first_page_that_is_asked_for():
    code = """
import sys
from urllib.request import urlopen
from bitfleet.cluster.launch import connect

with connect(n_workers=1, memory_limit="700 MiB") as client:
    base = client.dashboard_link.removesuffix("status")
    assert urlopen(base + "health").read() == b"ok"
    assert "bokeh" not in sys.modules
    assert b"individual-progress" in urlopen(base + "individual-plots.json").read()
    assert "bokeh" in sys.modules
    for page in ("status", "workers", ""):
        assert b"bokeh" in urlopen(base + page).read().lower(), page
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_bokeh_the_dashboards_page_tells_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed.dashboard.scheduler", None)  # an import that fails
    with connect(n_workers=1, memory_limit="700 MiB") as client:
        for _ in range(2):
            with urlopen(client.dashboard_link) as answer:
                assert b"Dask needs bokeh" in answer.read()


def test_an_error_inside_closes_the_cluster_too():
    pids = []

    def use_and_fail():
        with connect(n_workers=1) as client:
            pids.extend(client.run(os.getpid).values())
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        use_and_fail()
    assert len(pids) == 1
    assert gone(pids) == []


def test_nobody_but_this_machine_reaches_a_local_cluster(two):
    listening = [
        connection.laddr.ip
        for child in [psutil.Process(), *psutil.Process().children(recursive=True)]
        for connection in child.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert set(listening) == {"127.0.0.1"}


def test_workers_die_with_a_driver_that_is_killed():
    code = """
import os, sys, time
from bitfleet.cluster.launch import connect
if __name__ == "__main__":
    with connect(n_workers=2) as client:
        print(*client.run(os.getpid).values(), flush=True)
        time.sleep(300)
"""
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(pids) == 2
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert gone(pids) == []


def test_a_client_of_the_caller_is_used_and_left_open(two):
    with connect(two) as client:
        assert client is two
    assert two.status == "running"
    assert two.submit(sum, [1, 2]).result() == 3


def test_an_address_is_connected_to_and_left_running(two):
    with connect(two.scheduler.address) as client:
        assert client is not two
        assert client.scheduler.address == two.scheduler.address
    assert client.status == "closed"
    assert two.submit(sum, [1, 2]).result() == 3


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    import dask

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "500ms"}),
        pytest.raises(ClusterLost, match=f"no scheduler answers at {address}"),
        connect(address),
    ):
        pass


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (b"", "no scheduler answers at tcp://"),  # it hangs, or has been stopped
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answers at .* is no scheduler"),
        (b"\xff" * 4096, "what answers at .* is no scheduler"),
    ],
)
def test_a_server_that_is_no_scheduler_is_named(says, message):
    import dask

    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []

        def answer() -> None:
            taken.append(server.accept()[0])
            taken[0].sendall(says)

        answering = threading.Thread(target=answer)
        answering.start()
        with (
            dask.config.set({"distributed.comm.timeouts.connect": "500ms"}),
            pytest.raises(ClusterLost, match=message),
            connect(f"tcp://127.0.0.1:{server.getsockname()[1]}"),
        ):
            pass
        answering.join()
        taken[0].close()


@pytest.mark.parametrize(
    ("scheduler", "settings", "message"),
    [
        ("localhost", {}, 'scheduler="local", a launcher (.*) or an address'),
        (None, {"n_workers": 0}, "at least one worker"),
        ("local", {"threads_per_worker": 0}, "at least one worker with one thread"),
        ("tcp://127.0.0.1:1", {"n_workers": 2}, "for workers started here"),
        ("tcp://127.0.0.1:1", {"memory_limit": "1 GiB"}, "for workers started here"),
    ],
)
def test_settings_that_make_no_sense_are_refused(scheduler, settings, message):
    with pytest.raises(ValueError, match=message), connect(scheduler, **settings):
        pass


def test_a_folder_that_all_workers_see_passes_and_stays_clean(two, tmp_path):
    check_shared_path(two, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_does_not_see_the_folder_is_named(two, tmp_path):
    """A worker in a mount namespace of its own, where something else is mounted over the folder."""
    hidden = 'mount -t tmpfs none "$0" && exec "$@"'
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", hidden, str(tmp_path)]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us make a mount namespace")
    command = [*namespace, sys.executable, "-m", "distributed.cli.dask_worker", two.scheduler.address]
    blind = subprocess.Popen(
        [*command, "--name", "blind", "--no-nanny", "--no-dashboard"], stderr=subprocess.DEVNULL
    )
    try:
        two.wait_for_workers(3, timeout=60)
        with pytest.raises(PathNotShared, match=r"1 of 3 workers cannot read .*file system that all workers"):
            check_shared_path(two, tmp_path)
    finally:
        blind.kill()
        blind.wait()
    assert list(tmp_path.iterdir()) == []


def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from bitfleet.cluster.launch import connect\n"
        "with connect('local', n_workers=1) as client:\n"
        "    print(client)\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "a worker was asked to start workers; worker processes import the script" in ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("bitfleet.cluster.errors.ClusterError: the workers did not start")
    assert 'put what it does under `if __name__ == "__main__":`' in last
