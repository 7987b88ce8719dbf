"""What a cluster on Kubernetes is made of: the `DaskCluster` that Dask's operator turns into pods."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .launchers import Size

NAME = "bitfleet"
IDLE_SECONDS = 3600  # without work for so long, the operator removes the cluster
MOUNT = "runs"
USER = 1000  # of the image: no process of ours is root

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def manifest(size: Size, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``DaskCluster`` resource.

    Parameters
    ----------
    size : Size
    options : mapping
        ``image`` (required), ``name``, ``cpu`` (per worker), ``env`` (name to value), ``env_from`` (a Secret
        whose entries become environment variables: where credentials belong), ``claim`` and ``mount`` (a
        PersistentVolumeClaim that all pods mount, and where).
    """
    name = options.get("name") or NAME
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": NAME}},
        "spec": {
            "idleTimeout": IDLE_SECONDS,
            "worker": {"replicas": size.n_workers, "spec": _worker_pod(size, options)},
            "scheduler": {"spec": _scheduler_pod(options), "service": _service(name)},
        },
    }


def _worker_pod(size: Size, options: Mapping[str, Any]) -> dict[str, Any]:
    memory = _quantity(size.memory_limit or "4 GiB")
    amount = {"cpu": str(options.get("cpu") or size.threads_per_worker), "memory": memory}
    arguments = [
        "dask",
        "worker",
        "--name",
        "$(DASK_WORKER_NAME)",
        "--nthreads",
        str(size.threads_per_worker),
    ]
    arguments += ["--memory-limit", "auto", "--no-dashboard", "--death-timeout", "60"]
    container = _container("worker", arguments, options)
    container["resources"] = {"requests": amount, "limits": {"memory": memory}}
    return _pod(container, options)


def _scheduler_pod(options: Mapping[str, Any]) -> dict[str, Any]:
    container = _container("scheduler", ["dask", "scheduler", "--host", "0.0.0.0"], options)
    container["ports"] = [
        {"name": "tcp-comm", "containerPort": 8786, "protocol": "TCP"},
        {"name": "http-dashboard", "containerPort": 8787, "protocol": "TCP"},
    ]
    probe = {"httpGet": {"port": "http-dashboard", "path": "/health"}, "periodSeconds": 10}
    container["readinessProbe"] = probe | {"initialDelaySeconds": 5}
    container["livenessProbe"] = probe | {"initialDelaySeconds": 15}
    return _pod(container, options)


def _container(name: str, arguments: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    env = {variable: "1" for variable in ONE_THREAD} | dict(options.get("env") or {})
    container: dict[str, Any] = {
        "name": name,
        "image": options["image"],
        "args": arguments,
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": USER,
        },
    }
    if options.get("env_from"):
        container["envFrom"] = [{"secretRef": {"name": options["env_from"]}}]
    if options.get("claim"):
        container["volumeMounts"] = [{"name": MOUNT, "mountPath": options.get("mount") or f"/{MOUNT}"}]
    return container


def _pod(container: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = {"containers": [container]}
    if options.get("claim"):
        pod["volumes"] = [{"name": MOUNT, "persistentVolumeClaim": {"claimName": options["claim"]}}]
        pod["securityContext"] = {"fsGroup": USER}
    return pod


def _service(name: str) -> dict[str, Any]:
    selector = {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    ports = (("tcp-comm", 8786), ("http-dashboard", 8787))
    return {
        "type": "ClusterIP",
        "selector": selector,
        "ports": [{"name": n, "protocol": "TCP", "port": p, "targetPort": n} for n, p in ports],
    }


def _quantity(memory: str) -> str:
    """Return Kubernetes' form of ``"4 GiB"``: ``"4Gi"``; there ``m`` means a thousandth, ``K`` nothing."""
    number, unit = re.fullmatch(r"([\d.]+)\s*([a-z]*)", memory.strip().lower()).groups()  # type: ignore[union-attr]
    unit = unit.removesuffix("b")
    return number + (unit if unit in ("", "k") else unit[0].upper() + unit[1:])
