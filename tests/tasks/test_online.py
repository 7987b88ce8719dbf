"""Online codes: the alignment against brute force, and that nothing depends on how rows arrive."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from bitfleet.tasks.affinity import Affinities
from bitfleet.tasks.alignment import (
    aligned,
    energy_share,
    flips_between,
    mixing_index,
    predicted_flips,
)
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.methods.ssbc_sums import describe
from bitfleet.tasks.online import OnlineCoder
from bitfleet.tasks.sketch import FrequentDirections

K, SKETCH = 8, 16


def orthonormal(rng: np.random.Generator, m: int, k: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(m, k)))[0]


def test_the_aligned_basis_is_the_nearest_of_its_space() -> None:
    rng = np.random.default_rng(0)
    V, before = orthonormal(rng, 9, 4), orthonormal(rng, 9, 4)
    found = aligned(V, before)
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(V @ (V.T @ found), found, atol=1e-12)
    nearest = np.linalg.norm(found - before)
    for _ in range(200):
        assert np.linalg.norm(V @ orthonormal(rng, 4, 4) - before) >= nearest
    turned = V @ orthonormal(rng, 4, 4)  # the same space: nothing moves
    np.testing.assert_allclose(aligned(V, turned), turned, atol=1e-12)


def test_flips_between_projections_are_what_gaussian_rows_show() -> None:
    rng = np.random.default_rng(1)
    scales = np.linspace(3, 0.5, 12)
    Z = rng.normal(size=(40_000, 12)) * scales
    old = orthonormal(rng, 12, 5)
    new = orthonormal(rng, 12, 5) * 0.3 + old
    truth = np.mean((Z @ old >= 0) != (Z @ new >= 0))
    sketch = FrequentDirections(12).partial_fit(Z)
    found = flips_between(sketch.components_, sketch.certificate_, old, new)
    assert found == pytest.approx(truth, abs=0.005)
    assert flips_between(sketch.components_, 0.0, old, old) == pytest.approx(0, abs=1e-6)


def test_predicted_flips_are_what_more_rows_bring() -> None:
    """Against the disagreement of aligned directions of n rows with those of very many."""
    rng = np.random.default_rng(2)
    scales, n = 0.8 ** np.arange(14), 400
    vectors = np.eye(14)[:, :5]
    test = rng.normal(size=(4000, 14)) * scales
    flips = []
    for _ in range(20):
        Z = rng.normal(size=(n, 14)) * scales
        found = np.linalg.svd(Z, full_matrices=False).Vh[:5].T
        flips.append(np.mean((test @ aligned(found, vectors) >= 0) != (test @ vectors >= 0)))
    predicted = predicted_flips(scales**2 * n, 5, n)
    assert np.mean(flips) / predicted == pytest.approx(1, abs=0.25)
    assert predicted_flips(scales**2 * n, 5, n, 2 * n) < predicted
    assert predicted_flips(scales**2, 14, n) == 0.0


def test_the_mixing_index_is_one_for_eigen_axes_and_grows() -> None:
    rng = np.random.default_rng(3)
    values = 4.0 ** -np.arange(6)
    B = np.diag(np.sqrt(values))
    axes = np.eye(6)[:, :3][:, [2, 0, 1]]
    assert mixing_index(B, values, axes) == pytest.approx(1)
    mixed = axes @ orthonormal(rng, 3, 3)
    assert mixing_index(B, values, mixed) > 1.01
    assert energy_share(B, values, mixed) == pytest.approx(1)
    assert energy_share(B, values, np.eye(6)[:, 3:]) < 0.1
    outside = np.linalg.qr(mixed + 0.3 * np.eye(6)[:, 3:])[0]  # less energy hides what is mixed
    assert mixing_index(B, values, outside) < mixing_index(B, values, aligned(np.eye(6)[:, :3], outside))


def stream(n: int, seed: int = 0, *, kinds: int = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(kinds, 6)) * 2
    return (centres[rng.integers(kinds, size=n)] + rng.normal(size=(n, 6))).astype(np.float32)


def coder(anchors: np.ndarray | None = None, **more: Any) -> OnlineCoder:
    anchors = stream(60, 1) if anchors is None else anchors
    arrays, scalars = describe(anchors, np.ones(60, bool), "auto", center=True)
    sigma: Any = scalars["sigma"]
    affinities = Affinities(arrays["origin"], arrays["anchors"], sigma, arrays["affinity_mean"])
    return OnlineCoder(affinities, K, SKETCH, **more)


def same(left: OnlineCoder, right: OnlineCoder) -> None:
    a, b = left.state(), right.state()
    assert a[1] == b[1]
    for key in a[0]:
        assert a[0][key].tobytes() == b[0][key].tobytes()


def test_codes_and_state_do_not_depend_on_how_rows_arrive() -> None:
    X = stream(2000)
    whole = coder()
    codes, versions = whole.encode_next(X)
    assert whole.n_frozen < 1000
    assert versions[0] == 0
    assert (np.diff(versions) >= 0).all()
    assert versions[-1] > 1
    for size in (1, 7, 500):
        pieces, found = coder(), []
        for i in range(0, len(X), size):
            found.append(pieces.encode_next(X[i : i + size])[0])
            if i == 3 * size:  # stored in between
                arrays, scalars = pieces.state()
                arrays = {key: np.array(array) for key, array in sorted(arrays.items())}
                pieces = coder().restore(arrays, json.loads(json.dumps(scalars)))
        np.testing.assert_array_equal(np.concatenate(found), codes)
        same(pieces, whole)
    unseen = coder()
    unseen.push(X)
    same(unseen, whole)


def test_every_code_is_made_before_its_row_is_seen() -> None:
    """What follows a row, and the row itself, have no influence on its code."""
    X = stream(200)
    codes, _ = coder().encode_next(X)
    step = coder()
    for i in range(0, 200, 20):
        np.testing.assert_array_equal(step.encoder.encode(X[i : i + 1]), codes[i : i + 1])
        step.push(X[i : i + 20])


def test_frozen_codes_stay_and_a_stream_of_one_kind_raises_no_alarm() -> None:
    X = stream(6000)
    c = coder()
    codes, versions = c.encode_next(X)
    assert 0 < c.n_frozen < 3000
    final = c.encoder.encode(X)
    np.testing.assert_array_equal(codes[c.n_frozen :], final[c.n_frozen :])
    assert (versions[c.n_frozen :] == c.minor).all()
    assert (unpack_bits(codes, K) == unpack_bits(final, K)).mean() > 0.97
    assert not c.monitor.drift_alarm
    assert not c.monitor.rebase_advised


def test_drift_is_noticed_and_a_rebase_begins_a_new_version() -> None:
    quiet, other = stream(1500), stream(6000, 5) * np.float32(0.2) - np.float32(1)
    c = coder()
    c.push(quiet)
    assert c.frozen
    assert not c.monitor.drift_alarm
    before = c.projection
    c.push(other)
    assert c.monitor.drift_alarm
    np.testing.assert_array_equal(c.projection, before)
    c.rebase()
    assert (c.major, c.minor) == (1, 0)
    assert c.monitor.predicted_flips < c.flip_limit
    assert c.n_frozen == c.n_rows == 7500
    early = coder()
    early.push(quiet[:32])
    early.rebase()
    assert early.monitor.predicted_flips > c.flip_limit
    assert (early.major, early.frozen) == (1, False)
    assert mixing_index(c.sketch.components_, c.sketch.energies_, c.projection) == pytest.approx(1)


@pytest.mark.parametrize("is_sorted", [False, True])
def test_mixing_tells_a_stream_that_begins_with_one_kind(is_sorted: bool) -> None:
    """The anchors and the first projection are of what came first; the basis stays aligned with it."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(12, size=6000)
    centres = np.random.default_rng(99).normal(size=(12, 6)) * 2
    X = (centres[np.sort(kinds) if is_sorted else kinds] + rng.normal(size=(6000, 6))).astype(np.float32)
    c = coder(X[np.sort(rng.choice(600, 60, replace=False))])
    c.push(X)
    assert c.monitor.mixing_alarm == is_sorted
    assert c.monitor.mixing == pytest.approx(1.01 if not is_sorted else 1.08, abs=0.04)
    if is_sorted:
        assert c.monitor.rebase_advised
        c.rebase()
        assert not c.monitor.rebase_advised
        c.push(X[rng.permutation(6000).repeat(2)])
        assert c.frozen
        assert c.monitor.n_rows > 12_000
        assert not c.monitor.mixing_alarm


def test_fewer_anchors_than_bits_are_filled_up() -> None:
    anchors = stream(3, 1)
    arrays, _ = describe(anchors, np.ones(3, bool), 3.0, center=True)
    c = OnlineCoder(Affinities(arrays["origin"], anchors, 3.0, arrays["affinity_mean"]), 3, 4)
    codes, _ = c.encode_next(stream(50))
    assert codes.shape == (50, 1)
    np.testing.assert_allclose(c.projection.T @ c.projection, np.eye(3), atol=1e-12)
