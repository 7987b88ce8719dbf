"""Nyström codes: against the features and components of whole matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.nystrom import Nystrom

if TYPE_CHECKING:
    from collections.abc import Callable


def affinities(X: np.ndarray, arrays: dict, sigma: float) -> np.ndarray:
    squares = np.square(X[:, None].astype(float) - arrays["anchors"].astype(float)).sum(axis=2)
    return np.exp(-squares / sigma**2) - arrays["affinity_mean"]


def test_components_are_those_of_the_features(train: Callable, blobs: tuple) -> None:
    X = blobs[0].astype(np.float64)
    method = Nystrom(6, n_anchors=40, n_train=150, n_iter=4)
    states = train(method, X)
    begun, sigma = states[2].arrays, states[2].scalars["sigma"]
    K = affinities(begun["anchors"], begun, sigma)
    K = K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean()
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    kept = values > 1e-6 * values[-1]
    features = affinities(X, begun, sigma) @ (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T
    components = np.linalg.svd(features, full_matrices=False).Vh[:6].T
    expected = features @ components
    found = affinities(X, begun, sigma) @ begun["directions"]
    assert np.mean(found**2) == pytest.approx(1)
    cosines = (
        np.sum(expected * found, axis=0) / np.linalg.norm(expected, axis=0) / np.linalg.norm(found, axis=0)
    )
    np.testing.assert_allclose(np.abs(cosines), 1, atol=1e-6)
    assert len(states[3].arrays["coordinates"]) == 150


def test_the_rotation_is_itq_s_and_its_loss_falls(train: Callable, blobs: tuple) -> None:
    X = blobs[0]
    method = Nystrom(6, n_anchors=40, n_iter=12)
    states = train(method, X)
    losses = [s.scalars["loss"] for s in states if "loss" in s.scalars]
    assert len(losses) == 12
    assert (np.diff(losses) <= 1e-10).all()
    assert losses[-1] < losses[0]
    last = states[-1]
    assert set(last.arrays) == {"origin", "anchors", "affinity_mean", "weights"}
    bits = unpack_bits(method.encoder(last).encode(X), 6)
    scores = affinities(X, last.arrays, last.scalars["sigma"]) @ last.arrays["weights"]
    sure = np.abs(scores) > 1e-4
    assert sure.mean() > 0.99
    np.testing.assert_array_equal(bits[sure], scores[sure] >= 0)
    assert ((bits.min(axis=0) == 0) & (bits.max(axis=0) == 1)).all()


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="n_iter"):
        Nystrom(n_iter=0)
    with pytest.raises(ValueError, match="take n_train=524288 or less"):
        Nystrom(n_train=10**6)
