"""The environment fingerprint: everything about a process that may change the bits of a sum.

Two processes with equal fingerprints run the same kernels in the same order.  The driver's is compared with
every worker's, on its first task at the latest, and stored with each run, so that a resume elsewhere is
noticed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import json
import platform
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import EnvironmentMismatch
from .threads import controller

if TYPE_CHECKING:
    from collections.abc import Mapping


def environment() -> dict[str, str]:
    """Return this process's fingerprint, field by field.

    Returns
    -------
    dict
        ``python`` (major.minor), ``machine``, the versions of ``bitfleet``, ``numpy`` and ``scipy``,
        ``kernels`` (numba with its version, or numpy), ``blas`` (each BLAS that NumPy and SciPy use, with
        version and processor architecture) and ``cpu`` (the vector extensions that NumPy has found).
    """
    return dict(_environment())


def digest(env: Mapping[str, str]) -> str:
    """Return the SHA-256 of a fingerprint; independent of the order of its fields."""
    text = json.dumps(dict(env), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def differences(expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Name the fields that differ, as ``"numpy: 2.4.6 expected, 2.3.1 found"``."""
    return [
        f"{name}: {expected.get(name, 'nothing')} expected, {found.get(name, 'nothing')} found"
        for name in sorted({*expected, *found})
        if expected.get(name) != found.get(name)
    ]


def check(expected: Mapping[str, str], found: Mapping[str, str], where: str) -> None:
    """Raise `EnvironmentMismatch` if the fingerprint found at ``where`` is not the expected one."""
    differing = differences(expected, found)
    if differing:
        raise EnvironmentMismatch(
            f"{where} would not give the same bits as the driver ({'; '.join(differing)}). Start all workers "
            "from the driver's environment on the same kind of processor, or allow the change "
            "(allow_environment_change) and accept results that agree only within rounding."
        )


@cache
def _environment() -> dict[str, str]:
    return {
        "bitfleet": _version("bitfleet"),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
        "numpy": np.__version__,
        "scipy": _version("scipy"),
        "kernels": _kernels(),
        "blas": _blas(),
        "cpu": " ".join(_cpu_extensions()),
    }


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _kernels() -> str:
    try:
        import numba
    except ImportError:
        return "numpy"
    return f"numba {numba.__version__}"


def _blas() -> str:
    """List NumPy's and SciPy's BLAS; what other packages bring along (PyTorch, Faiss) is left out."""
    found = {
        " ".join(str(pool.get(key) or "?") for key in ("internal_api", "version", "architecture"))
        for pool in controller().info()
        if pool["user_api"] == "blas" and _serves_numpy(pool["filepath"])
    }
    return ", ".join(sorted(found)) or "unknown"


def _serves_numpy(library: str) -> bool:
    """Tell a library of NumPy, SciPy or the system from one inside some other installed package."""
    folders = Path(library).parts
    packages = [
        below for folder, below in itertools.pairwise(folders) if folder in ("site-packages", "dist-packages")
    ]
    return not packages or packages[-1].partition(".")[0] in ("numpy", "scipy")


def _cpu_extensions() -> list[str]:
    config: Any = np.show_config(mode="dicts")
    found = config.get("SIMD Extensions", {})
    return [*found.get("baseline", []), *found.get("found", [])]
