"""A client of a scheduler that is there already, at an address."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import dask
from dask.utils import parse_timedelta
from distributed import Client
from distributed.core import connect
from distributed.security import Security

from .errors import ClusterLost
from .security import security_for

if TYPE_CHECKING:
    from collections.abc import Mapping

REGISTER_AGAIN_SECONDS = 1.0
ANSWER_SECONDS = 20.0  # a scheduler that does not answer for so long is lost; Dask itself gives it 30


def join(address: str, certificates: Mapping[str, str] | None, insecure: bool) -> Client:
    """Return a client; who takes it closes it.

    Raises
    ------
    ClusterLost
        If nobody answers at the address, or something that is no scheduler.
    InsecureCluster
        See `security_for`.
    """
    security = security_for(address, certificates=certificates, insecure=insecure)
    try:
        _greet(address, security)
        return _registered(address, security)
    except (OSError, TimeoutError) as error:
        doubt = ", and are the certificates of its authority, and still valid" if security else ""
        reason = str(error) or f"{patience():g} s went by"
        raise ClusterLost(f"no scheduler answers at {address} ({reason}); is it running{doubt}?") from error


def patience() -> float:
    """Return the seconds after which a scheduler that does not answer is lost."""
    return float(min(ANSWER_SECONDS, parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))))


def _greet(address: str, security: Security | None) -> None:
    """Connect once and leave: a client would wait for ever for a peer that takes its call and is silent."""
    with ThreadPoolExecutor(1) as aside:  # the caller may be in an event loop
        try:
            aside.submit(asyncio.run, _shake_hands(address, security or Security())).result()
        except OSError:
            raise
        except Exception as error:  # what another server says is taken for sizes and messages
            raise ClusterLost(
                f"what answers at {address} is no scheduler that this version of Dask understands "
                f"({type(error).__name__}: {error}); is the port right?"
            ) from error


async def _shake_hands(address: str, security: Security) -> None:
    arguments = security.get_connection_args("client")
    comm = await asyncio.wait_for(connect(address, timeout=patience(), **arguments), patience() + 1)
    await comm.close()


def _registered(address: str, security: Security | None) -> Client:
    try:
        return Client(address, security=security, timeout=patience())
    except AssertionError:
        # distributed expects nothing but the answer to its registration, but the scheduler may just then
        # tell all clients of keys that another one has cancelled
        time.sleep(REGISTER_AGAIN_SECONDS)
        return Client(address, security=security, timeout=patience())
