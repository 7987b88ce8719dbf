"""Files that appear whole, and never over another one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from bitfleet.storage.errors import DestinationExists
from bitfleet.storage.files import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("links", [True, False])
def test_a_file_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    def refuse(*names: object) -> None:
        raise OSError(95, "Operation not supported")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "new.csv"
    with whole_file(path) as file:
        assert file.suffix == ".csv"
        file.write_text("all")
        assert not path.exists()
    assert path.read_text() == "all"
    with pytest.raises(DestinationExists):
        _write(tmp_path / "late", lambda: (tmp_path / "late").write_text("theirs"))  # somebody was faster
    assert (tmp_path / "late").read_text() == "theirs"
    with pytest.raises(KeyboardInterrupt):
        _write(tmp_path / "torn", _interrupt)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DestinationExists):
        _write(tmp_path / "dangling", lambda: None)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dangling", "late", "new.csv"]


def _write(path: Path, meanwhile: Callable[[], object]) -> None:
    with whole_file(path) as file:
        file.write_text("ours")
        meanwhile()


def _interrupt() -> None:
    raise KeyboardInterrupt
