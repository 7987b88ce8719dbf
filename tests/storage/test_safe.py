"""The safe reader: what is written comes back, and what is wrong or hostile never gets as far as decoding."""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import tracemalloc

import numpy as np
import pytest
import zarr
from bitfleet.storage import safe
from bitfleet.storage.errors import CorruptObject, DestinationExists, UnsafeObject
from bitfleet.storage.metadata import ALLOWED
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

# --- round trips ----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    array=hnp.arrays(
        st.sampled_from(sorted(ALLOWED)),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6),
    ),
    chunk_rows=st.none() | st.integers(1, 7),
)
def test_round_trip(tmp_path_factory, array, chunk_rows):
    path = tmp_path_factory.mktemp("safe") / "a"
    safe.write_array(path, array, chunk_rows=chunk_rows)
    result = safe.read_array(path)
    assert (result.dtype, result.shape) == (array.dtype, array.shape)
    assert result.tobytes() == array.tobytes()


def test_zarr_reads_what_we_write(tmp_path):
    array = np.arange(20, dtype=">f8").reshape(10, 2)
    safe.write_array(tmp_path / "a", array, chunk_rows=4, dimension_names=("sample", "feature"))
    stored = zarr.open_array(tmp_path / "a", mode="r")
    np.testing.assert_array_equal(stored[:], array)
    assert (stored.chunks, stored.metadata.dimension_names) == ((4, 2), ("sample", "feature"))


def test_zeros_are_written_and_nothing_is_overwritten(tmp_path):
    safe.write_array(tmp_path / "a", np.zeros((10, 2)), chunk_rows=4)
    assert sorted(p.name for p in (tmp_path / "a" / "c").iterdir()) == ["0", "1", "2"]
    with pytest.raises(DestinationExists, match="choose another name"):
        safe.write_array(tmp_path / "a", np.zeros((10, 2)))
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DestinationExists):
        safe.write_array(tmp_path / "link", np.zeros(3))
    with pytest.raises(TypeError, match="got object"):
        safe.write_array(tmp_path / "b", np.array([{}], dtype=object))


@settings(deadline=None, max_examples=30)
@given(rows=st.lists(st.integers(0, 39), max_size=30))
def test_take(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "take"
    array = np.arange(80).reshape(40, 2)
    if not path.exists():
        safe.write_array(path, array, chunk_rows=7)
    rows = np.array(rows, np.int64)
    np.testing.assert_array_equal(safe.check_array(path).take(rows), array[rows])


# --- damage ---------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "a"
    safe.write_array(path, np.random.default_rng(0).normal(size=(40, 3)), chunk_rows=10)
    return path


@pytest.mark.parametrize("victim", ["zarr.json", "c/0/0", "c/3/0"])
@pytest.mark.parametrize("damage", ["truncate to 0", "truncate half", "delete", "flip"])
def test_damage_is_a_named_error(stored, victim, damage):
    file = stored / victim
    data = file.read_bytes()
    if damage == "delete":
        file.unlink()
    elif damage == "flip":
        file.write_bytes(
            data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 128]) + data[len(data) // 2 + 1 :]
        )
    else:
        file.write_bytes(data[: len(data) // 2 if "half" in damage else 0])
    with pytest.raises((CorruptObject, UnsafeObject), match=str(stored)):
        safe.read_array(stored)


def test_every_flipped_byte_of_a_chunk_is_noticed(stored):
    file = stored / "c" / "1" / "0"
    data = file.read_bytes()
    for i in range(0, len(data), 3):
        file.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        with pytest.raises(CorruptObject):
            safe.read_array(stored)


def test_missing_chunks_are_counted_and_named(stored):
    for i in (1, 2):
        (stored / "c" / str(i) / "0").unlink()
    with pytest.raises(CorruptObject, match=r"2 of 4 chunks are missing, the first is 'c/1/0'"):
        safe.open_array(stored)


def test_a_chunk_that_vanishes_after_opening_is_no_row_of_zeros(stored):
    checked = safe.check_array(stored)
    (stored / "c" / "1" / "0").unlink()
    assert checked.rows(0, 10).shape == (10, 3)
    with pytest.raises(CorruptObject, match="missing"):
        checked.rows(5, 15)


def test_strangers_are_refused_and_debris_of_killed_writers_is_not(stored):
    (stored / "c" / "1" / "0.0123.partial").write_bytes(b"half a chunk")
    assert safe.read_array(stored).shape == (40, 3)
    for name in ("c/4/0", "c/01/0", "c/0/1", ".zarray", "c/note.txt"):
        (stored / name).parent.mkdir(exist_ok=True)
        (stored / name).write_bytes(b"x")
        with pytest.raises(UnsafeObject, match=f"{name}' is no chunk"):
            safe.open_array(stored)
        (stored / name).unlink()


# --- malice ---------------------------------------------------------------------------------------------


@pytest.fixture
def audit():
    """Fail on anything that code smuggled into a file would do."""
    forbidden = ("os.system", "subprocess.Popen", "socket.connect", "pickle.find_class", "exec")
    seen: list[str] = []
    active = [True]

    def hook(event, arguments):
        if active[0] and event in forbidden:
            seen.append(event)

    sys.addaudithook(hook)
    yield seen
    active[0] = False
    assert seen == []


class Payload:
    def __reduce__(self):
        return os.system, ("touch executed",)


def crafted(path, **changes):
    """A valid small array on disk with changed metadata; a value of None removes the key."""
    if not path.exists():
        safe.write_array(path, np.arange(12.0).reshape(4, 3), chunk_rows=2)
    meta = json.loads((path / "zarr.json").read_text()) | changes
    meta = {key: value for key, value in meta.items() if value is not None}
    (path / "zarr.json").write_text(json.dumps(meta))
    return path


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
ZSTD = {"name": "zstd", "configuration": {"level": 0, "checksum": False}}
SHARDS = {
    "name": "sharding_indexed",
    "configuration": {
        "chunk_shape": [1, 3],
        "codecs": [BYTES],
        "index_codecs": [BYTES],
        "index_location": "end",
    },
}
REGULAR = {"name": "regular", "configuration": {"chunk_shape": [2, 3]}}


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {"codecs": [{"name": "numcodecs.pickle"}]},
        {"codecs": [{"name": "numcodecs.json2"}, BYTES]},
        {"codecs": ["pickle"]},
        {"codecs": [BYTES, {"name": "numcodecs.pickle", "configuration": {}}]},
        {"codecs": [BYTES, {"name": "zstd", "configuration": {"level": 1, "hook": "os.system"}}]},
        {"codecs": [BYTES, {"name": "zstd", "extra": 1}]},
        {"codecs": [BYTES, {"name": ["zstd"]}]},
        {"codecs": [ZSTD, BYTES]},
        {"codecs": [BYTES, BYTES]},
        {"codecs": []},
        {"codecs": {"name": "bytes"}},
        {"codecs": [SHARDS | {"configuration": SHARDS["configuration"] | {"codecs": [{"name": "pickle"}]}}]},
        {"codecs": [SHARDS | {"configuration": SHARDS["configuration"] | {"codecs": [SHARDS]}}]},
        {"codecs": [SHARDS | {"configuration": SHARDS["configuration"] | {"index_codecs": [BYTES, ZSTD]}}]},
        {"codecs": [SHARDS | {"configuration": SHARDS["configuration"] | {"chunk_shape": [0, 3]}}]},
        {"codecs": [SHARDS | {"configuration": {}}]},
        {"data_type": "object"},
        {"data_type": "|O"},
        {"data_type": "string"},
        {"data_type": "variable_length_bytes"},
        {"data_type": "complex128"},
        {"data_type": {"name": "struct", "configuration": {"fields": []}}},
        {"data_type": {"name": "numpy.datetime64", "configuration": {}}},
        {"data_type": None},
        {"shape": [10**12, 10**12]},
        {"shape": [10**18, 3]},
        {"shape": [2**63, 3]},
        {"shape": [-1, 3]},
        {"shape": [4.0, 3]},
        {"shape": [True, 3]},
        {"shape": "43"},
        {"shape": [4]},
        {"shape": [1] * 100},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2**40, 2**40]}}},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 3]}}},
        {"chunk_grid": {"name": "regular", "configuration": {}}},
        {"chunk_grid": {"name": "rectilinear", "configuration": {"chunk_shapes": [[1], [2]]}}},
        {"chunk_grid": REGULAR | {"must_understand": False}},
        {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "/../"}}},
        {"chunk_key_encoding": {"name": "os.system", "configuration": {}}},
        {"storage_transformers": [{"name": "indexed"}]},
        {"fill_value": {"__reduce__": "os.system"}},
        {"fill_value": "0x00"},
        {"fill_value": []},
        {"dimension_names": ["a"]},
        {"dimension_names": [["a"], "b"]},
        {"attributes": ["__reduce__"]},
        {"zarr_format": 2},
        {"node_type": "group"},
        {"consolidated_metadata": {}},
        {"codecs": None},
    ],
    ids=lambda changes: json.dumps(changes)[:80],
)
def test_crafted_metadata_is_refused_before_zarr_sees_it(tmp_path, audit, monkeypatch, foreign, changes):
    path = crafted(tmp_path / "a", **changes)
    monkeypatch.setattr(zarr, "open_array", lambda *a, **k: pytest.fail("Zarr was asked to open it"))
    tracemalloc.start()
    try:
        # a giant shape whose chunks are not there is damage, everything else is malice
        with pytest.raises((UnsafeObject, CorruptObject), match=str(path)):
            safe.open_array(path, foreign=foreign)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2e6


@pytest.mark.parametrize("codec", ["gzip", "blosc", "transpose", "sharding_indexed"])
def test_codecs_of_others_are_not_for_our_own_files(tmp_path, codec):
    chain = [{"name": codec}, BYTES] if codec == "transpose" else [BYTES, {"name": codec}]
    with pytest.raises(UnsafeObject, match="bytes, zstd, crc32c"):
        safe.open_array(crafted(tmp_path / "a", codecs=chain))
    with pytest.raises(UnsafeObject, match="little-endian"):
        safe.open_array(
            crafted(tmp_path / "a", codecs=[{"name": "bytes", "configuration": {"endian": "big"}}])
        )


def test_format_2_with_a_pickle_filter_is_not_executed(tmp_path, audit, monkeypatch):
    """The file that executes code on some versions of Zarr."""
    import pickle

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a"
    path.mkdir()
    meta = {
        "zarr_format": 2,
        "shape": [1],
        "chunks": [1],
        "dtype": "|O",
        "fill_value": None,
        "order": "C",
        "compressor": None,
        "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}],
    }
    (path / ".zarray").write_text(json.dumps(meta))
    (path / "0").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(CorruptObject, match=r"zarr\.json: this file is missing"):
        safe.read_array(path)
    (path / "zarr.json").write_text(json.dumps(meta))
    with pytest.raises(UnsafeObject, match="expected a Zarr format 3 array"):
        safe.read_array(path)
    assert not (tmp_path / "executed").exists()


def test_size_limits_come_before_allocation(tmp_path):
    path = tmp_path / "a"
    safe.write_array(path, np.zeros((1000, 100)))
    with pytest.raises(UnsafeObject, match="800,000 bytes, more than the limit of 799,999"):
        safe.read_array(path, max_bytes=799_999)
    assert safe.read_array(path, max_bytes=800_000).shape == (1000, 100)
    with pytest.raises(UnsafeObject, match="not one of float32"):
        safe.read_array(path, dtypes=frozenset({"float32"}))


@pytest.mark.parametrize("size", [2**40, 2**62, 25, None])
def test_a_frame_that_announces_another_size_is_not_decoded(tmp_path, monkeypatch, size):
    """A Zstandard frame header may announce any size, and decoders allocate it."""
    path = tmp_path / "a"
    safe.write_array(path, np.zeros((2, 1)), chunk_rows=2)
    head = b"\x28\xb5\x2f\xfd" + (b"\x00\x58" if size is None else b"\xe0" + struct.pack("<Q", size))
    (path / "c" / "0" / "0").write_bytes(head + b"\1\0\0" + b"\0" * 8)
    monkeypatch.setattr(zarr, "open_array", lambda *a, **k: pytest.fail("Zarr was asked to open it"))
    with pytest.raises(CorruptObject, match="expected a Zstandard frame of 16 bytes"):
        safe.read_array(path)
    if size is not None and size > 2**20:
        with pytest.raises(CorruptObject, match="expected a Zstandard frame of 16 bytes"):
            safe.open_array(path, foreign=True)


@pytest.mark.parametrize("victim", ["c", "c/0", "c/0/0", "zarr.json"])
def test_symbolic_links_are_refused(tmp_path, victim):
    safe.write_array(tmp_path / "a", np.arange(4.0))
    safe.write_array(tmp_path / "b", np.arange(4.0).reshape(4, 1))
    target, inside = tmp_path / "outside", tmp_path / "b" / victim
    shutil.move(inside, target)
    inside.symlink_to(target)
    with pytest.raises(UnsafeObject, match="symbolic link"):
        safe.read_array(tmp_path / "b")


@pytest.mark.parametrize("victim", ["c/0/0", "zarr.json"])
def test_pipes_are_not_waited_for(tmp_path, victim):
    safe.write_array(tmp_path / "b", np.arange(4.0).reshape(4, 1))
    (tmp_path / "b" / victim).unlink()
    os.mkfifo(tmp_path / "b" / victim)
    with pytest.raises(CorruptObject, match=victim):
        safe.read_array(tmp_path / "b")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "..",
        "../a",
        "a/../../b",
        "a/./b",
        "a//b",
        "a/",
        "C:\\a",
        "a\\..\\b",
        "a\0b",
        "x" * 2000,
    ],
)
def test_paths_that_could_leave_are_refused(tmp_path, name):
    with pytest.raises(UnsafeObject, match="relative path"):
        safe.check_relative(name)
    with pytest.raises(UnsafeObject):
        safe.resolve_inside(tmp_path, name)


def test_paths_inside(tmp_path):
    assert safe.check_relative("objects/a.zarr/c/0") == "objects/a.zarr/c/0"
    assert safe.resolve_inside(tmp_path, "a/b") == tmp_path / "a" / "b"
    (tmp_path / "out").symlink_to("/etc")
    with pytest.raises(UnsafeObject, match="symbolic link"):
        safe.resolve_inside(tmp_path, "out/passwd")


# --- JSON and groups ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[" * 100_000, UnsafeObject, "nested deeper"),
        ('{"a":' * 65 + "1" + "}" * 65, UnsafeObject, "nested deeper than 64"),
        ('{"a": [' + "[" * 64 + "]" * 64 + "]}", UnsafeObject, "nested deeper than 64"),
        ('{"a": 1, "a": 2}', UnsafeObject, "twice"),
        ('{"a": NaN}', UnsafeObject, "not finite"),
        ('{"a": -Infinity}', UnsafeObject, "not finite"),
        ('{"a": 1e999}', UnsafeObject, "not finite"),
        ('{"a": ' + "9" * 10_000 + "}", CorruptObject, "no valid JSON"),
        ('{"a": "' + "x" * 2**20 + '"}', UnsafeObject, "at most 1,048,576 bytes"),
        ('{"a": 1', CorruptObject, "no valid JSON"),
        ("", CorruptObject, "no valid JSON"),
        ("[1]", CorruptObject, "expected a JSON object"),
        ("{'a': 1}", CorruptObject, "no valid JSON"),
        ("!!python/object/apply:os.system ['id']", CorruptObject, "no valid JSON"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_json_that_is_refused(tmp_path, text, error, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(error, match=message):
        safe.read_json(tmp_path / "a.json")


def test_json_that_is_read(tmp_path):
    value = {"a": [1, 2.5, None, True, {"b": "é"}]}
    (tmp_path / "a.json").write_text(json.dumps(value))
    assert safe.read_json(tmp_path / "a.json") == value
    deepest = '{"a":' * 64 + "1" + "}" * 64
    assert safe.parse_json(deepest.encode(), "here")
    (tmp_path / "b.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(CorruptObject):
        safe.read_json(tmp_path / "b.json")
    with pytest.raises(CorruptObject, match="missing"):
        safe.read_json(tmp_path / "c.json")
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    with pytest.raises(UnsafeObject, match="symbolic link"):
        safe.read_json(tmp_path / "link.json")


def test_groups_are_written_once(tmp_path):
    safe.write_group(tmp_path / "g", {"a": [1, "é"]})
    assert safe.read_group(tmp_path / "g") == {"a": [1, "é"]}
    assert dict(zarr.open_group(tmp_path / "g", mode="r").attrs) == {"a": [1, "é"]}
    with pytest.raises(DestinationExists):
        safe.write_group(tmp_path / "g", {"a": 2})
    assert safe.read_group(tmp_path / "g") == {"a": [1, "é"]}
    assert [p.name for p in (tmp_path / "g").iterdir()] == ["zarr.json"]
    safe.write_array(tmp_path / "a", np.zeros(3))
    with pytest.raises(UnsafeObject, match="group"):
        safe.read_group(tmp_path / "a")
