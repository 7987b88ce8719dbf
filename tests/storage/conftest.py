"""Fixtures for the storage tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

DRIVER = Path(__file__).with_name("run_driver.py")


@pytest.fixture(scope="session")
def driver() -> ModuleType:
    """The module ``run_driver``: a small deterministic run."""
    spec = importlib.util.spec_from_file_location("run_driver", DRIVER)
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_driver"] = module
    spec.loader.exec_module(module)
    return module
