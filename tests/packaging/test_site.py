"""The documentation as a site: builds without a warning, holds every public name, fetches nothing."""

from __future__ import annotations

import re
from pathlib import Path

import bitfleet as bf
import pytest
from bitfleet.pipeline.cli import app
from bitfleet.tasks.registry import METHODS
from typer.main import get_command

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'bitfleet[dev]'")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
    build(config)  # raises if there was a warning
    return folder


def test_every_public_name_verb_and_method_is_there(site: Path) -> None:
    reference, verbs, methods = (
        (site / f"{name}.html").read_text("utf-8") for name in ("reference", "command_line", "all_methods")
    )
    assert set(bf.__all__) <= set(re.findall(r"<h2 [^>]*>([^<]+)</h2>", reference))
    for verb in get_command(app).commands:  # type: ignore[attr-defined]
        assert f">bitfleet {verb}</h2>" in verbs
    for name in METHODS:
        assert f"<td><code>{name}</code></td>" in methods


def test_pages_fetch_nothing(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text("utf-8")
        fetched = re.findall(r'<(?:script|img|link)\b[^>]*?(?:src|href)="([^"]+)"', text)
        assert [address for address in fetched if "://" in address or address.startswith("//")] == []


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert f": {page.relative_to(ROOT / 'docs').as_posix()}\n" in menu, page.name
