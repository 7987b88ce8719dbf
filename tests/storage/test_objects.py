from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest
from bitfleet.storage.errors import CorruptObject, UnsafeObject
from bitfleet.storage.faults import Faults
from bitfleet.storage.files import link
from bitfleet.storage.objects import LocalObjects, ObjectRecord
from bitfleet.storage.places import each
from bitfleet.storage.s3_objects import objects_at


@pytest.fixture
def store(home):
    return objects_at(home / "store")


@pytest.fixture
def folder(tmp_path):
    return LocalObjects(tmp_path / "store")


def write(path, data: bytes) -> None:
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    else:
        path.put(data)


def test_create_never_overwrites(store):
    assert store.create("a/b/one", b"first")
    assert not store.create("a/b/one", b"second")
    assert store.read("a/b/one") == b"first"
    assert store.list("a/b") == ["one"]
    assert store.temporaries("a/b") == ()


def test_of_many_creators_one_wins(store):
    won, barrier = [], threading.Barrier(16)

    def compete(number: int) -> None:
        barrier.wait()
        if store.create("manifest", bytes([number]) * 1000):
            won.append(number)

    threads = [threading.Thread(target=compete, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.read("manifest") == bytes(won) * 1000
    assert store.temporaries() == ()


def test_an_object_is_whole_or_absent_whenever_one_looks(tmp_path):
    seen = []

    class Look(Faults):
        def reach(self, point: str) -> None:
            seen.append((point, LocalObjects(tmp_path).list(), LocalObjects(tmp_path).exists("one")))

    LocalObjects(tmp_path, Look()).create("one", b"x" * 100)
    assert seen == [
        ("create.before_write", [], False),
        ("create.before_fsync", [], False),
        ("create.before_link", [], False),
        ("create.after_link", ["one"], True),
    ]


def test_put_replaces(store):
    store.put("beat", b"1")
    store.put("beat", b"22")
    assert store.read("beat") == b"22"
    assert store.list() == ["beat"]


def test_reading_is_bounded_and_exact_about_what_is_wrong(store):
    store.create("folder/one", b"12345")
    assert store.read("folder/one", max_bytes=5) == b"12345"
    with pytest.raises(CorruptObject, match="more than 4 bytes"):
        store.read("folder/one", max_bytes=4)
    with pytest.raises(CorruptObject, match="two is missing"):
        store.read("folder/two")
    with pytest.raises(CorruptObject, match="expected to be a file"):
        store.read("folder")
    with pytest.raises(CorruptObject, match=r"expected to be a file|two is missing"):
        store.read("folder/one/two")


@pytest.mark.parametrize("key", ["/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a\\b", "a\0b", "C:x"])
def test_keys_stay_inside(store, key):
    for verb in (store.read, store.delete, store.exists, store.list, lambda k: store.create(k, b"")):
        with pytest.raises(UnsafeObject):
            verb(key)


def test_pipes_are_not_waited_for(folder):
    folder.root.mkdir()
    os.mkfifo(folder.root / "pipe")
    with pytest.raises(CorruptObject, match="pipe is expected to be a file"):
        folder.read("pipe", 10)


def test_links_are_not_followed(folder, tmp_path):
    store = folder
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    store.create("a/one", b"1")
    (store.root / "out").symlink_to(tmp_path / "outside")
    (store.root / "a/out").symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafeObject, match="symbolic link"):
        store.read("out/secret")
    store.delete("a")
    assert not (store.root / "a").exists()
    assert (tmp_path / "outside/secret").read_text() == "secret"


def test_seal_records_every_file(store):
    folder = store.stage("objects/x")
    contents = {"c/0/1": b"abc", "zarr.json": b"", "c/0/0": os.urandom(3_000_000)}
    for name, data in contents.items():
        write(folder / name, data)
    records = store.seal("objects/x")
    assert records == tuple(
        ObjectRecord(f"objects/x/{name}", len(data), hashlib.sha256(data).hexdigest())
        for name, data in sorted(contents.items())
    )
    for record in records:
        store.check(record)
    fetched = store.fetch("objects/x", records)
    assert {name: (fetched / name).read_bytes() for name in contents} == contents
    keys = [record.path for record in records]
    assert store.read_all(keys, 2**22) == [contents[name] for name in sorted(contents)]
    assert store.list("objects") == ["x"]
    assert store.list("objects/x") == ["c", "zarr.json"]


def test_a_staged_folder_is_new(store):
    store.stage("objects/x")
    with pytest.raises(FileExistsError):
        store.stage("objects/x")


def test_check_names_what_differs(store):
    store.create("one", b"123")
    good = ObjectRecord("one", 3, hashlib.sha256(b"123").hexdigest())
    store.check(good)
    with pytest.raises(CorruptObject, match="has 3 bytes instead of the 4 written"):
        store.check(ObjectRecord("one", 4, good.sha256))
    with pytest.raises(CorruptObject, match="has changed: SHA-256"):
        store.check(ObjectRecord("one", 3, "0" * 64))


def test_deleting_is_repeatable_and_never_takes_the_root(store):
    store.create("a/b/one", b"1")
    store.delete("a")
    store.delete("a")
    assert store.list() == []
    with pytest.raises(ValueError, match="root"):
        store.delete("")


@pytest.mark.long
def test_a_folder_of_more_names_than_fit_into_one_listing(s3):
    store = objects_at(s3)
    for name in ("a", "b"):  # neither may be taken for part of the other
        store.create(f"many{name}/0", b"")
    each(s3, lambda number: store.put(f"many/{number:04d}/one", b""), range(1001))
    assert store.list("many") == [f"{number:04d}" for number in range(1001)]
    assert len((s3 / "many").walk()) == 1001
    store.delete("many")
    assert store.list("many") == []
    assert store.list() == ["manya", "manyb"]


def test_age_is_that_of_the_youngest_file(folder):
    store = folder
    store.create("a/old", b"")
    store.create("a/b/young", b"")
    now = os.stat(store.root / "a/b/young").st_mtime
    for name, seconds in {"a/old": 500, "a/b/young": 100, "a/b": 300, "a": 400}.items():
        os.utime(store.root / name, (now - seconds, now - seconds))
    assert 100 <= store.age("a") < 300
    assert store.age("gone") == float("inf")


def test_a_folder_that_forbids_writing_is_no_matter_of_links(tmp_path):
    (tmp_path / "one").write_text("1")
    with pytest.raises(FileNotFoundError):
        link(tmp_path / "one", tmp_path / "absent" / "two")
