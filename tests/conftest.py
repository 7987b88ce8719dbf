"""Fixtures for every test: the shared real data, small data, clusters, and where things are."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bitfleet.storage.object_paths import ObjectPath
    from distributed import Client

# an example may be the one that compiles a kernel, or wait for a busy machine
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread() -> Iterator[None]:
    """Take one BLAS thread in this process: several cost small matrices ten times the time.

    Processes that tests start are as users start them, and tests that are about threads ask for more.
    """
    import scipy.linalg  # noqa: F401  (a library has to be loaded before it can be limited)
    import threadpoolctl

    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout; skips where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not beside this checkout")
    return folder


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """600 rows of 24 features in 5 clusters, with labels."""
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 5, 600)
    centres = rng.normal(size=(5, 24)) * 3
    vectors = (centres[labels] + rng.normal(size=(600, 24))).astype(np.float32)
    return vectors, labels.astype(np.int64)


#: What must never be seen anywhere but in the environment.
SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
_BUCKETS = itertools.count()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of moto's S3 on loopback, in a thread of this process."""
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'bitfleet[s3]'")
    server = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server]'")
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def s3(s3_endpoint, monkeypatch, caplog) -> Iterator[ObjectPath]:
    """An empty bucket, with the credentials for it in the environment; they must not get anywhere else."""
    from bitfleet.storage.object_paths import ObjectPath

    name = f"bucket-{next(_BUCKETS)}"
    made = urllib.request.Request(f"{s3_endpoint}/{name}", method="PUT")
    urllib.request.urlopen(made, timeout=10).close()
    for key, value in {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(key, value)
    bucket = ObjectPath(name)
    yield bucket
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    assert SECRET not in caplog.text
    for item in bucket.walk():
        if "/c/" not in item["path"]:  # numbers
            assert SECRET.encode() not in (bucket / item["path"]).read_bytes()


@pytest.fixture(scope="session")
def clusters() -> Iterator[Callable[[int], Client]]:
    """Clusters by number of workers, each started when it is first asked for; tests leave them as they were.

    Starting workers is what costs most in these tests, so all of them share these.
    """
    from bitfleet.cluster.launch import connect

    with contextlib.ExitStack() as stack:

        @functools.cache
        def start(n_workers: int) -> Client:
            return stack.enter_context(connect("local", n_workers=n_workers, memory_limit="1 GiB"))

        yield start
