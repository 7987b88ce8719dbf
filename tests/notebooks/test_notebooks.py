"""The notebooks run from top to bottom, each in a kernel of its own, and are kept without outputs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install 'bitfleet[dev]'")
nbformat = pytest.importorskip("nbformat")

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 60  # each, on two cores that have nothing else to do
QUICK = {"01_quickstart"}  # the others take two minutes together


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[0].source.startswith("# ")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.timeout(5 * SECONDS)
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.long] if path.stem not in QUICK else [])
        for path in NOTEBOOKS
    ],
)
def test_runs(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem == "06_text_embeddings":
        request.getfixturevalue("shared_data")
    for library in ("OMP", "OPENBLAS"):  # as `one_blas_thread` does in this process
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=4 * SECONDS, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    )
    client.execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_to_files(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    targets = re.findall(r"\]\(([^)#]+)", "".join(cell.source for cell in cells if cell.cell_type != "code"))
    assert targets
    assert [target for target in targets if not (FOLDER / target).exists()] == []


def test_all_of_them_are_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "01_quickstart",
        "02_choose_a_method",
        "03_scale_out",
        "04_certified_distortion",
        "05_streaming",
        "06_text_embeddings",
    ]
