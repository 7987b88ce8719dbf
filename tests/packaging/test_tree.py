"""The package as installed: one name per module, the wheel's content, executable docstrings."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
import tomllib
import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = ("pipeline", "tasks", "storage", "cluster")


def source_modules(root: Path) -> list[str]:
    files = [root / "__init__.py", *(f for folder in FOLDERS for f in (root / folder).rglob("*.py"))]
    names = [".".join(("bitfleet", *f.relative_to(root).with_suffix("").parts)) for f in files]
    return sorted(n.removesuffix(".__init__") for n in names)


def test_every_folder_with_code_is_packaged(root: Path) -> None:
    listed = set(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    there = {m.rpartition(".")[0] for m in source_modules(root) if m.count(".")} | {"bitfleet"}
    assert there <= listed


def test_no_module_is_loaded_under_another_name(root: Path) -> None:
    for name in source_modules(root):
        importlib.import_module(name)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        other = ("/.venv", "/tests/", "/docs/")  # the site's hooks are MkDocs' to name
        if file and str(file).startswith(str(root) + "/") and not any(part in file for part in other):
            assert name.split(".")[0] == "bitfleet", f"{file} is also loaded as {name}"


def test_docstrings_run(root: Path) -> None:
    failed = 0
    for name in source_modules(root):
        failed += doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed
    assert failed == 0


@pytest.mark.timeout(240)
def test_the_wheel_holds_the_tree(root: Path, tmp_path: Path) -> None:
    """The wheel's modules are the tree's modules, with the typing marker and the bundled data."""
    clone = tmp_path / "clone"
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if files.returncode:
        pytest.skip("not a git checkout")
    for name in files.stdout.splitlines():
        if (root / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_bytes((root / name).read_bytes())
    build = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path / "dist"), str(clone)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert build.returncode == 0, build.stderr[-2000:]
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    expected = {m.replace(".", "/") for m in source_modules(root)}
    expected = {
        p + "/__init__.py" if (root / p.removeprefix("bitfleet").lstrip("/")).is_dir() else p + ".py"
        for p in expected
    }
    expected |= {"bitfleet/py.typed", "bitfleet/pipeline/demo/digits.npz", "bitfleet/pipeline/demo/README.md"}
    assert names == expected
