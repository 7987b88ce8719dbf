"""Packed codes: whole chunks from many tasks, receipts, and the marker that makes them valid."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import shutil

import numpy as np
import pytest
from bitfleet.storage import codes
from bitfleet.storage.digest import array_digest
from bitfleet.storage.errors import CorruptObject, DataRefused, DestinationExists, UnsafeObject
from bitfleet.tasks.protocols import BlockPair, RowIndices, RowRange
from hypothesis import given, settings
from hypothesis import strategies as st

N_BITS = 12


@pytest.fixture
def packed() -> np.ndarray:
    bits = np.random.default_rng(0).integers(0, 2, (100, N_BITS), dtype=np.uint8)
    bits[32:48] = 0
    return np.packbits(bits, axis=1, bitorder="little")


def create(path, **changes):
    options = {
        "n_rows": 100,
        "n_bits": N_BITS,
        "n_active": None,
        "chunk_rows": 16,
        "model_digest": "m" * 64,
        "source_digest": "s" * 64,
    }
    return codes.create_codes(path, **(options | changes))


def starts(writer):
    return range(0, writer.n_rows, writer.chunk_rows)


def write_all(writer, packed):
    return [writer.write(s, packed[s : s + writer.chunk_rows]) for s in starts(writer)]


@settings(deadline=None, max_examples=10)
@given(chunk_rows=st.integers(7, 150), seed=st.integers(0, 100))
def test_any_chunks_in_any_order_give_the_same_codes(tmp_path_factory, chunk_rows, seed):
    packed = np.random.default_rng(1).integers(0, 16, (100, 2), dtype=np.uint8)
    path = tmp_path_factory.mktemp("codes") / "c"
    writer = create(path, chunk_rows=chunk_rows)
    order = np.random.default_rng(seed).permutation(np.asarray(starts(writer)))
    receipts = [writer.write(int(s), packed[s : s + writer.chunk_rows]) for s in order]
    done = codes.finish_codes(path, receipts)
    assert done.digest == array_digest("codes", packed)
    np.testing.assert_array_equal(done.rows(0, 100), packed)
    done.verify()


def test_processes_write_side_by_side(tmp_path, packed):
    writer = create(tmp_path / "c", chunk_rows=8)
    jobs = [(s, packed[s : s + 8]) for s in starts(writer)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        receipts = pool.starmap(writer.write, jobs + jobs[:5])  # some twice, as a scheduler may do
    done = codes.finish_codes(tmp_path / "c", receipts)
    np.testing.assert_array_equal(done.rows(0, 100), packed)


def test_what_codes_say_of_themselves(tmp_path, packed):
    writer = create(tmp_path / "c", n_active=3)
    done = codes.finish_codes(tmp_path / "c", write_all(pickle.loads(pickle.dumps(writer)), packed))
    assert done == codes.open_codes(tmp_path / "c")
    assert (done.n_rows, done.n_bits, done.n_active, done.chunk_rows) == (100, N_BITS, 3, 16)
    assert (done.model_digest, done.source_digest, done.has_active) == ("m" * 64, "s" * 64, False)
    with pytest.raises(DataRefused, match="no index lists"):
        done.active(0, 1)
    with pytest.raises(IndexError):
        done.rows(0, 101)


def test_reader(tmp_path, packed):
    done = codes.finish_codes(tmp_path / "c", write_all(create(tmp_path / "c"), packed))
    reader = pickle.loads(pickle.dumps(done.reader()))
    assert (reader.n_rows, reader.n_features, reader.dtype) == (100, 2, "uint8")
    block = reader.read(RowRange(10, 40))
    np.testing.assert_array_equal(block.vectors, packed[10:40])
    np.testing.assert_array_equal(block.rows, np.arange(10, 40))
    np.testing.assert_array_equal(reader.read(RowIndices((99, 0, 0))).vectors, packed[[99, 0, 0]])
    left, right = reader.read(BlockPair(RowRange(0, 1), RowRange(1, 3)))
    assert (len(left.vectors), len(right.vectors)) == (1, 2)


def test_index_lists(tmp_path, packed):
    active = np.sort(np.random.default_rng(0).integers(0, N_BITS, (100, 3)), axis=1)
    writer = create(tmp_path / "c", n_active=3, with_active=True)
    receipts = [writer.write(s, packed[s : s + 16], active[s : s + 16]) for s in starts(writer)]
    done = codes.finish_codes(tmp_path / "c", receipts)
    assert done.active(0, 100).dtype == np.int32
    np.testing.assert_array_equal(done.active(0, 100), active)
    with pytest.raises(ValueError, match="expected index lists"):
        writer.write(0, packed[:16])
    with pytest.raises(ValueError, match="3 places"):
        writer.write(0, packed[:16], active[:16, :2])


def test_no_rows(tmp_path):
    create(tmp_path / "c", n_rows=0)
    assert codes.finish_codes(tmp_path / "c", []).rows(0, 0).shape == (0, 2)


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 15), (0, 17), (1, 17), (96, 99), (80, 100), (-16, 0), (112, 112)]
)
def test_a_write_that_is_not_exactly_one_chunk_is_refused(tmp_path, packed, start, stop):
    with pytest.raises(ValueError, match="one whole chunk"):
        create(tmp_path / "c").write(start, packed[max(start, 0) : max(stop, 0)])


def test_other_codes_that_are_refused(tmp_path, packed):
    writer = create(tmp_path / "c")
    with pytest.raises(ValueError, match="zero padding after bit 12"):
        writer.write(0, packed[:16] | np.uint8(128))
    with pytest.raises(ValueError, match="uint8, got int64"):
        writer.write(0, packed[:16].astype(int))
    with pytest.raises(ValueError, match="no index lists"):
        writer.write(0, packed[:16], packed[:16])
    with pytest.raises(DestinationExists):
        create(tmp_path / "c")
    with pytest.raises(ValueError, match="expected n_rows"):
        create(tmp_path / "d", n_bits=0)


def test_unfinished_codes_are_not_read(tmp_path, packed):
    receipts = write_all(create(tmp_path / "c"), packed)
    with pytest.raises(CorruptObject, match="unfinished"):
        codes.open_codes(tmp_path / "c")
    with pytest.raises(CorruptObject, match="receipt for each of 7 chunks, got 6"):
        codes.finish_codes(tmp_path / "c", receipts[1:])
    (tmp_path / "c" / "codes" / "c" / "2" / "0").unlink()
    with pytest.raises(CorruptObject, match="missing"):
        codes.finish_codes(tmp_path / "c", receipts)
    for nothing in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(DataRefused, match="no codes"):
            codes.open_codes(nothing)


def test_codes_that_changed_before_the_marker_are_noticed(tmp_path, packed):
    writer = create(tmp_path / "c")
    receipts = write_all(writer, packed)
    writer.write(16, packed[:16])
    with pytest.raises(CorruptObject, match="rows 16 to 32 are not what their task wrote"):
        codes.finish_codes(tmp_path / "c", receipts)


def test_codes_that_changed_after_the_marker_are_noticed(tmp_path, packed):
    done = codes.finish_codes(tmp_path / "c", write_all(create(tmp_path / "c"), packed))
    folder = tmp_path / "c" / "codes" / "c"
    shutil.copy(folder / "0" / "0", folder / "1" / "0")
    with pytest.raises(CorruptObject, match="not those that were written"):
        done.verify()
    with pytest.raises(CorruptObject, match="not those that were written"):
        codes.open_codes(tmp_path / "c")
    (folder / "1" / "0").unlink()
    with pytest.raises(CorruptObject, match="missing"):
        done.rows(10, 20)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"n_bits": 99}, CorruptObject),
        ({"n_bits": "12"}, CorruptObject),
        ({"digest": None}, CorruptObject),
        ({"has_active": True}, CorruptObject),
        ({"n_bits": 11}, CorruptObject),  # takes as many bytes
        ({"model_digest": "0" * 64}, CorruptObject),
        ({"format_version": 2}, DataRefused),
        ({"bitfleet_format": "dataset"}, DataRefused),
    ],
)
def test_attributes_that_are_wrong(tmp_path, packed, changes, error):
    codes.finish_codes(tmp_path / "c", write_all(create(tmp_path / "c"), packed))
    meta = json.loads((tmp_path / "c" / "zarr.json").read_text())
    meta["attributes"] |= changes
    (tmp_path / "c" / "zarr.json").write_text(json.dumps(meta))
    with pytest.raises(error):
        codes.open_codes(tmp_path / "c")


def test_links_are_refused(tmp_path, packed):
    codes.finish_codes(tmp_path / "c", write_all(create(tmp_path / "c"), packed))
    shutil.move(tmp_path / "c" / "codes", tmp_path / "outside")
    (tmp_path / "c" / "codes").symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafeObject, match="symbolic link"):
        codes.open_codes(tmp_path / "c")
