"""Errors of the storage layer: a type per reaction, not per place.

::

    StorageError
     ├─ DataRefused        the source's content is not acceptable (NaN, no vectors, ragged rows)
     │   └─ NothingYet     there is nothing yet, and may be later
     ├─ DestinationExists  something is already there and would be overwritten
     ├─ UnsafeObject       reading it would need a codec, type or size outside the white-list
     ├─ CorruptObject      missing, truncated or changed since it was written
     ├─ ManifestConflict   another driver has committed this round
     ├─ IdentityMismatch   the run belongs to another configuration, data set or environment
     ├─ StoreUnavailable   the object store does not answer, or not yet; the same call may succeed later
     └─ StoreRefused       the object store, or the way to it, is not to be used like this
"""

from __future__ import annotations


class StorageError(Exception):
    """Base of all errors of the storage layer."""


class DataRefused(StorageError, ValueError):
    """The source's content is not acceptable; the message names rows and the remedy."""


class NothingYet(DataRefused):
    """There is nothing to take rows from yet; who waits may find something."""


class DestinationExists(StorageError, FileExistsError):
    """Something is already there and would be overwritten."""


class UnsafeObject(StorageError):
    """Reading it would need a codec, data type, path or size outside the white-list."""


class CorruptObject(StorageError):
    """It is missing, truncated, or not the bytes that were written; the message names the path."""


class ManifestConflict(StorageError):
    """Another driver has committed this round; the message names the winner."""


class IdentityMismatch(StorageError):
    """The run belongs to another configuration, data set or environment; the message names each field."""


class StoreUnavailable(StorageError, ConnectionError):
    """The object store does not answer, or throttles for longer than we wait; later it may succeed."""


class StoreRefused(StorageError, PermissionError):
    """The object store refuses access, or the environment does not lead to it safely."""
