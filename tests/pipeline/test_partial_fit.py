"""SSBC on endless streams: `partial_fit` and `partial_fit_encode` against one pass over everything."""

from __future__ import annotations

import pickle

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.tasks.kernels.pack import unpack_bits


def rows(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(12, 6)) * 2
    return (centres[rng.integers(12, size=n)] + rng.normal(size=(n, 6))).astype(np.float32)


PARAMS = {"n_bits": 8, "n_anchors": 60, "random_state": 0}


def test_streaming_learns_what_one_pass_learns() -> None:
    X = rows(1500)
    est = bf.SSBC(**PARAMS).fit(X[:1000])
    est.partial_fit(X[1000:1200]).partial_fit(X[1200:])
    state = est.model_.state
    W = np.exp(
        -np.square(X[:, None].astype(float) - state.arrays["anchors"]).sum(axis=2) / est.sigma_**2
    ) - state.arrays["affinity_mean"]  # fmt: skip
    vectors = np.linalg.svd(W, full_matrices=False).Vh[:8].T
    np.testing.assert_allclose(np.abs(np.sum(vectors * state.arrays["weights"], axis=0)), 1, atol=1e-4)
    assert state.scalars["square"] == pytest.approx(np.sum(W**2), rel=1e-5)


def test_online_codes_are_the_pass_s_and_the_burn_in_is_coded_again() -> None:
    X = rows(4000)
    est = bf.SSBC(**PARAMS, mode="online")
    codes, versions = est.partial_fit_encode(X[:1000])  # their anchors come from these
    for i in range(1000, 4000, 700):
        more = est.partial_fit_encode(X[i : i + 700])
        codes, versions = np.concatenate([codes, more[0]]), np.concatenate([versions, more[1]])
    assert 0 < est.n_frozen_ < 3000
    assert (versions[est.n_frozen_ :] == versions[-1]).all()
    codes[: est.n_frozen_] = est.encode(X[: est.n_frozen_])
    np.testing.assert_array_equal(codes, est.encode(X))
    assert not est.monitor_.drift_alarm
    again = bf.SSBC(**PARAMS, mode="online").partial_fit(X[:1000]).partial_fit(X[1000:])
    assert again.model_.state.arrays["weights"].tobytes() == est.model_.state.arrays["weights"].tobytes()


def test_a_fitted_or_unpickled_estimator_goes_on() -> None:
    X = rows(3000)
    fitted = bf.SSBC(**PARAMS, mode="online").fit(X[:1000])
    early = fitted.encode(X)
    copied = pickle.loads(pickle.dumps(fitted))
    for est in (fitted, copied):
        est.partial_fit(X[1000:])
    assert fitted.model_.digest == copied.model_.digest
    assert (unpack_bits(early, 8) == unpack_bits(fitted.encode(X), 8)).mean() > 0.9
    refit = bf.SSBC(**PARAMS, mode="online").fit(X[:1000]).fit(X[:1000])
    np.testing.assert_array_equal(refit.encode(X), early)


def test_a_rebase_begins_new_codes() -> None:
    X = rows(3000)
    est = bf.SSBC(**PARAMS, mode="online").partial_fit(X)
    assert est.n_frozen_ > 0
    before = est.model_.digest
    copied = pickle.loads(pickle.dumps(est))
    for each in (est, copied):
        each.rebase()
        assert each.n_frozen_ == 3000
        codes, _ = each.partial_fit_encode(X)
        np.testing.assert_array_equal(codes, each.encode(X))
    assert est.model_.digest == copied.model_.digest != before
    for other in (bf.SSBC(**PARAMS), bf.SSBC(**PARAMS, mode="online")):
        with pytest.raises(ValueError, match="nothing to rebase"):
            other.rebase()


def test_what_cannot_be_streamed_is_refused() -> None:
    X = rows(100)
    with pytest.raises(ValueError, match='expected mode="online"'):
        bf.SSBC(**PARAMS).partial_fit_encode(X)
    with pytest.raises(ValueError, match='expected sketch_rows="all"'):
        bf.SSBC(**PARAMS, sketch_rows="train").partial_fit(X)
    with pytest.raises(ValueError, match='expected sketch_rows="all" with mode="online"'):
        bf.SSBC(**PARAMS, sketch_rows="train", mode="online").fit(X)
    est = bf.SSBC(**PARAMS).partial_fit(X)
    before = est.model_.digest
    with pytest.raises(ValueError, match="NaN"):
        est.partial_fit(np.full((3, 6), np.nan))
    with pytest.raises(ValueError, match="6 features"):
        est.partial_fit(X[:, :4])
    assert est.model_.digest == before
