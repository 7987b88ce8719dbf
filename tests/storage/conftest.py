"""Fixtures for the storage tests."""

from __future__ import annotations

import http.client
import importlib.util
import socket
import sys
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from bitfleet.storage.object_paths import ObjectPath

DRIVER = Path(__file__).with_name("run_driver.py")


@pytest.fixture(params=["local", "s3"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path | ObjectPath:
    """An empty place: a folder, and an address in an object store; the same holds of both."""
    return tmp_path if request.param == "local" else request.getfixturevalue("s3") / "home"


@pytest.fixture(scope="session")
def driver() -> ModuleType:
    """The module ``run_driver``: a small deterministic run."""
    spec = importlib.util.spec_from_file_location("run_driver", DRIVER)
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_driver"] = module
    spec.loader.exec_module(module)
    return module


class BadLine(ThreadingHTTPServer):
    """A proxy in front of an object store that does to each request what its ``policy`` says.

    ``policy(number, method, path)`` returns ``""`` (pass on), ``"throttle"`` (503), ``"refuse"`` (403),
    ``"lose request"``, ``"lose answer"`` (carried out, but the line breaks before the answer), ``"cut"``
    (the line breaks in the middle of the answer), ``"ignore"`` (conditions are not passed on), or ``"slow"``
    (half of the answer, a pause, the rest).
    """

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = endpoint.removeprefix("http://")
        self.policy = lambda number, method, path: ""
        self.seen: list[tuple[str, str, str]] = []

    def handle_error(self, request, client_address) -> None:
        """Keep quiet: broken lines are what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        server = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        action = server.policy(len(server.seen), self.command, self.path)
        server.seen.append((self.command, self.path, action))
        if action in ("throttle", "refuse"):
            code, name = {"throttle": (503, "SlowDown"), "refuse": (403, "AccessDenied")}[action]
            self._answer(code, {}, f"<Error><Code>{name}</Code></Error>".encode())
            return
        if action == "lose request":
            self._break()
            return
        line = http.client.HTTPConnection(server.target, timeout=30)
        headers = dict(self.headers)
        if action == "ignore":
            headers = {name: value for name, value in headers.items() if name.lower() != "if-none-match"}
        line.request(self.command, self.path, body, headers)
        answer = line.getresponse()
        data = answer.read()
        line.close()
        if action == "lose answer":
            self._break()
            return
        self._answer(answer.status, dict(answer.getheaders()), data, action)

    def _answer(self, status: int, headers: dict[str, str], data: bytes, action: str = "") -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "server", "date"):
                self.send_header(name, value)
        length = headers.get("content-length", headers.get("Content-Length", len(data)))
        self.send_header("Content-Length", str(length if self.command == "HEAD" else len(data)))
        self.end_headers()
        half = len(data) // 2
        self.wfile.write(data[:half])
        if action == "cut":
            self._break()
            return
        if action == "slow":
            time.sleep(0.1)
        self.wfile.write(data[half:])

    def _break(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def bad_line(s3, s3_endpoint, monkeypatch):
    """A `BadLine` to moto; the environment leads through it, and patience is short."""
    from bitfleet.storage import s3 as client

    monkeypatch.setattr(client, "REQUEST_TIMEOUT", timedelta(seconds=5))
    monkeypatch.setattr(client, "AGAIN", (0.01, 0.02, 0.05))
    monkeypatch.setattr(client, "FIRST_PAUSE", timedelta(milliseconds=5))
    line = BadLine(s3_endpoint)
    threading.Thread(target=line.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line.server_port}")
    yield line
    line.policy = lambda number, method, path: ""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    line.shutdown()
    line.server_close()
