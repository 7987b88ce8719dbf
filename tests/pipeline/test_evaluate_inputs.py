"""What an evaluation refuses before, or instead of, giving a number."""

from __future__ import annotations

from typing import Any

import bitfleet as bf
import numpy as np
import pytest

RNG = np.random.default_rng(4)
X, Q = RNG.normal(size=(60, 5)), RNG.normal(size=(4, 5))
LABELS, ASKED = RNG.integers(0, 3, 60), np.array([0, 1, 2, 0])


@pytest.fixture(scope="module")
def model() -> Any:
    return bf.LSH(n_bits=8, random_state=0).fit(X)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.ma.array(LABELS, mask=LABELS == 1), "labels of the data are masked"),
        (LABELS.astype(np.uint64) + np.uint64(2**63), "do not fit 64 bits with a sign"),
        (LABELS.astype(str), "integer labels"),
        (LABELS[:5], "integer labels"),
    ],
)
def test_labels_that_are_none(model: Any, labels: Any, message: str) -> None:
    with pytest.raises(bf.ConfigError, match=message):
        bf.evaluate(model, (X, labels), (Q, ASKED), "map@5")


def test_labels_that_are_masked_nowhere_or_unsigned_are_labels(model: Any) -> None:
    expected = bf.evaluate(model, (X, LABELS), (Q, ASKED), "map@5")["value"].item()
    for labels in (np.ma.array(LABELS), LABELS.astype(np.uint64)):
        assert bf.evaluate(model, (X, labels), (Q, ASKED), "map@5")["value"].item() == expected


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_distances_that_overflow_are_no_neighbours(model: Any, distance: str) -> None:
    """Each would be as far as the other: the first ones by chance would count as true neighbours."""
    with pytest.raises(ValueError, match="overflow float64; rescale"):
        bf.evaluate(model, X * 1e300, Q, "recall5@10", distance=distance)
    scale = 2.0**500  # changes neither codes nor neighbours
    large = bf.evaluate(bf.LSH(n_bits=8, random_state=0).fit(X * scale), X * scale, Q * scale, "recall5@10",
                        distance=distance)  # fmt: skip
    plain = bf.evaluate(model, X, Q, "recall5@10", distance=distance)
    assert large["value"].item() == plain["value"].item()
