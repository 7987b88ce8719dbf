"""A real login server on loopback: a job file trains on workers that are started through it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest
from several_hosts import free_ports, need, result_of, search_path, start_job, wait_for_round, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.long

SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""
CLUSTER = """
[cluster]
launcher = "ssh"
n_workers = 2
memory_limit = "700 MiB"
[cluster.ssh]
hosts = ["127.0.0.1"]
host = "127.0.0.1"
port = {port}
private_key = "{folder}/key"
known_hosts = "{folder}/known_hosts"
shared_folder = "{folder}/certificates"
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The cluster table of a job for a login server that knows one key, made for the test."""
    need("sshd", "ssh-keygen", package="openssh-server")
    folder = tmp_path / "ssh"
    folder.mkdir()
    for name in ("key", "host_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True, timeout=30)
    (port,) = free_ports(1)
    shutil.copy(folder / "key.pub", folder / "authorized_keys")
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    (folder / "sshd_config").write_text(SERVER.format(port=port, folder=folder))
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    sshd = shutil.which("sshd", path=search_path())
    assert sshd is not None
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen([sshd, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
        try:
            wait_until((folder / "sshd.pid").exists, "sshd", 20)
            yield CLUSTER.format(port=port, folder=folder)
        finally:
            process.terminate()
            process.wait(timeout=20)


def workers(folder: Path) -> list[psutil.Process]:
    """The worker processes below the login server."""
    server = psutil.Process(int((folder / "ssh/sshd.pid").read_text()))
    below = server.children(recursive=True)
    return [process for process in below if "multiprocessing.spawn" in " ".join(process.cmdline())]


def test_a_worker_is_killed_and_the_bits_are_the_same(server, job, alone, tmp_path):
    process = start_job(job(server))
    try:
        wait_for_round(tmp_path / "run", 3, process)
        running = workers(tmp_path)
        assert len(running) == 2
        running[0].send_signal(signal.SIGKILL)
        assert result_of(process) == alone
    finally:
        process.kill()
        process.communicate()
    assert not any((tmp_path / "ssh/certificates").iterdir())
    wait_until(lambda: not workers(tmp_path), "the workers to end", 30)


def test_an_unknown_host_key_is_refused(server, job, tmp_path):
    (tmp_path / "ssh/known_hosts").write_text("")
    process = start_job(job(server))
    _out, complaint = process.communicate(timeout=120)
    assert process.returncode == 5, complaint
    assert "Host key" in complaint
