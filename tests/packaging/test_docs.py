"""The documentation's code runs, its job files validate, its commands parse, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import bitfleet as bf
import numpy as np
import pytest
import typer
from bitfleet.pipeline.cli import app
from bitfleet.pipeline.config import load_job
from bitfleet.pipeline.config_sweep import load_sweep
from bitfleet.tasks.registry import METHODS, get

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "notebooks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
VERBS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in FENCE.findall(page.read_text("utf-8")) if language in languages]


def having(*languages: str) -> Any:
    pages = [page for page in PAGES if blocks(page, *languages)]
    return pytest.mark.parametrize("page", pages, ids=[page.name for page in pages])


def commands(page: Path) -> list[list[str]]:
    """Return the commands of the shell blocks, split as a shell splits them."""
    lines = "".join(blocks(page, "sh", "bash", "console")).replace("\\\n", " ").splitlines()
    split = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [words[1:] for words in split if words and words[0] == "bitfleet"]


def mentions(page: Path) -> list[list[str]]:
    """Return what stands in the text as `bitfleet VERB ...`."""
    text = FENCE.sub("", page.read_text("utf-8"))
    return [span.split() for span in re.findall(r"`bitfleet ([^`]+)`", text)]


@pytest.fixture
def workplace(tmp_path, monkeypatch) -> dict[str, Any]:
    """A folder with the files, and a namespace with the names, that the pages take for granted."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.arange(300) % 5
    X = (rng.normal(size=(5, 48))[y] * 2 + rng.normal(size=(300, 48))).astype("float32")
    np.save("vectors.npy", X)
    np.save("labels.npy", y)
    np.savetxt("vectors.csv", X, delimiter=",")
    bf.ingest("vectors.npy", "vectors.zarr")
    bf.ingest("vectors.npy", "digits.zarr", labels="labels.npy")
    bf.ingest("vectors.npy", "queries.zarr", labels="labels.npy", limit=20)
    model = bf.train("digits.zarr", "runs/posh", "posh", n_bits=256, n_active=16, n_epochs=1)
    bf.encode(model, "digits.zarr", "codes.zarr")
    return {"bf": bf, "np": np, "X": X, "y": y, "model": model, "codes": model.encode(X)}


@having("python")
def test_python_runs(page, workplace):
    workplace["__name__"] = "documentation"  # what stands under a main guard is compiled alone
    for text in blocks(page, "python"):
        if "import faiss" in text:
            pytest.importorskip("faiss")
        exec(compile(text, str(page), "exec", dont_inherit=True), workplace)


def test_the_five_lines_give_what_they_say(workplace):
    exec(blocks(ROOT / "README.md", "python")[0], workplace)
    assert workplace["codes"].shape == (300, 128)
    assert workplace["bits"].shape == (300, 1024)
    assert set(np.unique(workplace["bits"])) == {0, 1}
    np.testing.assert_array_equal(bf.load("posh.zarr").encode(workplace["X"]), workplace["codes"])


@having("toml")
def test_job_files_are_valid(page, tmp_path):
    for text in blocks(page, "toml"):
        read = load_sweep if text.startswith("[sweep]") else load_job
        job = tmp_path / "job.toml"
        job.write_text(text, "utf-8")
        read(job)
        # what is commented out is offered to the reader, so it has to be valid, too
        job.write_text(re.sub(r"^# (?=\w+ = )", "", text, flags=re.M), "utf-8")
        read(job)


@having("sh", "bash", "console")
def test_commands_parse(page):
    for words in commands(page):
        verb, *arguments = words
        assert verb in VERBS, f"bitfleet {verb}"
        VERBS[verb].make_context(verb, arguments)  # refuses unknown options, missing and left-over arguments


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_verbs_and_options_in_the_text_exist(page):
    for verb, *words in mentions(page):
        if verb.startswith("-") or verb == "VERB":
            continue
        assert verb in VERBS, f"bitfleet {verb}"
        known = {name for option in VERBS[verb].params for name in option.opts}
        assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_example_in_the_help_parses(verb):
    examples = re.findall(r"Example: `bitfleet ([^`]+)`", VERBS[verb].help)
    assert examples, "every verb shows an example"
    for words in map(shlex.split, examples):
        assert words[0] == verb
        VERBS[verb].make_context(verb, words[1:])


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_make_targets_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for page in PAGES:
        assert set(re.findall(r"\bmake ([a-z-]+)\b(?=`|\n|  )", page.read_text("utf-8"))) <= targets


def test_every_method_is_in_the_tables_of_methods():
    readme = (ROOT / "README.md").read_text("utf-8")
    methods = (ROOT / "docs" / "methods.md").read_text("utf-8")
    for name in METHODS:
        method = get(name).__name__
        assert f"| `{method}` |" in readme, name
        assert f"| `{name}` | `{method}` |" in methods, name
