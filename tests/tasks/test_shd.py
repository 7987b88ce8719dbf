"""SHD: balanced and independent bits as the paper defines them, forces as a loop, and its own distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.shd import SHD, forces
from bitfleet.tasks.protocols import DataInfo
from bitfleet.tasks.sphere_encoder import SphereEncoder

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def digits(root: Any) -> np.ndarray:
    with np.load(root / "pipeline" / "demo" / "digits.npz") as file:
        return (file["X"][:1000, ::3] / 255.0).astype(np.float32)


def test_spheres_hold_half_and_overlap_in_a_quarter(train: Callable, digits: np.ndarray) -> None:
    method = SHD(16)
    state = train(method, digits)[-1]
    assert state.scalars["n_moves"] < 100  # it converged
    squares = np.square(digits[:, None].astype(float) - state.arrays["pivots"]).sum(axis=2)
    inside = squares <= state.arrays["squares"]
    np.testing.assert_array_equal(inside.sum(axis=0), 500)
    common = np.array([[np.sum(inside[:, i] & inside[:, j]) for j in range(16)] for i in range(16)])
    pairs = common[np.triu_indices(16, 1)]
    assert np.abs(pairs - 250).mean() <= 0.10 * 250
    assert pairs.std() <= 0.15 * 250
    assert state.scalars["overlap_mean"] == pytest.approx(np.abs(pairs - 250).mean() / 250)
    assert state.scalars["overlap_spread"] == pytest.approx(pairs.std() / 250)
    np.testing.assert_array_equal(unpack_bits(method.encoder(state).encode(digits), 16), inside)
    assert "rows" not in state.arrays


def test_unmoved_pivots_overlap_too_much(train: Callable, digits: np.ndarray) -> None:
    before = train(SHD(16, n_iter=1, mean_tolerance=1.0, spread_tolerance=1.0), digits)[-1]
    assert before.scalars["n_moves"] == 0
    assert before.scalars["overlap_spread"] > 0.15 or before.scalars["overlap_mean"] > 0.1


def test_forces_are_the_papers() -> None:
    rng = np.random.default_rng(0)
    pivots, n = rng.normal(size=(5, 3)) + 10, 40
    inside = rng.integers(0, 2, (n, 5)).astype(float)
    common = inside.T @ inside
    expected = np.zeros((5, 3))
    for i in range(5):
        for j in range(5):
            expected[i] += 0.5 * (common[i, j] - n / 4) / (n / 4) * (pivots[i] - pivots[j]) / 5
    np.testing.assert_allclose(forces(pivots, common, n), expected, atol=1e-12)


def test_rows_on_a_sphere_are_in_it() -> None:
    encoder = SphereEncoder(np.array([[0.0, 0.0]]), np.array([25.0]))
    rows = np.array([[3.0, 4.0], [np.nextafter(3.0, 4), 4.0], [5.0, 0.0], [0.0, np.nextafter(5.0, 0)]])
    assert encoder.encode(rows).ravel().tolist() == [1, 0, 1, 1]


def test_refusals(train: Callable) -> None:
    with pytest.raises(ValueError, match="take n_train=3355 or less"):
        SHD().start(DataInfo(10**6, 10**4), 0)
    for params, message in (({"n_train": 0}, "n_train"), ({"mean_tolerance": -1}, "mean_tolerance")):
        with pytest.raises(ValueError, match=message):
            SHD(**params)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="squared ones overflow float64"):
        train(SHD(4), np.ldexp(np.random.default_rng(0).normal(size=(9, 3)), 700))


def test_spherical_hamming_is_its_formula() -> None:
    rng = np.random.default_rng(1)
    codes, queries = rng.integers(0, 2, (300, 24)), rng.integers(0, 2, (70, 24))
    codes[:5], queries[0], codes[7] = 0, 0, codes[9]
    packed = [np.packbits(a, axis=1, bitorder="little") for a in (codes, queries)]
    distances, ids = bf.spherical_hamming(packed[0], packed[1], 400)
    assert distances.shape == ids.shape == (70, 300)
    for i in range(70):
        apart = (codes != queries[i]).sum(axis=1)
        common = (codes & queries[i]).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = np.where(apart == 0, 0, apart / common)
        order = np.argsort(expected, kind="stable")
        np.testing.assert_array_equal(ids[i], order)
        np.testing.assert_array_equal(distances[i], expected[order])
    few = bf.spherical_hamming(packed[0], packed[1], 7)
    np.testing.assert_array_equal(few[1], ids[:, :7])
    assert distances[0, 0] == 0  # equal codes without a one
    with pytest.raises(bf.ConfigError, match="dense codes of the same width"):
        bf.spherical_hamming(packed[0], packed[1][:, :2], 3)
    with pytest.raises(bf.ConfigError, match="k to be an integer >= 1"):
        bf.spherical_hamming(packed[0], packed[1], 0)
