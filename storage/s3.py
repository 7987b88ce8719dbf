"""Buckets of S3 and of stores that speak like it: opened from the environment alone.

Credentials, region and endpoint are what the variables ``AWS_…`` say, or the machine's role.  They are never
an argument of ours: so they can get into no configuration, task graph, log or message, and every worker uses
its own.  Errors are told in our words; what the server or the client library says is not repeated.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import os
import re
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from .errors import StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")

CONNECT_TIMEOUT = timedelta(seconds=10)
REQUEST_TIMEOUT = timedelta(seconds=120)  # also of a whole chunk on a slow line
MAX_RETRIES = 10  # of one request, with growing pauses, for 5xx, dropped connections and timeouts
RETRY_TIMEOUT = timedelta(seconds=120)
FIRST_PAUSE, LONGEST_PAUSE = timedelta(milliseconds=100), timedelta(seconds=15)
AGAIN = (0.2, 1.0, 3.0)  # seconds before a call is made anew whose answer broke off
PATIENCE = 60.0  # seconds after which it is not made anew

_ANSWERS = ("AlreadyExistsError", "PreconditionError", "NotModifiedError", "NotFoundError")
_TOKENS = ("ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch")
_WORTH_WAITING = ("408", "409", "429")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def bucket(name: str) -> Any:
    """Return the client of a bucket, one for each state of the environment.

    Raises
    ------
    StoreRefused
        If the endpoint in the environment is plain ``http://`` to another machine, or holds a password.
    ImportError
        If obstore is not installed.
    """
    about = sorted((key, value) for key, value in os.environ.items() if key.upper().startswith("AWS_"))
    return _client(name, hashlib.sha256(repr(about).encode()).hexdigest())


def library() -> Any:
    """Return the module obstore; `ImportError` saying how to get it if it is not installed."""
    try:
        import obstore
    except ImportError:
        raise ImportError("s3:// needs obstore; install it with: pip install 'bitfleet[s3]'") from None
    return obstore


@contextmanager
def calling(where: object) -> Iterator[None]:
    """Tell errors of the client as `StoreUnavailable` or `StoreRefused`; let "not there" pass as it is."""
    try:
        yield
    except Exception as error:
        if (told := _told(error, where)) is None:
            raise
        raise told from None  # the client's own message may repeat requests


def repeated(call: Callable[[], _T], where: object) -> _T:
    """Return what a call returns that may be made any number of times, such as reading."""
    begun = time.monotonic()
    for wait in AGAIN:
        try:
            with calling(where):
                return call()
        except StoreUnavailable:
            if time.monotonic() - begun > PATIENCE:  # the client has tried again and again
                raise
            time.sleep(wait)
    with calling(where):
        return call()


@functools.lru_cache(maxsize=16)
def _client(name: str, environment: str) -> Any:
    endpoint = next((os.environ[key] for key in _ENDPOINTS if os.environ.get(key)), None)
    insecure = _check_endpoint(endpoint)
    given: dict[str, Any] = {} if endpoint is None else {"endpoint": endpoint}
    return library().store.S3Store(
        name,
        client_options={
            "allow_http": insecure,
            "connect_timeout": CONNECT_TIMEOUT,
            "timeout": REQUEST_TIMEOUT,
        },
        retry_config={
            "max_retries": MAX_RETRIES,
            "retry_timeout": RETRY_TIMEOUT,
            "backoff": {"init_backoff": FIRST_PAUSE, "base": 2, "max_backoff": LONGEST_PAUSE},
        },
        **given,
    )


def _check_endpoint(endpoint: str | None) -> bool:
    """Return whether the endpoint is plain http, which is allowed on this machine's loopback alone."""
    if endpoint is None:
        return False
    parts = urlsplit(endpoint)
    if "@" in parts.netloc:
        raise StoreRefused(
            "the endpoint in AWS_ENDPOINT_URL holds a name or password; give credentials as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if parts.scheme == "https":
        return False
    if parts.scheme == "http" and _is_loopback(parts.hostname or ""):
        return True
    raise StoreRefused(
        f"expected an endpoint https://…, AWS_ENDPOINT_URL is {parts.scheme}://{parts.hostname}; plain http "
        "is for this machine alone (127.0.0.1)"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _told(error: Exception, where: object) -> Exception | None:
    """Return our error for one of the client's, None if it is none of these."""
    text = str(error)
    code = found[1] if (found := re.search(r"<Code>(\w+)</Code>", text)) else ""
    if code == "NoSuchBucket":
        return StoreRefused(f"{where}: there is no such bucket; make it first, or mend the address")
    kind = type(error).__name__
    if not type(error).__module__.startswith("obstore") or kind in _ANSWERS:
        return None
    status = found[1].strip() if (found := re.search(r"status code: (\d+[\w ]*)", text)) else ""
    reason = " ".join(part for part in (status, code) if part) or _reason(text)
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or code in _TOKENS:
        return StoreRefused(
            f"{where}: the object store refuses access ({reason}); check AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION where this ran"
        )
    if status.startswith("4") and status[:3] not in _WORTH_WAITING:
        return StoreRefused(f"{where}: the object store refuses what was asked ({reason})")
    return StoreUnavailable(f"{where}: the object store did not do what was asked ({reason})")


def _reason(text: str) -> str:
    """Return the innermost reason that the client gives, if it is one that is known to hold no data."""
    known = ("operation timed out", "connection closed", "Connection refused", "dns error", "error sending")
    return next((reason for reason in known if reason.lower() in text.lower()), "the answer broke off")
