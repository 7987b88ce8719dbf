"""Affinities and the codes made of them: against plain formulas, and every bit against the exact way."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from bitfleet.tasks.affinity import Affinities, exponential
from bitfleet.tasks.affinity_encoder import AffinityEncoder
from bitfleet.tasks.kernels.pack import unpack_bits

M, D, B = 450, 410, 20


def some(seed: int = 0, *, scale: float = 1.0, m: int = M, d: int = D) -> tuple[Affinities, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(900, d)) * scale + 3 * scale).astype(np.float32)
    anchors = X[:m].copy()
    sigma = 1.2 * scale * d**0.5
    w = plain(anchors, X[m : m + 20], sigma)
    return Affinities(X.mean(axis=0, dtype=float), anchors, sigma, w.mean(axis=0)), X


def plain(anchors: np.ndarray, X: np.ndarray, sigma: float) -> np.ndarray:
    differences = X[:, None].astype(float) - anchors.astype(float)
    return np.exp(-np.square(differences).sum(axis=2) / sigma**2)


def test_both_ways_give_the_formula() -> None:
    affinities, X = some()
    rows = X[-40:]
    expected = plain(affinities.anchors, rows, affinities.sigma) - affinities.mean
    np.testing.assert_allclose(affinities.exact(rows)[:, :M], expected, rtol=0, atol=1e-13)
    for dtype, tolerance in (("float32", 1e-4), ("float64", 1e-12)):
        found = np.concatenate([tile for _, tile in affinities.tiles(rows, dtype)])
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-100, 1e-42, 1e-30, 1e30, 1e50, 1e100])
def test_what_over_or_underflows_the_fast_way_is_exact(scale: float, dtype: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 6))
    X[7] *= 1e12
    expected = plain(X[:20], X, 3.0)
    anchors = X[:20] * scale
    affinities = Affinities(anchors[:7].mean(axis=0), anchors, 3.0 * scale, np.full(20, 0.25))
    found = np.concatenate([tile for _, tile in affinities.tiles(X * scale, dtype)])
    assert found.dtype == dtype
    others = np.arange(50) != 7  # which differs from itself by rounding, times 10¹²
    np.testing.assert_allclose(found[others], expected[others] - 0.25, rtol=0, atol=1e-5)
    if dtype == "float32":
        encoder = AffinityEncoder(affinities, np.eye(20)[:, :3])
        np.testing.assert_allclose(encoder.encode_tile(X * scale)[1][others], found[others], atol=2e-6)


def test_the_exponential() -> None:
    x = -np.concatenate([[0.0], np.geomspace(1e-300, 700, 5000), np.linspace(0, 700, 5001)])
    np.testing.assert_allclose(exponential(x), [math.exp(v) for v in x], rtol=9e-16)
    assert exponential(np.zeros(1))[0] == 1.0
    assert exponential(np.array([-1e9]))[0] == 0.0


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_error_bound_holds(dtype: str, parts: bool) -> None:
    """Against scores in extended precision, at several distances of the data from the origin."""
    for shift in (0.0, 5.0, 50.0):
        affinities, X = some()
        affinities = Affinities(
            affinities.origin + shift, affinities.anchors, affinities.sigma, affinities.mean
        )
        fast = affinities.fast(np.dtype(dtype), parts=parts)
        rng = np.random.default_rng(1)
        weights = np.linalg.qr(rng.normal(size=(M, B)))[0]
        centred = X[-200:].astype(float) - affinities.origin
        squares = np.square(centred).sum(axis=1)
        w = affinities.of_centred(fast, centred.astype(dtype), squares)
        scores = fast.scores(w, weights.astype(dtype))
        exact = affinities.exact(X[-200:])[:, :M].astype(np.longdouble) @ weights.astype(np.longdouble)
        errors = affinities.error(fast, np.sqrt(squares), np.linalg.norm(w.astype(float), axis=1))
        assert (np.abs(scores - exact).max(axis=1) <= errors).all()
        if not shift:
            assert errors.max() < (1e-2 if dtype == "float32" else 1e-10)  # and it is of use


def exact_bits(encoder: AffinityEncoder, X: np.ndarray) -> np.ndarray:
    rows, columns = np.divmod(np.arange(len(X) * encoder.n_bits), encoder.n_bits)
    return (encoder._exact(X, rows, columns) >= 0).reshape(len(X), -1)


@pytest.mark.parametrize("case", ["plain", "far from the origin", "wide", "narrow", "float64"])
def test_every_bit_is_the_exact_one(case: str) -> None:
    affinities, X = some(d=30, m=60)
    rng = np.random.default_rng(2)
    weights = np.linalg.qr(rng.normal(size=(60, B)))[0]
    factor = {"wide": 1e4, "narrow": 0.05}.get(case, 1.0)
    origin = affinities.origin + (1e4 if case == "far from the origin" else 0)
    affinities = Affinities(origin, affinities.anchors, affinities.sigma * factor, affinities.mean * 0)
    if case == "float64":
        X = X + 1e-9 * rng.normal(size=X.shape)
    encoder = AffinityEncoder(affinities, weights)
    np.testing.assert_array_equal(unpack_bits(encoder.encode(X), B), exact_bits(encoder, X))


def test_ties_are_ones_and_extreme_rows_are_exact() -> None:
    affinities, X = some(d=8, m=10)
    weights = np.zeros((10, 3))
    weights[0, 1], weights[0, 2] = 1, -1
    far = np.vstack([X[:3], np.full((1, 8), 3e38), np.full((1, 8), -1e30)]).astype(np.float32)
    encoder = AffinityEncoder(affinities, weights)
    bits = unpack_bits(encoder.encode(far), 3)
    assert bits[:, 0].all()  # scores that are exactly zero
    np.testing.assert_array_equal(bits, exact_bits(encoder, far))
    with pytest.raises(ValueError, match="row 1 holds NaN, infinity or too large"):
        encoder.encode(np.array([[0.0] * 8, [1e200] * 8]))


def test_encoders_travel_and_refuse_what_does_not_fit() -> None:
    affinities, X = some(d=8, m=10)
    encoder = AffinityEncoder(affinities, np.eye(10, 4))
    again = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(again.encode(X), encoder.encode(X))
    with pytest.raises(ValueError, match=r"weights of shape \(10, n_bits\), got \(9, 4\)"):
        AffinityEncoder(affinities, np.eye(9, 4))
    with pytest.raises(ValueError, match="finite anchors"):
        AffinityEncoder(affinities, np.full((10, 2), np.nan))
    with pytest.raises(ValueError, match=r"expected vectors of shape \(m, 8\), got \(3, 7\)"):
        encoder.encode(np.zeros((3, 7)))
    with pytest.raises(ValueError, match="real numbers"):
        encoder.encode(np.zeros((3, 8), complex))
