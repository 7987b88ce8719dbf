"""Who gets to a scheduler: this machine, or somebody with certificates of the same authority."""

from __future__ import annotations

import os
import stat

import dask
import pytest
from bitfleet.cluster.errors import ClusterLost, InsecureCluster
from bitfleet.cluster.launch import connect
from bitfleet.cluster.security import is_loopback, security_for, temporary
from distributed import LocalCluster


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    with temporary(tmp_path_factory.mktemp("tls")) as (security, files):
        yield security, {name: str(path) for name, path in files.items()}


@pytest.fixture(scope="module")
def guarded(certificates):
    """The address of a scheduler that asks for certificates."""
    security, _files = certificates
    with LocalCluster(
        n_workers=0, host="127.0.0.1", protocol="tls://", security=security, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("tcp://127.0.0.1:8786", True),
        ("tcp://127.8.0.1:8786", True),
        ("tcp://localhost:8786", True),
        ("tls://[::1]:8786", True),
        ("inproc://10.0.0.1/1/1", True),
        ("tcp://10.0.0.1:8786", False),
        ("tcp://localhost.example.org:8786", False),
        ("tcp://127.0.0.1.example.org:8786", False),
        ("tcp://0.0.0.0:8786", False),
    ],
)
def test_what_is_this_machine(address, here):
    assert is_loopback(address) is here


def test_a_stranger_is_not_talked_to_without_encryption():
    with pytest.raises(
        InsecureCluster, match=r"tcp://10\.0\.0\.1:8786 is not encrypted .*--insecure-cluster"
    ):
        security_for("tcp://10.0.0.1:8786")
    assert security_for("tcp://10.0.0.1:8786", insecure=True) is None
    assert security_for("tcp://127.0.0.1:8786") is None


def test_encryption_needs_certificates(certificates, tmp_path):
    _security, files = certificates
    with pytest.raises(InsecureCluster, match=r"ca_file, cert and key in \[cluster\.tls\]"):
        security_for("tls://10.0.0.1:8786")
    with pytest.raises(InsecureCluster, match="does not use them; write tls://"):
        security_for("tcp://127.0.0.1:8786", certificates=files)
    missing = files | {"key": str(tmp_path / "none.pem")}
    with pytest.raises(InsecureCluster, match=r"none\.pem cannot be read"):
        security_for("tls://10.0.0.1:8786", certificates=missing)
    (tmp_path / "junk.pem").write_text("junk")
    for name, message in (("ca_file", "no certificate of an authority"), ("cert", "no certificate with its")):
        with pytest.raises(InsecureCluster, match=rf"junk\.pem.* {message}"):
            security_for("tls://10.0.0.1:8786", certificates=files | {name: str(tmp_path / "junk.pem")})
    with dask.config.set({"distributed.comm.tls.client": {"cert": files["cert"], "key": files["key"]}}):
        assert security_for("tls://10.0.0.1:8786") is None  # Dask's own configuration is used


def test_nobody_is_asked_for_a_pass_phrase(certificates, tmp_path):
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    _security, files = certificates
    with open(files["key"], "rb") as file:
        key = serialization.load_pem_private_key(file.read(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"phrase"),
        )
    )
    with pytest.raises(InsecureCluster, match=r"locked\.pem is locked by a pass phrase"):
        security_for("tls://10.0.0.1:8786", certificates=files | {"key": str(locked)})


def test_certificates_are_for_this_user_alone_and_gone_afterwards(tmp_path):
    with temporary(tmp_path / "shared") as (_security, files):
        (folder,) = (tmp_path / "shared").iterdir()
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert {stat.S_IMODE(os.stat(file).st_mode) for file in files.values()} == {0o600}
        assert set(files) == {"ca_file", "cert", "key"}
    assert list((tmp_path / "shared").iterdir()) == []


def test_the_right_certificates_open(guarded, certificates):
    _security, files = certificates
    with connect(guarded, certificates=files) as client:
        assert client.scheduler_info()["workers"] == {}


def test_without_or_with_other_certificates_nobody_gets_in(guarded, tmp_path):
    impatient = {"distributed.comm.timeouts.connect": "1s"}
    plain = guarded.replace("tls://", "tcp://")
    with dask.config.set(impatient), pytest.raises(ClusterLost), connect(plain):
        pass
    with (
        temporary(tmp_path) as (_other, files),
        dask.config.set(impatient),
        pytest.raises(ClusterLost, match="no scheduler answers"),
        connect(guarded, certificates={name: str(path) for name, path in files.items()}),
    ):
        pass
