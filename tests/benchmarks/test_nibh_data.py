"""The paper's data are what the paper says they are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def data(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(root / "benchmarks")
    import nibh_data

    yield nibh_data
    for name in ("nibh_data", "mnist"):
        sys.modules.pop(name, None)


def test_there_are_64_different_squares_of_nine_pixels(data: Any) -> None:
    squares = data.translating_squares()
    assert squares.shape == (64, 100)
    assert set(np.unique(squares)) == {0, 1}
    assert (squares.sum(axis=1) == 9).all()
    assert len(np.unique(squares, axis=0)) == 64
    # neighbours share six pixels of nine: squared distance 6
    assert ((squares[0] - squares[1]) ** 2).sum() == ((squares[0] - squares[8]) ** 2).sum() == 6


def test_random_rows_are_standard_normal_and_reproducible(data: Any) -> None:
    rows = data.random_rows(4000, seed=3)
    np.testing.assert_array_equal(rows[:10], data.random_rows(10, seed=3))
    assert np.abs(rows.mean(axis=0)).max() < 5 / np.sqrt(4000)
    assert np.abs(np.cov(rows.T) - np.eye(100)).max() < 0.12


def test_rotations_are_written_centred_and_of_length_one(data: Any, root: Path, tmp_path: Path) -> None:
    with np.load(root / "pipeline" / "demo" / "digits.npz") as file:
        images = (file["X"][:50] / 255.0).astype(np.float32)
    turned = data.rotated(images)
    pixel = turned.reshape(4, 50, 28, 28)
    np.testing.assert_array_equal(pixel[1, :, 27 - 9, 4], pixel[0, :, 4, 9])  # counter-clockwise
    np.testing.assert_array_equal(pixel[2], pixel[0, :, ::-1, ::-1])
    stored = data.write_rotated(images, tmp_path / "rotated.zarr").reader().read(slice(0, 200)).vectors
    expected, mean = data.on_sphere(turned)
    np.testing.assert_allclose(stored, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(stored, axis=1), 1, atol=1e-6)
    zero, _ = data.on_sphere(mean[None], mean)
    assert not zero.any()
