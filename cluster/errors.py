"""Errors of the cluster layer: a type per reaction, not per place.

::

    ClusterError
     ├─ ClusterLost          the cluster is gone; the last committed round is intact, resume
     ├─ EnvironmentMismatch  a worker computes with other libraries or another CPU than the driver
     ├─ GraphTooLarge        data would have to travel inside the task graph
     ├─ InsecureCluster      strangers could reach the scheduler
     └─ PathNotShared        some worker does not see the run's folder

Exceptions raised by a method or a reader on a worker are not wrapped: they reach the caller as they are.
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base of all errors of the cluster layer."""


class ClusterLost(ClusterError):
    """The scheduler or its workers are gone; the message says what happened and how to go on."""


class EnvironmentMismatch(ClusterError):
    """A worker's environment would give other bits; the message names each differing field."""


class GraphTooLarge(ClusterError, ValueError):
    """A program, reader, reference or address is too large to be sent with every task."""


class InsecureCluster(ClusterError, ValueError):
    """Others than this user could run code on the cluster; the message says how to close it."""


class PathNotShared(ClusterError, OSError):
    """A worker cannot read what the driver wrote; the message names the path and the workers."""
