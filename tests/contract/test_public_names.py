"""The public names, their lazy import, and that estimators and methods speak the same language."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from typing import Any

import bitfleet as bf
import pytest
from bitfleet.tasks import registry

HEAVY = (
    "numpy",
    "zarr",
    "dask",
    "distributed",
    "sklearn",
    "scipy",
    "numba",
    "pydantic",
    "xarray",
    "pandas",
    "rich",
    "typer",
)
ESTIMATORS = {
    "sign": "Sign",
    "lsh": "LSH",
    "itq": "ITQ",
    "knnh": "KNNH",
    "isohash": "IsoHash",
    "spectral_hashing": "SpectralHashing",
    "mdsh": "MDSH",
    "eigenfunction_ssh": "EigenfunctionSSH",
    "cbe": "CBE",
    "sklsh": "SKLSH",
    "nibh": "NIBH",
    "ssbc": "SSBC",
    "nystrom": "Nystrom",
    "agh": "AGH",
    "klsh": "KLSH",
    "shd": "SHD",
    "bre": "BRE",
    "nibh_cg": "NIBHCG",
    "fruit_fly": "FruitFly",
    "biohash": "BioHash",
    "spherical_hash": "SphericalHash",
    "posh": "POSH",
    "pursuit_hash": "PursuitHash",
    "sparse_coding": "SparseCoding",
    "bosl": "BOSL",
}


def modules_after(statement: str) -> list[str]:
    """The modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_the_package_imports_nothing_heavy() -> None:
    loaded = modules_after("import bitfleet; dir(bitfleet); bitfleet.__version__")
    assert [name for name in loaded if name.split(".")[0] in HEAVY] == []
    assert [name for name in loaded if name.startswith("bitfleet")] == ["bitfleet"]


def test_errors_cost_little_and_the_help_needs_no_arrays() -> None:
    loaded = modules_after("import bitfleet; bitfleet.DataRefused, bitfleet.ClusterLost")
    assert [name for name in loaded if name.split(".")[0] in HEAVY] == []
    heavy = set(HEAVY) - {"rich", "typer"}
    loaded = modules_after("import bitfleet.pipeline.cli")
    assert [name for name in loaded if name.split(".")[0] in heavy] == []


def test_dask_is_imported_by_who_uses_a_cluster_only() -> None:
    loaded = modules_after("import bitfleet; bitfleet.LSH, bitfleet.train, bitfleet.load, bitfleet.encode")
    assert [name for name in loaded if name.split(".")[0] == "distributed"] == []


def test_every_name_is_there_and_known() -> None:
    assert sorted(set(bf.__all__)) == sorted(bf.__all__)
    for name in bf.__all__:
        assert getattr(bf, name) is not None
        assert name in dir(bf)
    assert bf.POSH.__module__ == "bitfleet.pipeline.estimators_sparse"


def test_what_design_promises() -> None:
    promised = {*ESTIMATORS.values(), "Dataset", "ingest", "open_dataset", "train", "resume"}
    assert promised | {"encode", "evaluate", "load"} <= set(bf.__all__)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'bitfleet' has no attribute 'POSCH'"):
        bf.POSCH  # noqa: B018


def test_star_import() -> None:
    names: dict[str, Any] = {}
    exec("from bitfleet import *", names)
    assert set(bf.__all__) <= set(names)


@pytest.mark.parametrize("name", sorted(registry.METHODS))
def test_estimator_and_method_have_the_same_parameters(name: str) -> None:
    estimator = getattr(bf, ESTIMATORS[name])
    given = {
        key: parameter.default
        for key, parameter in inspect.signature(estimator).parameters.items()
        if key != "random_state"
    }
    fields = {f.name: f.default for f in dataclasses.fields(registry.get(name)) if f.init}  # type: ignore[arg-type]
    assert given == fields


@pytest.mark.parametrize("name", [n for n in bf.__all__ if callable(getattr(bf, n))])
def test_every_name_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(bf, name))


def test_every_function_and_estimator_has_an_example() -> None:
    """All but `submit` and `plan`, whose examples in the documentation need a cluster or a job file."""
    functions = {name for name in bf.__all__ if inspect.isfunction(getattr(bf, name))}
    bare = [
        name
        for name in (functions | set(ESTIMATORS.values())) - {"submit", "plan"}
        if ">>> " not in (inspect.getdoc(getattr(bf, name)) or "")
    ]
    assert bare == []


def test_importing_the_package_takes_no_time() -> None:
    code = "import time; t = time.process_time(); import bitfleet; print(time.process_time() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.3
