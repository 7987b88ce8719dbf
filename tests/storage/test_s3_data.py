"""Datasets, codes and models in an object store: the same content as on a disk, the same refusals."""

from __future__ import annotations

import json
import pickle
import threading

import numpy as np
import pytest
from bitfleet.storage import claims, codes
from bitfleet.storage.datasets import DatasetWriter, open_dataset
from bitfleet.storage.errors import CorruptObject, DataRefused, DestinationExists, UnsafeObject
from bitfleet.storage.ingest import ingest
from bitfleet.storage.models import load_model, save_model
from bitfleet.storage.readers import stored_array
from bitfleet.tasks.protocols import BlockPair, RowIndices, RowRange

ROWS = np.random.default_rng(0).normal(size=(100, 5)).astype(np.float32)
LABELS = np.arange(100) % 7
CLAIM = claims.CLAIM


def write(path, vectors=ROWS, labels=LABELS, **options):
    writer = DatasetWriter(path, n_features=5, dtype="float32", with_labels=True, **options)
    for start in range(0, len(vectors), 30):
        writer.append(vectors[start : start + 30], labels[start : start + 30])
    return writer.close(["a"] * 7)


def create(path, **changes):
    options = {"n_rows": 100, "n_bits": 12, "n_active": 3, "chunk_rows": 16, "model_digest": "m" * 64}
    return codes.create_codes(path, **(options | {"source_digest": "s" * 64, "with_active": True} | changes))


PACKED = np.packbits(np.random.default_rng(1).integers(0, 2, (100, 12), np.uint8), axis=1, bitorder="little")
ACTIVE = np.tile(np.array([1, 5, 9], np.int32), (100, 1))


def write_all(writer):
    starts = range(0, 100, 16)
    return [writer.write(s, PACKED[s : s + 16], ACTIVE[s : s + 16]) for s in starts]


def someone_elses(content=None):
    """A claim of a process on another machine, of which nobody here knows whether it lives."""
    return json.dumps(
        {"where": "elsewhere", "pid": 1} | ({} if content is None else {"content": content})
    ).encode()


# --- datasets -------------------------------------------------------------------------------------------


def test_a_dataset_in_a_bucket_is_the_one_in_a_folder(s3, tmp_path):
    ours, theirs = write(s3 / "x.zarr", chunk_rows=16), write(tmp_path / "x.zarr", chunk_rows=16)
    assert ours.digest == theirs.digest
    ours.verify()
    names = {item["path"] for item in (s3 / "x.zarr").walk()}
    assert names == {f.relative_to(theirs.path).as_posix() for f in theirs.path.rglob("*") if f.is_file()}
    for name in names - {"zarr.json"}:
        assert (ours.path / name).read_bytes() == (theirs.path / name).read_bytes()
    assert {item["path"].split("/")[0] for item in s3.walk()} == {"x.zarr"}  # nothing above it
    reader = pickle.loads(pickle.dumps(ours.reader()))
    block = reader.read(RowIndices((99, 0, 40)))
    np.testing.assert_array_equal(block.vectors, ROWS[[99, 0, 40]])
    np.testing.assert_array_equal(block.labels, LABELS[[99, 0, 40]])
    left, right = reader.read(BlockPair(RowRange(0, 10), RowRange(20, 40)))
    np.testing.assert_array_equal(np.r_[left.vectors, right.vectors], ROWS[np.r_[0:10, 20:40]])
    opened = ours.to_xarray()
    np.testing.assert_array_equal(opened["vectors"].values, ROWS)
    np.testing.assert_array_equal(opened["label"].values, LABELS)
    with pytest.raises(DestinationExists, match=r"s3://.*x\.zarr exists"):
        write(s3 / "x.zarr")


@pytest.mark.long  # of a local one in test_datasets.py
def test_damage_to_any_object_of_a_dataset_is_found_when_it_is_opened(s3):
    data = write(s3 / "x.zarr", chunk_rows=50)
    names = [item["path"] for item in data.path.walk()]
    assert len(names) == 1 + 2 * (1 + 2)
    for name in names:
        path = data.path / name
        sound = path.read_bytes()
        other = (data.path / names[names.index(name) - 1]).read_bytes()
        longer = sound + (b"}" if name == "zarr.json" else b"\n")
        for damaged in (sound[: len(sound) // 2], longer, other):
            path.put(damaged)
            with pytest.raises((CorruptObject, UnsafeObject, DataRefused)):
                open_dataset(data.path)
        path.unlink()
        with pytest.raises(CorruptObject):
            open_dataset(data.path)
        path.put(sound)
    (data.path / "vectors/c/9/0").put(sound)
    with pytest.raises(UnsafeObject, match="is no chunk of this array"):
        open_dataset(data.path)


def test_a_worker_does_not_read_damage_as_numbers(s3):
    data = write(s3 / "x.zarr", chunk_rows=32)
    reader, path = data.reader(), data.path / "vectors/c/1/0"
    reader.read(RowRange(0, 10))
    sound = path.read_bytes()
    path.put(sound[:40] + bytes([sound[40] ^ 1]) + sound[41:])
    with pytest.raises(CorruptObject):
        reader.read(RowRange(30, 40))
    path.unlink()
    with pytest.raises(CorruptObject, match="this chunk is missing"):
        reader.read(RowRange(30, 40))
    path.put(sound)
    np.testing.assert_array_equal(reader.read(RowRange(30, 40)).vectors, ROWS[30:40])


def test_a_reader_notices_that_another_dataset_has_taken_the_place(s3):
    reader = write(s3 / "x.zarr").reader()
    reader.read(RowRange(0, 10))
    (s3 / "x.zarr").remove_tree()
    with pytest.raises(CorruptObject, match="gone or unfinished"):
        reader.read(RowRange(0, 10))
    write(s3 / "x.zarr", ROWS[::-1])
    with pytest.raises(CorruptObject, match="another is there"):
        reader.read(RowRange(0, 10))


def test_ingest_into_a_bucket_and_out_of_it(s3, tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    data = ingest(tmp_path / "x.npy", str(s3 / "x.zarr"), chunk_rows=16)
    assert ingest(str(s3 / "x.zarr"), tmp_path / "back.zarr").digest == data.digest
    with pytest.raises(DestinationExists):
        ingest(tmp_path / "x.npy", s3 / "x.zarr")
    (s3 / "x.npy").put((tmp_path / "x.npy").read_bytes())
    with pytest.raises(DataRefused, match="only Zarr is read"):
        ingest(s3 / "x.npy", tmp_path / "other.zarr")
    bad = np.where(np.arange(100)[:, None] == 7, np.nan, ROWS)
    np.save(tmp_path / "bad.npy", bad)
    with pytest.raises(DataRefused, match="row 7"):
        ingest(tmp_path / "bad.npy", s3 / "bad.zarr")
    assert not (s3 / "bad.zarr").exists()


# --- codes ----------------------------------------------------------------------------------------------


def test_codes_written_by_many_tasks_into_a_bucket(s3):
    path = s3 / "codes.zarr"
    writer = pickle.loads(pickle.dumps(create(path)))
    receipts = write_all(writer)
    with pytest.raises(CorruptObject, match="unfinished"):
        codes.open_codes(path)
    done = codes.finish_codes(path, receipts)
    done.verify()
    np.testing.assert_array_equal(done.rows(0, 100), PACKED)
    np.testing.assert_array_equal(done.active(10, 20), ACTIVE[10:20])
    np.testing.assert_array_equal(done.reader().read(RowRange(3, 7)).vectors, PACKED[3:7])
    assert not (path / CLAIM).exists()
    with pytest.raises(DestinationExists):
        create(path)


def test_whoever_writes_the_same_codes_joins_and_whoever_writes_others_is_refused(s3):
    path = s3 / "codes.zarr"
    first = create(path)
    write_all(first)
    claim = json.loads((path / CLAIM).read_bytes())
    (path / CLAIM).put(someone_elses(claim["content"]))  # the first writer was elsewhere, and died or is slow
    with pytest.raises(DestinationExists, match="its writer was killed elsewhere"):
        create(path, model_digest="other" * 12)
    second = create(path)
    receipts = write_all(second)
    assert codes.finish_codes(path, receipts).n_rows == 100
    write_all(first)  # it was slow: what it writes is what is there
    codes.open_codes(path).verify()


# --- models ---------------------------------------------------------------------------------------------


def test_a_model_in_a_bucket(s3, tmp_path):
    arrays = {"a": ROWS, "b": LABELS}
    digest = save_model(s3 / "m.zarr", {"n": 1}, arrays)
    assert save_model(tmp_path / "m.zarr", {"n": 1}, arrays) == digest
    header, found = load_model(s3 / "m.zarr")
    assert header == {"n": 1}
    assert all(found[name].tobytes() == array.tobytes() for name, array in arrays.items())
    with pytest.raises(DestinationExists):
        save_model(s3 / "m.zarr", {"n": 1}, arrays)
    path = s3 / "m.zarr/a/c/0/0"
    path.put(path.read_bytes()[:-1])
    with pytest.raises(CorruptObject):
        load_model(s3 / "m.zarr")


def test_a_model_whose_writer_died_elsewhere_is_written_again_if_it_is_the_same(s3):
    digest = save_model(s3 / "whole", {"n": 1}, {"a": ROWS})
    (s3 / "half/a/zarr.json").put((s3 / "whole/a/zarr.json").read_bytes())
    (s3 / "half" / CLAIM).put(someone_elses(digest))
    with pytest.raises(DestinationExists, match="its writer was killed elsewhere"):
        save_model(s3 / "half", {"n": 2}, {"a": ROWS})
    assert save_model(s3 / "half", {"n": 1}, {"a": ROWS}) == digest
    assert {i["path"] for i in (s3 / "half").walk()} == {i["path"] for i in (s3 / "whole").walk()}


def test_of_many_writers_of_one_model_one_wins_and_it_is_whole(s3):
    ends, barrier = [], threading.Barrier(6)

    def save() -> None:
        barrier.wait()
        try:
            ends.append(save_model(s3 / "m", {"n": 1}, {"a": ROWS}))
        except DestinationExists:
            ends.append(None)

    threads = [threading.Thread(target=save) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any(ends)
    assert load_model(s3 / "m")[1]["a"].tobytes() == ROWS.tobytes()


# --- claims ---------------------------------------------------------------------------------------------


def test_what_a_dead_writer_of_this_machine_left_is_taken_over(s3, monkeypatch):
    path = s3 / "x.zarr"
    writer = DatasetWriter(path, n_features=5, dtype="float32", chunk_rows=16)
    writer.append(ROWS)
    with pytest.raises(DestinationExists, match="is being written"):
        write(path)
    dead = json.loads((path / CLAIM).read_bytes()) | {"pid": 2**31 - 2}
    (path / CLAIM).put(json.dumps(dead).encode())
    assert claims.abandoned(path)
    write(path, ROWS[:20], LABELS[:20]).verify()
    assert len(list((path / "vectors/c").iterdir())) == 1
    writer.abort()  # it is not its own any more
    assert open_dataset(path).n_rows == 20


def test_a_writer_elsewhere_is_not_robbed(s3):
    (s3 / "x.zarr" / CLAIM).put(someone_elses())
    with pytest.raises(DestinationExists, match="its writer was killed elsewhere"):
        write(s3 / "x.zarr")
    assert [item["path"] for item in (s3 / "x.zarr").walk()] == [CLAIM]


def test_an_aborted_writer_leaves_nothing(s3):
    writer = DatasetWriter(s3 / "x.zarr", n_features=5, dtype="float32", chunk_rows=16)
    writer.append(ROWS)
    assert (s3 / "x.zarr/vectors").is_dir()
    writer.abort()
    assert not (s3 / "x.zarr").exists()


def test_arrays_are_checked_once_per_content(s3):
    data = write(s3 / "x.zarr")
    assert stored_array(data.path, data.digest, "vectors") is stored_array(
        str(data.path), data.digest, "vectors"
    )
