"""The methods equal the plain transcriptions of the paper's algorithms, mini-batch by mini-batch."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.tasks.methods.posh import POSH
from bitfleet.tasks.methods.spherical_hash import SphericalHash
from bitfleet.tasks.protocols import Block, DataInfo, LeafPlan
from bitfleet.tasks.random import stream
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BATCH = 100


def reference(root: Path, name: str) -> Any:
    """Run the script's definitions without leaving a module behind."""
    return runpy.run_path(str(root / "benchmarks" / "reference" / f"{name}.py"))["learn"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with threadpool_limits(1):
        yield


@pytest.fixture
def digits(root: Path) -> np.ndarray:
    """800 digits with the middle 22 × 22 of their pixels, some of them dead."""
    with np.load(root / "pipeline" / "demo" / "digits.npz") as file:
        images = file["X"][:800].reshape(-1, 28, 28)[:, 3:25, 3:25]
    return (images.reshape(len(images), -1) / 255.0).astype(np.float32)


@pytest.fixture
def many_digits(shared_data: Path) -> np.ndarray:
    """5,000 rows of all 784 pixels, as many as the paper trains on."""
    with np.load(shared_data / "mnist.npz") as file:
        chosen = np.random.default_rng(0).choice(len(file["X"]), 5000, replace=False)
        return (file["X"][chosen] / 255.0).astype(np.float32)


def test_posh_equals_algorithm_1_on_digits(root: Path, digits: np.ndarray) -> None:
    """Few rows, dead pixels: the Procrustes problem is ill-conditioned, as it is on all digits."""
    assert compare_posh(root, digits, n_bits=512) == 8


@pytest.mark.long
def test_posh_equals_algorithm_1_over_an_epoch_of_the_papers_size(
    root: Path, many_digits: np.ndarray
) -> None:
    assert compare_posh(root, many_digits, n_bits=1024) == 50


def test_spherical_hash_equals_algorithm_2_on_digits(root: Path, digits: np.ndarray) -> None:
    assert compare_spherical_hash(root, digits.astype(np.float64), n_bits=512) == 16


@pytest.mark.long
def test_spherical_hash_equals_algorithm_2_at_the_papers_size(root: Path, many_digits: np.ndarray) -> None:
    assert compare_spherical_hash(root, many_digits.astype(np.float64), n_bits=1024) == 100


def compare_posh(root: Path, X: np.ndarray, n_bits: int) -> int:
    """Compare an epoch from the same start, in the same order; return the number of mini-batches."""
    n, d = X.shape
    method = POSH(n_bits=n_bits, n_active=32, schedule="paper", n_epochs=1)
    state = method.start(DataInfo(n, d, "float32"), 3)
    moments = method.accumulator(state)
    state = method.advance(state, moments.finalize(moments.update(moments.init(), Block(np.arange(n), X))))
    centred = X - state.arrays["mean"]
    drawn = stream(3, "posh.weights").standard_normal((n_bits, d))
    steps = reference(root, "posh")(centred, drawn, 32, n_epochs=1, batch_size=BATCH)
    accumulator = method.accumulator(state)
    sums = accumulator.init()
    n_steps = 0
    for first, expected in zip(range(0, n, BATCH), steps, strict=True):
        part = X[first : first + BATCH]
        sums = accumulator.update(sums, Block(np.arange(len(part)), part))
        np.testing.assert_allclose(accumulator.finalize(sums)["weights"], expected, rtol=0, atol=1e-6)
        n_steps += 1
    learned = method.advance(state, accumulator.finalize(sums))
    assert method.done(learned)
    assert method.rounds(state, LeafPlan(n, n)) == 2
    expected_bits = np.sort(np.argsort(-centred @ expected.T, axis=1)[:, :32], axis=1)
    np.testing.assert_array_equal(method.encoder(learned).active(X), expected_bits)
    return n_steps


def compare_spherical_hash(root: Path, X: np.ndarray, n_bits: int) -> int:
    """Compare two epochs, the sums after every mini-batch and the centres after every epoch."""
    n, d = X.shape
    method = SphericalHash(n_bits=n_bits, n_active=32, n_epochs=2)
    state = method.start(DataInfo(n, d, "float64"), 3)
    moments = method.accumulator(state)
    state = method.advance(state, moments.finalize(moments.update(moments.init(), Block(np.arange(n), X))))
    drawn = stream(3, "spherical_hash.weights").standard_normal((n_bits, d))
    steps = reference(root, "spherical")(X - state.arrays["mean"], drawn, n_epochs=2, batch_size=BATCH)
    n_steps = 0
    for _ in range(2):
        accumulator = method.accumulator(state)
        sums = accumulator.init()
        for first in range(0, n, BATCH):
            rows = np.arange(first, first + BATCH)
            sums = accumulator.update(sums, Block(rows, X[rows]))
            weights, total = next(steps)
            np.testing.assert_allclose(sums["total"], total, rtol=0, atol=1e-12)
            n_steps += 1
        state = method.advance(state, accumulator.finalize(sums))
        np.testing.assert_allclose(state.arrays["weights"], weights, rtol=0, atol=1e-12)
    assert method.done(state)
    assert state.scalars["n_dead_units"] == np.count_nonzero(~weights.any(axis=1)) > 0
    return n_steps
