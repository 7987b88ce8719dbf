"""scikit-learn's own checks, all of them, for every estimator, with no expected failure."""

from __future__ import annotations

from typing import Any

import bitfleet as bf
import pytest
from sklearn.utils.estimator_checks import check_estimator


def long(estimator: Any) -> Any:
    """Leave what has many bits or rounds by itself to the long tests; a smaller one is there, too."""
    return pytest.param(estimator, marks=pytest.mark.long)


ESTIMATORS = [
    bf.Sign(),
    bf.Sign(n_bits=1, center=True),
    bf.LSH(),
    bf.LSH(n_bits=3, n_components=0.9),
    long(bf.ITQ()),
    bf.ITQ(n_bits=2, n_iter=2),
    long(bf.KNNH()),
    bf.KNNH(n_bits=2, n_iter=2, n_train=10, neighbors_from="all"),
    bf.IsoHash(),
    bf.SpectralHashing(),
    bf.MDSH(),
    bf.MDSH(n_bits=3, sigma=0.5, products=True, n_bins=16),
    bf.CBE(n_bits=3),
    bf.SKLSH(),
    long(bf.NIBH()),
    bf.NIBH(n_bits=2, n_iter=1, n_steps=5),
    long(bf.NIBHCG()),
    bf.NIBHCG(n_bits=2, n_iter=2),
    bf.NIBH(n_bits=2, n_iter=1, n_steps=5, preset="calibrated", batch_size=8),
    bf.SSBC(),
    bf.Nystrom(n_bits=2, n_anchors=20, n_iter=2),
    bf.SSBC(n_bits=2, n_anchors=20, sketch_size=2, mode="online"),
    bf.EigenfunctionSSH(),
    bf.EigenfunctionSSH(n_bits=3, n_label_bits=1, n_functions=5, sigma=0.5),
    bf.AGH(n_bits=2, n_anchors=20, n_iter=1),
    bf.KLSH(),
    bf.KLSH(n_bits=3, n_anchors=20, kernel="linear"),
    bf.SHD(n_bits=3, n_train=20, n_iter=12),
    bf.BRE(n_bits=2, n_train=30, n_mixed=4, n_iter=1),
    long(bf.FruitFly()),
    bf.FruitFly(n_bits=8, n_active=2, density=0.5),
    bf.FruitFly(n_bits=8, n_active=2, matrix="orthogonal"),
    long(bf.BioHash()),
    bf.BioHash(n_bits=8, n_active=2, n_epochs=2),
    long(bf.SphericalHash()),
    bf.SphericalHash(n_bits=8, n_active=2, n_epochs=2, dead_units="reseed"),
    bf.POSH(),
    bf.POSH(n_bits=8, n_active=2, n_epochs=2),
    bf.POSH(n_bits=8, n_active=2, n_epochs=1, schedule="union"),
    bf.POSH(n_bits=8, n_active=2, n_epochs=1, schedule="paper", batch_size=1),
    long(bf.BOSL()),
    bf.BOSL(n_bits=8, n_active=2, n_iter=2),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_check_estimator(estimator: Any) -> None:
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] not in ("passed", "skipped")]
    assert not failed
    skipped = [r["check_name"] for r in results if r["status"] == "skipped"]
    assert skipped in ([], ["check_array_api_input"])  # only where SCIPY_ARRAY_API is not set
    assert len(results) > 40
