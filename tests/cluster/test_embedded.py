"""The limit on what travels with a task."""

from __future__ import annotations

import cloudpickle
import cluster_toys as toys
import numpy as np
import pytest
from bitfleet.cluster.embedded import MAX_EMBEDDED_BYTES, ensure_small
from bitfleet.cluster.errors import GraphTooLarge


def test_the_size_is_that_of_the_pickle():
    assert ensure_small({"reader": toys.Formula(10)}) == len(cloudpickle.dumps(toys.Formula(10)))


def test_what_is_too_large_is_named():
    vectors = np.zeros((1000, 1000), np.float32)
    with pytest.raises(GraphTooLarge, match=r"at most 1,000,000 bytes .* the reader \(InMemory\)"):
        ensure_small({"program": toys.Sum(), "reader": toys.InMemory(vectors)})


def test_many_small_things_add_up():
    half = b"x" * (MAX_EMBEDDED_BYTES // 2)
    assert ensure_small({"a": half}) < MAX_EMBEDDED_BYTES
    with pytest.raises(GraphTooLarge, match=r"the b \(bytes\)"):
        ensure_small({"a": half, "b": half})
