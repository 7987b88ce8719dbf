"""IsoHash: equal variances, which is what its paper asks for, and Horn's condition that they exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.methods.isohash import IsoHash, isotropic_rotation
from bitfleet.tasks.procrustes import random_orthonormal

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("k", [1, 2, 7, 32])
def test_rotations_are_isotropic(k: int) -> None:
    rng = np.random.default_rng(k)
    for spectrum in (rng.exponential(size=k) ** 2, np.ones(k), np.arange(k) == 0.0, np.zeros(k)):
        variances = np.sort(spectrum.astype(float))[::-1]
        rotation = isotropic_rotation(variances, random_orthonormal(rng, k, k), 500)
        np.testing.assert_allclose(rotation.T @ rotation, np.eye(k), atol=1e-12)
        found = np.diagonal((rotation.T * variances) @ rotation)
        np.testing.assert_allclose(found, variances.mean(), atol=1e-6 * max(variances[0], 1e-300))


def test_bits_have_equal_variance(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(float)
    method = IsoHash(n_bits=12)
    state = train(method, X)[-1]
    scores = (X - X.mean(axis=0)) @ state.arrays["components"] @ state.arrays["weights"]
    np.testing.assert_allclose(scores.var(axis=0), scores.var(axis=0).mean(), rtol=1e-6)
    components = (X - X.mean(axis=0)) @ state.arrays["components"]
    assert scores.var(axis=0).sum() == pytest.approx(components.var(axis=0).sum())
    assert components.var(axis=0).max() > 2 * components.var(axis=0).min()


def test_more_bits_than_features(train: Callable, blobs: tuple) -> None:
    X = blobs[0][:, :5]
    weights = train(IsoHash(n_bits=9), X)[-1].arrays["weights"]
    np.testing.assert_allclose(weights @ weights.T, np.eye(5), atol=1e-12)
