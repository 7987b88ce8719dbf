"""Sign quantisation: the definition, its options, and what has no bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.encode import ProjectionEncoder
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.sign import Sign
from bitfleet.tasks.protocols import DataInfo

if TYPE_CHECKING:
    from collections.abc import Callable


def codes(method: Sign, states: list, X: np.ndarray) -> np.ndarray:
    encoder = method.encoder(states[-1])
    assert encoder.n_active is None
    return unpack_bits(encoder.encode(X), encoder.n_bits)


def test_bits_are_the_signs_and_no_row_is_read(train: Callable, blobs: tuple) -> None:
    X = blobs[0] - np.float32(1)
    states = train(Sign(), X)
    assert len(states) == 1
    np.testing.assert_array_equal(codes(Sign(), states, X), X >= 0)
    np.testing.assert_array_equal(
        np.packbits(X >= 0, axis=1, bitorder="little"), Sign().encoder(states[0]).encode(X)
    )


def test_zero_is_a_one_bit_of_either_sign(train: Callable) -> None:
    X = np.array([[0.0, -0.0, 5e-324, -5e-324, 1.0]])
    assert codes(Sign(), train(Sign(), X), X).tolist() == [[1, 1, 1, 0, 1]]


def test_seen_from_the_mean_or_of_the_first_features(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(np.float64) + 3
    centred = Sign(center=True, n_bits=5)
    states = train(centred, X, block_rows=70)
    assert len(states) == 2
    np.testing.assert_array_equal(codes(centred, states, X), (X - X.mean(axis=0))[:, :5] >= 0)


def test_signs_of_principal_components(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(np.float64) + 3
    _, _, right = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    scores = (X - X.mean(axis=0)) @ (
        right[:6] * np.sign(right[:6][range(6), np.abs(right[:6]).argmax(1)])[:, None]
    ).T
    for n_bits in (None, 4):
        method = Sign(center=True, n_components=6, n_bits=n_bits)
        np.testing.assert_array_equal(codes(method, train(method, X), X), scores[:, :n_bits] >= 0)


def test_the_same_bits_as_a_projection_on_the_axes(train: Callable, blobs: tuple) -> None:
    X = blobs[0] * np.float32(1e-3) + np.float32(1)
    method = Sign(center=True, n_bits=11)
    state = train(method, X)[-1]
    encoder = method.encoder(state)
    projected = ProjectionEncoder(encoder.mean, encoder.projection)
    np.testing.assert_array_equal(encoder.encode(X), projected.encode(X))
    np.testing.assert_array_equal(encoder.projection, method.weights(state))


def test_more_bits_than_features_are_refused() -> None:
    with pytest.raises(ValueError, match="each of the 5 features or components, got n_bits=6"):
        Sign(n_bits=6).start(DataInfo(10, 5), 0)
    with pytest.raises(ValueError, match="each of the 3 features or components, got n_bits=4"):
        Sign(n_bits=4, n_components=3).start(DataInfo(10, 5), 0)
    with pytest.raises(ValueError, match="expected n_bits"):
        Sign(n_bits=0)


def test_a_share_of_variance_may_turn_out_too_few_components(train: Callable) -> None:
    X = np.random.default_rng(0).normal(size=(50, 6)) * [100, 1, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="each of the 1 features or components, got n_bits=2"):
        train(Sign(n_bits=2, n_components=0.5, center=True), X)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_without_signs_are_refused(train: Callable, bad: float) -> None:
    X = np.ones((600, 4))
    encoder = Sign().encoder(train(Sign(), X)[0])
    X[530, 2] = bad
    with pytest.raises(ValueError, match="row 530 holds NaN or infinity"):
        encoder.encode(X)
    with pytest.raises(ValueError, match=r"shape \(m, 4\)"):
        encoder.encode(X[:, :3])
    with pytest.raises(ValueError, match="real numbers"):
        encoder.encode(X.astype(str))
