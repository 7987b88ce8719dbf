"""Digests: the documented formula, and nothing but content changes them."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from bitfleet.storage.digest import (
    TILE_ROWS,
    DataDigest,
    array_digest,
    arrays_digest,
    canonical_json,
    json_digest,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def formula(name, dtype, array):
    """The formula of the module's documentation, from the standard library alone."""
    raw = array.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    row_bytes = len(raw) // max(len(array), 1)
    head = json.dumps({"dtype": dtype, "name": name, "shape": array.shape}, separators=(",", ":"))
    tiles = [raw[i * row_bytes : (i + TILE_ROWS) * row_bytes] for i in range(0, len(array), TILE_ROWS)]
    return hashlib.sha256(head.encode() + b"".join(hashlib.sha256(t).digest() for t in tiles)).hexdigest()


@pytest.mark.parametrize("n_rows", [0, 1, TILE_ROWS - 1, TILE_ROWS, TILE_ROWS + 1, 3 * TILE_ROWS])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64", "bool"])
def test_formula(n_rows, dtype):
    array = np.random.default_rng(n_rows).integers(0, 2, (n_rows, 2)).astype(dtype)
    assert array_digest("a", array) == formula("a", dtype, array)


def test_known_value():
    """Computed once with sha256sum; pins the format for good."""
    tile = hashlib.sha256(bytes([1, 0, 2, 0, 3, 0, 4, 0])).digest()
    head = b'{"dtype":"int16","name":"v","shape":[2,2]}'
    assert array_digest("v", np.array([[1, 2], [3, 4]], "i2")) == hashlib.sha256(head + tile).hexdigest()


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 70_000), max_size=6))
def test_pieces_do_not_matter(cuts):
    rows = np.arange(140_000, dtype=np.int32).reshape(70_000, 2)
    digest = DataDigest("a", "int32", (2,))
    edges = [0, *sorted(cuts), len(rows)]
    for start, stop in zip(edges[:-1], edges[1:], strict=True):  # noqa: RUF007 - as in the code under test
        digest.update(rows[start:stop])
    assert digest.hexdigest() == array_digest("a", rows)


def test_layout_in_memory_does_not_matter():
    array = np.random.default_rng(0).normal(size=(30, 8))
    expected = array_digest("a", array)
    for same in (np.asfortranarray(array), array.astype(">f8"), np.repeat(array, 2, axis=1)[:, ::2]):
        assert array_digest("a", same) == expected


def test_name_dtype_and_shape_matter():
    array = np.zeros((4, 6), np.int32)
    others = [
        array_digest("b", array),
        array_digest("a", array.view(np.float32)),
        array_digest("a", array.reshape(4, 2, 3)),
        array_digest("a", array.reshape(8, 3)),
        array_digest("a", np.int32(0)),
        array_digest("a", np.zeros(1, np.int32)),
    ]
    assert len({array_digest("a", array), *others}) == 7


def test_the_order_of_a_mapping_does_not_matter():
    a, b = np.arange(3), np.arange(4)
    assert (
        arrays_digest({"a": a, "b": b}) == arrays_digest({"b": b, "a": a}) != arrays_digest({"a": b, "b": a})
    )


def test_what_has_no_plain_bytes_is_refused():
    with pytest.raises(TypeError, match="bool, integer or floating"):
        array_digest("a", np.array([{}], dtype=object))
    digest = DataDigest("a", "f4", (3,))
    with pytest.raises(ValueError, match="expected rows of float32"):
        digest.update(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="expected rows of float32"):
        digest.update(np.zeros((2, 4), "f4"))


def test_canonical_json():
    assert canonical_json({"b": [1, 2.5, None, True], "a": "é"}) == '{"a":"é","b":[1,2.5,null,true]}'.encode()
    assert json_digest({"a": 1, "b": 2}) == hashlib.sha256(b'{"a":1,"b":2}').hexdigest()
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            canonical_json({"a": value})
    for value in ({1: 2}, {"a": [{None: 1}]}, {"a": np.float32(1)}, {"a": {1, 2}}):
        with pytest.raises(TypeError):
            canonical_json(value)
