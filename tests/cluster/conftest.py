"""Makes the toy programs importable here and, by value, on workers; clusters shared by all cluster tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import cloudpickle


def _load_toys() -> None:
    name = "cluster_toys"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)


_load_toys()
