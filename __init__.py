"""bitfleet: learn compact binary codes for vector collections too large for one machine.

::

    import bitfleet as bf

    est = bf.POSH(n_bits=1024, n_active=32, random_state=0).fit(X)
    codes = est.encode(X)                                # packed, one row of bytes per row of X

    bf.ingest("vectors.npy", "vectors.zarr")             # or out of core, distributed and resumable:
    model = bf.train("vectors.zarr", "runs/a", "posh", scheduler="local", n_bits=1024)
    bf.encode(model, "vectors.zarr", "codes.zarr", scheduler="local")

Names are imported when they are first used, so ``import bitfleet`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster.errors import ClusterError, ClusterLost, EnvironmentMismatch
    from .pipeline.active_index import ActiveIndex
    from .pipeline.api import encode, ingest, open_dataset, resume, train
    from .pipeline.code_index import CodeIndex
    from .pipeline.describe import CodeStatistics, describe_codes
    from .pipeline.digits import load_digits
    from .pipeline.distortion import max_distortion
    from .pipeline.distortion_profile import DistortionProfile, distortion_profile
    from .pipeline.distortion_result import Distortion
    from .pipeline.errors import ConfigError, DistortionWarning, JobFailed
    from .pipeline.estimators_baselines import CBE, SKLSH, IsoHash
    from .pipeline.estimators_dense import ITQ, KNNH, LSH, Sign
    from .pipeline.estimators_eigenfunctions import MDSH, EigenfunctionSSH, SpectralHashing
    from .pipeline.estimators_isometric import NIBH, NIBHCG
    from .pipeline.estimators_pursuit import PursuitHash, SparseCoding
    from .pipeline.estimators_sampled import AGH, BRE, KLSH, SHD
    from .pipeline.estimators_sparse import BOSL, POSH, BioHash, FruitFly, SphericalHash
    from .pipeline.estimators_spectral import SSBC, Nystrom
    from .pipeline.evaluate import evaluate
    from .pipeline.export import export
    from .pipeline.job import Job, submit
    from .pipeline.model import Model, load
    from .pipeline.once import encode_once
    from .pipeline.packed_sets import pack_active, unpack_active
    from .pipeline.plan import plan
    from .pipeline.refine import fit_decoder
    from .pipeline.search import projections, search
    from .pipeline.spherical_hamming import spherical_hamming
    from .pipeline.stream import Streamed, open_stream, stream
    from .pipeline.sweep import sweep
    from .pipeline.weighted_hamming import weighted_hamming
    from .storage.codes import Codes, open_codes
    from .storage.datasets import Dataset, DatasetWriter
    from .storage.errors import (
        CorruptObject,
        DataRefused,
        DestinationExists,
        IdentityMismatch,
        ManifestConflict,
        StorageError,
        UnsafeObject,
    )
    from .tasks.sketch import FrequentDirections

__version__ = "0.1.0"

__all__ = [
    "AGH",
    "BOSL",
    "BRE",
    "CBE",
    "ITQ",
    "KLSH",
    "KNNH",
    "LSH",
    "MDSH",
    "NIBH",
    "NIBHCG",
    "POSH",
    "SHD",
    "SKLSH",
    "SSBC",
    "ActiveIndex",
    "BioHash",
    "ClusterError",
    "ClusterLost",
    "CodeIndex",
    "CodeStatistics",
    "Codes",
    "ConfigError",
    "CorruptObject",
    "DataRefused",
    "Dataset",
    "DatasetWriter",
    "DestinationExists",
    "Distortion",
    "DistortionProfile",
    "DistortionWarning",
    "EigenfunctionSSH",
    "EnvironmentMismatch",
    "FrequentDirections",
    "FruitFly",
    "IdentityMismatch",
    "IsoHash",
    "Job",
    "JobFailed",
    "ManifestConflict",
    "Model",
    "Nystrom",
    "PursuitHash",
    "Sign",
    "SparseCoding",
    "SpectralHashing",
    "SphericalHash",
    "StorageError",
    "Streamed",
    "UnsafeObject",
    "describe_codes",
    "distortion_profile",
    "encode",
    "encode_once",
    "evaluate",
    "export",
    "fit_decoder",
    "ingest",
    "load",
    "load_digits",
    "max_distortion",
    "open_codes",
    "open_dataset",
    "open_stream",
    "pack_active",
    "plan",
    "projections",
    "resume",
    "search",
    "spherical_hamming",
    "stream",
    "submit",
    "sweep",
    "train",
    "unpack_active",
    "weighted_hamming",
]

_HOME = {
    ".pipeline.estimators_baselines": ("CBE", "SKLSH", "IsoHash"),
    ".pipeline.estimators_eigenfunctions": ("MDSH", "EigenfunctionSSH", "SpectralHashing"),
    ".pipeline.estimators_dense": ("ITQ", "KNNH", "LSH", "Sign"),
    ".pipeline.estimators_isometric": ("NIBH", "NIBHCG"),
    ".pipeline.estimators_pursuit": ("PursuitHash", "SparseCoding"),
    ".pipeline.estimators_sparse": ("BOSL", "POSH", "BioHash", "FruitFly", "SphericalHash"),
    ".pipeline.estimators_sampled": ("AGH", "BRE", "KLSH", "SHD"),
    ".pipeline.estimators_spectral": ("SSBC", "Nystrom"),
    ".pipeline.active_index": ("ActiveIndex",),
    ".pipeline.api": ("encode", "ingest", "open_dataset", "resume", "train"),
    ".pipeline.digits": ("load_digits",),
    ".pipeline.describe": ("CodeStatistics", "describe_codes"),
    ".pipeline.export": ("export",),
    ".pipeline.evaluate": ("evaluate",),
    ".pipeline.model": ("Model", "load"),
    ".pipeline.plan": ("plan",),
    ".pipeline.refine": ("fit_decoder",),
    ".pipeline.code_index": ("CodeIndex",),
    ".pipeline.distortion": ("max_distortion",),
    ".pipeline.distortion_profile": ("DistortionProfile", "distortion_profile"),
    ".pipeline.distortion_result": ("Distortion",),
    ".pipeline.search": ("projections", "search"),
    ".pipeline.once": ("encode_once",),
    ".pipeline.packed_sets": ("pack_active", "unpack_active"),
    ".pipeline.stream": ("Streamed", "open_stream", "stream"),
    ".pipeline.sweep": ("sweep",),
    ".pipeline.spherical_hamming": ("spherical_hamming",),
    ".pipeline.weighted_hamming": ("weighted_hamming",),
    ".pipeline.errors": ("ConfigError", "DistortionWarning", "JobFailed"),
    ".pipeline.job": ("Job", "submit"),
    ".storage.codes": ("Codes", "open_codes"),
    ".storage.datasets": ("Dataset", "DatasetWriter"),
    ".storage.errors": (
        "CorruptObject",
        "DataRefused",
        "DestinationExists",
        "IdentityMismatch",
        "ManifestConflict",
        "StorageError",
        "UnsafeObject",
    ),
    ".tasks.sketch": ("FrequentDirections",),
    ".cluster.errors": ("ClusterError", "ClusterLost", "EnvironmentMismatch"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bitfleet' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
