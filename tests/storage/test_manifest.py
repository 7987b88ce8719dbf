from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from bitfleet.storage.errors import CorruptObject, StorageError, UnsafeObject
from bitfleet.storage.manifest import (
    ArrayRecord,
    Manifest,
    attempt_round,
    manifest_key,
    manifest_rounds,
)
from bitfleet.storage.objects import ObjectRecord
from hypothesis import given, settings
from hypothesis import strategies as st

ATTEMPT = "00000002-" + "ab" * 16
MANIFEST = Manifest(
    round=2,
    parent="1" * 64,
    attempt=ATTEMPT,
    write_id="w",
    config_digest="2" * 64,
    identity={"seed": 0, "environment": {"blas": "ä"}},
    keep=2,
    scalars={"loss": 0.1 + 0.2, "step": 2**70, "name": "é", "none": None},
    arrays={"w": ArrayRecord("float64", (3, 4))},
    objects=(ObjectRecord(f"objects/{ATTEMPT}/w.zarr/zarr.json", 10, "3" * 64),),
    committed_at="2026-01-01T00:00:00.000+00:00",
    driver={"host": "h", "pid": 1},
)
DATA = MANIFEST.to_bytes()


def forged(**changes) -> bytes:
    """A manifest whose digest is right and whose content is not."""
    document = {**json.loads(DATA), **changes}
    document = {key: value for key, value in document.items() if value is not ... and key != "sha256"}
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    document["sha256"] = hashlib.sha256(canonical.encode()).hexdigest()
    return (json.dumps(document, sort_keys=True, indent=1) + "\n").encode()


def test_it_is_read_back_as_it_was():
    assert Manifest.from_bytes(DATA, "here", 2) == MANIFEST
    assert Manifest.from_bytes(forged(), "here", 2).digest == MANIFEST.digest


def test_the_digest_covers_every_field():
    changes = {
        "write_id": "v",
        "identity": {"seed": 1},
        "keep": 3,
        "scalars": {"loss": 0.3},
        "committed_at": "2027-01-01T00:00:00.000+00:00",
        "driver": {"host": "h", "pid": 2},
        "arrays": {},
        "parent": "4" * 64,
    }
    digests = {replace(MANIFEST, **{name: value}).digest for name, value in changes.items()}
    assert len(digests | {MANIFEST.digest}) == len(changes) + 1


@settings(max_examples=400, deadline=None)
@given(st.integers(0, len(DATA) - 1), st.integers(0, 7))
def test_any_flipped_bit_is_an_error(position, bit):
    data = bytearray(DATA)
    data[position] ^= 1 << bit
    with pytest.raises((CorruptObject, UnsafeObject), match="here"):
        Manifest.from_bytes(bytes(data), "here", 2)


@given(st.integers(0, len(DATA) - 1))
@settings(deadline=None)
def test_any_truncation_is_an_error(length):
    with pytest.raises(CorruptObject, match="here"):
        Manifest.from_bytes(DATA[:length], "here", 2)


def test_the_same_content_in_another_form_is_an_error():
    compact = json.dumps(json.loads(DATA)).encode()
    for data in (compact, DATA + b"\n", b" " + DATA):
        with pytest.raises(CorruptObject, match="digest does not fit"):
            Manifest.from_bytes(data, "here", 2)


def test_it_belongs_to_the_round_of_its_name():
    with pytest.raises(CorruptObject, match="holds the manifest of round 2, not of 3"):
        Manifest.from_bytes(DATA, "here", 3)


def test_a_newer_format_is_refused_with_advice():
    with pytest.raises(StorageError, match="format version 2, this bitfleet reads 1; use the version"):
        Manifest.from_bytes(forged(format_version=2), "here", 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"round": -1},
        {"round": True},
        {"round": ...},
        {"unknown": 1},
        {"parent": None},
        {"parent": "x"},
        {"attempt": "../../etc"},
        {"attempt": "00000001-" + "ab" * 16},
        {"keep": "2"},
        {"scalars": []},
        {"config_digest": 7},
        {"arrays": {"../w": {"dtype": "float64", "shape": [1]}}},
        {"arrays": {"w": {"dtype": "float64", "shape": [-1]}}},
        {"arrays": {"w": {"dtype": "float64"}}},
        {"arrays": [1]},
        {"objects": [{"path": f"objects/{ATTEMPT}/v.zarr/c", "size": 1, "sha256": "3" * 64}]},
        {"objects": [{"path": f"objects/{ATTEMPT}/w.zarr/../../x", "size": 1, "sha256": "3" * 64}]},
        {"objects": [{"path": "/etc/passwd", "size": 1, "sha256": "3" * 64}]},
        {"objects": [{"path": f"objects/{ATTEMPT}/w.zarr/c", "size": -1, "sha256": "3" * 64}]},
        {"objects": [{"path": f"objects/{ATTEMPT}/w.zarr/c", "size": 1, "sha256": "3"}]},
        {"objects": {"path": 1}},
    ],
)
def test_a_forged_manifest_is_refused(changes):
    with pytest.raises((CorruptObject, UnsafeObject)):
        Manifest.from_bytes(forged(**changes), "here", 2)


def test_names():
    assert manifest_key(3) == "manifests/00000003.json"
    names = ["00000010.json", "00000002.json", ".tmp-1", "3.json", "00000003.json~", "notes"]
    assert manifest_rounds(names) == [2, 10]
    assert attempt_round(ATTEMPT) == 2
    assert attempt_round("notes") is None
    with pytest.raises(ValueError, match="expected a round"):
        manifest_key(-1)
    with pytest.raises(ValueError, match="expected a round"):
        manifest_key(10**8)
