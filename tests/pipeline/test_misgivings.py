"""Who asks for the least distortion is told when it cannot be had, or is worse than that of a constant."""

from __future__ import annotations

import warnings
from typing import Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.tasks.distortion import constant_distortion, critical_bits, scale_bound
from scipy.spatial.distance import pdist


def rows() -> np.ndarray:
    X = np.random.default_rng(1).normal(size=(80, 40))
    return X / np.linalg.norm(X, axis=1)[:, None]


@pytest.mark.parametrize(
    "estimator", [bf.NIBH(n_bits=6, n_iter=2, random_state=0), bf.NIBHCG(n_bits=6, n_iter=4, random_state=0)]
)
def test_too_few_bits_and_worse_than_a_constant(estimator: Any) -> None:
    X = rows()
    with pytest.warns(bf.DistortionWarning) as caught:
        estimator.fit(X)
    said = [str(warning.message) for warning in caught]
    assert len(said) == 2
    c, scalars = pdist(X), estimator.model_.state.scalars
    found = bf.max_distortion(estimator.encode(X), X, n_bits=6)
    assert found.delta > found.constant
    assert scalars["distortion"] == pytest.approx(found.delta, rel=1e-9)
    assert scalars["distortion_constant"] == pytest.approx(constant_distortion(c, c), rel=1e-9)
    assert scalars["least_bits"] == pytest.approx(critical_bits(c.mean(), (c**2).mean()), rel=1e-6)
    assert scalars["distortion_bound"] == pytest.approx(scale_bound(6, 80, c.mean(), (c**2).mean()), rel=1e-6)
    assert f"T = {found.constant:.4g}" in said[0]
    assert f"M* = {found.critical_bits:.4g}" in said[1]
    assert f"δ ≥ {found.bound:.4g}" in said[1]
    assert said[0].endswith(found.warnings[0])
    assert said[1].endswith(found.warnings[1])


def test_no_doubt_no_warning() -> None:
    """Enough bits for two dimensions; a calibrated model, which promises nothing through the origin."""
    angles = np.random.default_rng(2).uniform(0, np.pi, 60)
    plane = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = bf.NIBH(n_bits=24, random_state=0).fit(plane)
        assert fitted.distortion_ < fitted.model_.state.scalars["distortion_constant"]
        bf.NIBH(n_bits=6, preset="calibrated", n_iter=2, random_state=0).fit(rows())
        bf.ITQ(n_bits=6, random_state=0).fit(rows())
