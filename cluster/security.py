"""Who may talk to a scheduler: whoever can, can run code on its workers.

Within this machine anybody who reaches the loopback interface is trusted.  Everything else is mutual TLS: the
certificates of the user's cluster, or ones made for the life of a cluster that was launched here.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import ssl
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import dask
from distributed.security import Security

from .errors import InsecureCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ENCRYPTED = ("tls", "wss", "inproc")
CERTIFICATES = {"ca_file": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
ROLES = ("client", "scheduler", "worker")
CONFIGURED = "distributed.comm.tls.client.cert"


def is_loopback(address: str) -> bool:
    """Tell whether nothing but this machine can be meant by ``protocol://host:port``."""
    if address.startswith("inproc://"):
        return True
    host = address.split("://")[-1].rsplit(":", 1)[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def security_for(
    address: str, *, certificates: Mapping[str, str] | None = None, insecure: bool = False
) -> Security | None:
    """Return what a client of ``address`` shows and asks for, None for Dask's own configuration.

    Parameters
    ----------
    address : str
        Of the scheduler, such as ``"tls://head:8786"``.
    certificates : mapping, optional
        Files ``ca_file``, ``cert`` and ``key`` (PEM); without them Dask's ``distributed.comm.tls`` is used.
    insecure : bool
        Accept a scheduler beyond this machine without encryption.

    Raises
    ------
    InsecureCluster
        If the address is neither on this machine nor encrypted, or certificates cannot be used.
    """
    protocol = address.split("://")[0]
    if protocol not in ENCRYPTED:
        if certificates:
            raise InsecureCluster(f"certificates were given, but {address} does not use them; write tls://…")
        if not insecure and not is_loopback(address):
            raise InsecureCluster(
                f"{address} is not encrypted and not on this machine: whoever reaches it can run code on its "
                "workers and read the data. Start the scheduler with certificates and use tls://…; or, on a "
                "network that you trust, say --insecure-cluster (in a job file: insecure = true)"
            )
        return None
    if certificates:
        return _from_files(certificates)
    if protocol != "inproc" and dask.config.get(CONFIGURED, None) is None:
        raise InsecureCluster(
            f"{address} asks for certificates: give ca_file, cert and key in [cluster.tls], or set Dask's "
            "distributed.comm.tls"
        )
    return None


@contextmanager
def temporary(folder: Path) -> Iterator[tuple[Security, dict[str, Path]]]:
    """Make certificates for one cluster's life; yield what shows them and the files that its workers read.

    The files lie in a folder of their own below ``folder``, readable by this user alone, and are removed on
    the way out.
    """
    try:
        security = Security.temporary()
    except ImportError as error:
        raise ImportError(
            f"certificates need the package cryptography ({error}): pip install 'bitfleet[tls]'"
        ) from error
    own = folder / f"tls-{secrets.token_hex(8)}"
    own.mkdir(mode=0o700, parents=True)
    files = {name: own / file for name, file in CERTIFICATES.items()}
    try:
        for name, text in security.get_tls_config_for_role("worker").items():
            if name in files:
                _write_private(files[name], text)
        yield _of_files({name: str(file) for name, file in files.items()}), files
    finally:
        for file in files.values():
            file.unlink(missing_ok=True)
        own.rmdir()


def _of_files(files: Mapping[str, str]) -> Security:
    """Return what shows the same files in all roles; of a text, each library would make files of its own."""
    roles = {f"tls_{role}_{name}": files[name] for role in ROLES for name in ("cert", "key")}
    return Security(require_encryption=True, tls_ca_file=files["ca_file"], **roles)


def _from_files(certificates: Mapping[str, str]) -> Security:
    ca_file, cert, key = (str(Path(certificates[name]).expanduser()) for name in ("ca_file", "cert", "key"))
    for file in (ca_file, cert, key):
        if not os.access(file, os.R_OK):
            raise InsecureCluster(f"expected a PEM file of [cluster.tls], but {file} cannot be read")
    _try_out(ca_file, cert, key)
    return Security(require_encryption=True, tls_ca_file=ca_file, tls_client_cert=cert, tls_client_key=key)


def _try_out(ca_file: str, cert: str, key: str) -> None:
    """Raise `InsecureCluster` for files that no connection can use; it would say that nobody answers."""

    def locked() -> str:  # without it OpenSSL asks at the terminal, whether or not somebody sits there
        raise InsecureCluster(f"{key} is locked by a pass phrase; give a key that is not, for you alone")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:
        raise InsecureCluster(f"{ca_file} is no certificate of an authority in PEM form ({error})") from error
    try:
        context.load_cert_chain(cert, key, password=locked)
    except OSError as error:
        raise InsecureCluster(f"{cert} and {key} are no certificate with its key, PEM ({error})") from error


def _write_private(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
