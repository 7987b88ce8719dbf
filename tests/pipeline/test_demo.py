"""The demonstration from end to end, and what it does to the folder that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.pipeline import demo_run
from bitfleet.pipeline.demo_run import run_demo
from bitfleet.pipeline.digits import load_digits
from bitfleet.pipeline.results import read_results
from bitfleet.pipeline.runs import Control
from bitfleet.storage.errors import DestinationExists
from bitfleet.storage.run import status
from bitfleet.storage.verify import verify_run

if TYPE_CHECKING:
    from pathlib import Path


def test_the_bundled_digits_are_the_official_test_part(shared_data: Path) -> None:
    images, labels = load_digits()
    with np.load(shared_data / "mnist.npz") as official:
        assert np.array_equal(images, official["X"][60_000:])
        assert np.array_equal(labels, official["y"][60_000:])


def test_the_bundled_digits_can_be_told_apart() -> None:
    images, labels = load_digits()
    assert images.shape == (10_000, 784)
    assert images.dtype == np.uint8
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    half = images[:5000].astype(float), images[5000:].astype(float)
    centres = np.stack([half[0][labels[:5000] == digit].mean(axis=0) for digit in range(10)])
    nearest = np.argmin(((half[1][:, None] - centres) ** 2).sum(axis=2), axis=1)
    assert (nearest == labels[5000:]).mean() > 0.75


@pytest.mark.timeout(240)
def test_the_demonstration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two of the methods and fewer rounds: data, runs, codes, results and the report are all there."""
    methods = (("posh", {"n_bits": 256, "n_active": 16, "n_epochs": 2}), ("lsh", {"n_bits": 16}))
    monkeypatch.setattr(demo_run, "METHODS", methods)
    told: list[str] = []
    report = run_demo(tmp_path / "demo", control=Control(note=told.append))
    assert report == tmp_path / "demo" / "report.html"
    for name in ("posh", "lsh"):
        run = tmp_path / "demo" / "runs" / name
        assert status(run)["state"] == "finished"
        assert verify_run(run) == []
        results = read_results(run)
        assert results is not None
        assert results["n_rows"] == 9000
        assert results["n_queries"] == 1000
        values = {metric["name"]: metric["value"] for metric in results["metrics"]}
        assert all(any(f"{100 * values[m]:.1f} %" in text for text in told) for m in demo_run.METRICS)
        assert values["precision@100"] > 0.3  # by chance it would be 0.1
    page = report.read_text(encoding="utf-8")
    assert "POSH, 256 bits, 16 active" in page
    assert "LSH, 16 bits" in page
    with pytest.raises(DestinationExists, match="--force"):
        run_demo(tmp_path / "demo")


def test_only_an_earlier_demonstration_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(DestinationExists, match=r"thesis\.tex"):
        run_demo(tmp_path, force=True)
    assert (tmp_path / "report.html").read_text() == "mine"
    with pytest.raises(DestinationExists, match="is a file"):
        run_demo(tmp_path / "thesis.tex", force=True)
