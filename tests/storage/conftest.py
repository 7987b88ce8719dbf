"""Fixtures for the storage tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from bitfleet.storage.object_paths import ObjectPath

DRIVER = Path(__file__).with_name("run_driver.py")


@pytest.fixture(params=["local", "s3"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path | ObjectPath:
    """An empty place: a folder, and an address in an object store; the same holds of both."""
    return tmp_path if request.param == "local" else request.getfixturevalue("s3") / "home"


@pytest.fixture(scope="session")
def driver() -> ModuleType:
    """The module ``run_driver``: a small deterministic run."""
    spec = importlib.util.spec_from_file_location("run_driver", DRIVER)
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_driver"] = module
    spec.loader.exec_module(module)
    return module
