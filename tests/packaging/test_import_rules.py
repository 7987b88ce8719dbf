"""The import directions between the layers, and which library may be imported where."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAYERS = ("pipeline", "cluster", "storage", "tasks")

# our own layers: who may import whom
ALLOWED = {
    "pipeline": {"pipeline", "cluster", "storage", "tasks"},
    "cluster": {"cluster", "tasks.protocols"},
    "storage": {"storage"},
    "tasks": {"tasks"},
}

# third parties: the only places that may import them (prefixes of module paths)
CONFINED = {
    "dask": ("cluster.",),
    "distributed": ("cluster.",),
    "zarr": ("storage.",),
    "numcodecs": ("storage.",),
    "obstore": ("storage.",),
    "h5py": ("storage.formats.",),
    "pyarrow": ("storage.formats.", "pipeline.export_codes"),
    "typer": ("pipeline.cli",),
    "click": ("pipeline.cli",),
    "rich": ("pipeline.cli", "pipeline.progress"),
    "pydantic": ("pipeline.config", "pipeline.validation"),
    "matplotlib": ("pipeline.report",),
    "sklearn": ("pipeline.estimators",),
    "faiss": ("pipeline.export_faiss",),
}
TASKS_MAY_IMPORT = {"numpy", "scipy", "numba", "llvmlite"}
TASKS_MAY_NOT_CALL = {"time", "logging", "random", "os", "pathlib", "io", "socket", "subprocess", "datetime"}
COMPILED_CODE_CACHE = "tasks.kernels._numba"  # finds the folder where numba may keep machine code


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (dotted path inside the package, file) of every module of ours."""
    for layer in LAYERS:
        for file in sorted((root / layer).rglob("*.py")):
            dotted = ".".join(file.relative_to(root).with_suffix("").parts)
            yield dotted.removesuffix(".__init__"), file


def imports(dotted: str, file: Path) -> Iterator[str]:
    """Yield what a module imports: ``ours.<path>`` for the package's modules, else the dotted name."""
    package = dotted if file.name == "__init__.py" else dotted.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            parts = package.split(".") if package else []
            base = parts[: len(parts) - node.level + 1]
            target = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"ours.{target}.{alias.name}".replace("..", ".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def test_layers_import_only_downwards(root: Path) -> None:
    wrong = []
    for dotted, file in modules(root):
        layer = dotted.split(".")[0]
        for name in imports(dotted, file):
            if name.startswith("bitfleet"):
                wrong.append(f"{dotted}: import {name} absolutely; use a relative import")
            if not name.startswith("ours."):
                continue
            target = name.removeprefix("ours.")
            if target.split(".")[0] in LAYERS and not any(
                target == ok or target.startswith(ok + ".") for ok in ALLOWED[layer]
            ):
                wrong.append(f"{dotted} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_libraries_stay_where_they_belong(root: Path) -> None:
    wrong = []
    for dotted, file in modules(root):
        for name in imports(dotted, file):
            library = name.split(".")[0]
            if library in CONFINED and not any(
                (dotted + ".").startswith(p) or dotted.startswith(p) for p in CONFINED[library]
            ):
                wrong.append(
                    f"{dotted} imports {library}; only {CONFINED[library] or 'benchmarks and tests'} may"
                )
    assert not wrong, "\n".join(wrong)


def test_tasks_are_numpy_scipy_numba_alone(root: Path) -> None:
    import sys

    wrong = []
    for dotted, file in modules(root):
        if not dotted.startswith("tasks") or dotted == COMPILED_CODE_CACHE:
            continue
        for name in imports(dotted, file):
            library = name.split(".")[0]
            if library == "ours":
                continue
            stdlib = library in sys.stdlib_module_names and library not in TASKS_MAY_NOT_CALL
            if not stdlib and library not in TASKS_MAY_IMPORT:
                wrong.append(f"{dotted} imports {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", ["pickle", "joblib", "yaml", "marshal", "shelve", "dill"])
def test_nothing_unpickles(root: Path, module: str) -> None:
    users = [dotted for dotted, file in modules(root) if module in set(imports(dotted, file))]
    assert users == []
