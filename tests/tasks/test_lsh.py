"""LSH: the arc-cosine law of Charikar, principal components in front, and what each option reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.lsh import LSH
from bitfleet.tasks.moments import Moments
from bitfleet.tasks.protocols import Block, DataInfo

if TYPE_CHECKING:
    from collections.abc import Callable


def test_bits_differ_with_probability_angle_over_pi(train: Callable) -> None:
    angles = np.linspace(0, np.pi, 9)
    X = np.stack([np.cos(angles), np.sin(angles), np.zeros(9)], axis=1)
    method = LSH(n_bits=20_000, center=False)
    states = train(method, X)
    assert len(states) == 1  # nothing to read
    bits = unpack_bits(method.encoder(states[-1]).encode(X), method.n_bits)
    differing = (bits != bits[0]).mean(axis=1)
    np.testing.assert_allclose(differing, angles / np.pi, atol=4 * np.sqrt(0.25 / 20_000))


def test_signs_of_centred_rows_on_principal_components(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(np.float64) + 5
    method = LSH(n_bits=12, n_components=4)
    state = train(method, X, seed=3)[-1]
    assert state.round == 1
    centred = X - X.mean(axis=0)
    _, _, right = np.linalg.svd(centred, full_matrices=False)
    components = right[:4].T * np.sign(right[:4].T[np.abs(right[:4]).argmax(axis=1), range(4)])
    expected = centred @ components @ state.arrays["weights"] >= 0
    np.testing.assert_array_equal(unpack_bits(method.encoder(state).encode(X), 12), expected)


def test_the_projection_depends_on_the_seed_alone(train: Callable, blobs: tuple) -> None:
    X = blobs[0]
    weights = [
        train(LSH(), X, seed=s, block_rows=b)[-1].arrays["weights"] for s, b in [(0, 7), (0, 99), (1, 7)]
    ]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert np.abs(weights[0] - weights[2]).max() > 1


def test_given_moments_replace_the_first_pass(train: Callable, blobs: tuple) -> None:
    X, other = blobs[0][:300], blobs[0][300:]
    accumulator = Moments(24)
    moments = accumulator.finalize(accumulator.update(accumulator.init(), Block(np.arange(300), other)))
    method = LSH(n_bits=8, n_components=3)
    states = train(method, X, moments=moments)
    assert len(states) == 1
    np.testing.assert_array_equal(states[0].arrays["mean"], moments["mean"])
    with pytest.raises(ValueError, match="needs the covariance"):
        method.start(DataInfo(300, 24), 0, {"mean": moments["mean"]})
    with pytest.raises(ValueError, match=r"mean of shape \(23,\)"):
        method.start(DataInfo(300, 23), 0, moments)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_bits": 0}, "n_bits"),
        ({"n_bits": 1.5}, "n_bits"),
        ({"n_bits": True}, "n_bits"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": 1.5}, "n_components"),
        ({"n_components": "x"}, "n_components"),
        ({"center": None}, "center"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"expected {message}"):
        LSH(**parameters)


def test_numpy_numbers_become_plain_ones() -> None:
    method = LSH(n_bits=np.int64(8), n_components=np.float32(0.5), center=np.bool_(True))
    assert [type(v) for v in (method.n_bits, method.n_components, method.center)] == [int, float, bool]


def test_data_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        LSH().start(DataInfo(0, 5), 0)
    with pytest.raises(ValueError, match="at most n_components=5, got 6"):
        LSH(n_components=6).start(DataInfo(10, 5), 0)
    with pytest.raises(ValueError, match="seed"):
        LSH().start(DataInfo(10, 5), -1)


def test_an_unfinished_state_has_no_encoder() -> None:
    with pytest.raises(ValueError, match="not trained yet"):
        LSH().encoder(LSH().start(DataInfo(10, 5), 0))
