from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading

import numpy as np
import pytest
import zarr
from bitfleet.storage.errors import CorruptObject, DataRefused, DestinationExists, StorageError, UnsafeObject
from bitfleet.storage.ingest import ingest
from bitfleet.storage.models import load_model, model_digest, save_model

HEADER = {"method": {"name": "itq", "n_bits": 16, "scale": 0.1}, "n_features": 8, "data": "d" * 64}
RNG = np.random.default_rng(1)
ARRAYS = {
    "mean": RNG.normal(size=8),
    "projection": RNG.normal(size=(8, 16)),
    "rotation": RNG.normal(size=(8, 16)),
    "counts": np.arange(3, dtype=np.int64),
}


@pytest.fixture
def path(tmp_path):
    save_model(tmp_path / "model", HEADER, ARRAYS)
    return tmp_path / "model"


def edit(path, change):
    """Change the model's attributes."""
    document = json.loads((path / "zarr.json").read_text())
    change(document["attributes"]["bitfleet_model"])
    (path / "zarr.json").write_text(json.dumps(document))


def test_a_model_is_read_back_bit_for_bit(path):
    header, arrays = load_model(path)
    assert header == HEADER
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        assert array.dtype == ARRAYS[name].dtype
        assert array.tobytes() == ARRAYS[name].tobytes()
        assert not array.flags.writeable


def test_it_is_an_ordinary_zarr_group(path):
    group = zarr.open_group(str(path), mode="r")
    np.testing.assert_array_equal(group["projection"][...], ARRAYS["projection"])
    assert group.attrs["bitfleet_model"]["header"] == HEADER


def test_the_digest_is_what_hashlib_says(tmp_path):
    def compact(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    def of_array(name):
        array = ARRAYS[name]
        head = compact({"name": name, "dtype": array.dtype.name, "shape": list(array.shape)})
        return hashlib.sha256(head + hashlib.sha256(array.tobytes()).digest()).hexdigest()

    content = {"header": HEADER, "arrays": {name: of_array(name) for name in ARRAYS}}
    expected = hashlib.sha256(compact(content)).hexdigest()
    assert model_digest(HEADER, ARRAYS) == expected
    assert save_model(tmp_path / "a", HEADER, dict(reversed(ARRAYS.items()))) == expected
    fortran = {name: np.asfortranarray(array) for name, array in ARRAYS.items()}
    assert save_model(tmp_path / "b", HEADER, fortran) == expected


@pytest.mark.parametrize("there", ["model", "file", "folder", "dangling link"])
def test_nothing_is_overwritten(tmp_path, there):
    target = tmp_path / "target"
    if there == "model":
        save_model(target, {}, {})
    elif there == "file":
        target.write_text("mine")
    elif there == "folder":
        target.mkdir()
    else:
        target.symlink_to("nowhere")
    with pytest.raises(DestinationExists, match="target exists"):
        save_model(target, HEADER, ARRAYS)
    assert os.listdir(tmp_path) == ["target"]
    if there == "model":
        assert load_model(target) == ({}, {})


def test_of_many_writers_one_wins(tmp_path):
    results, barrier = [], threading.Barrier(6)

    def write(number: int) -> None:
        barrier.wait()
        try:
            save_model(tmp_path / "model", {"number": number}, {"a": np.full(10, number)})
            results.append(number)
        except DestinationExists:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 1
    assert load_model(tmp_path / "model")[0] == {"number": results[0]}
    assert os.listdir(tmp_path) == ["model"]


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        save_model(tmp_path / "model", HEADER, {"a": np.zeros(3), "b": np.array(["x"])})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("header", "arrays", "match"),
    [
        ({"loss": float("nan")}, {}, "JSON"),
        ({"text": "x" * 300_000}, {}, "at most 262,144 bytes"),
        ({}, {"../a": np.zeros(1)}, "array name"),
    ],
)
def test_what_could_not_be_read_back_is_refused(tmp_path, header, arrays, match):
    with pytest.raises(ValueError, match=match):
        save_model(tmp_path / "model", header, arrays)


FILES = ["zarr.json", "mean/zarr.json", "mean/c/0", "projection/c/0/0", "counts/c/0"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["empty", "half", "flip", "delete", "swap", "stale"])
def test_damage_is_a_named_error(path, tmp_path, name, damage):
    file = path / name
    data = file.read_bytes()
    partner = path / {"projection/c/0/0": "rotation/c/0/0"}.get(name, "projection/" + name.split("/")[-1])
    save_model(tmp_path / "older", {**HEADER, "older": 1}, {n: a[:1] + 1 for n, a in ARRAYS.items()})
    if damage == "delete":
        file.unlink()
    elif damage == "swap":
        if not partner.exists():
            partner = path / "projection/zarr.json"
        file.write_bytes(partner.read_bytes())
        partner.write_bytes(data)
    else:
        half = len(data) // 2
        replacement = {
            "empty": b"",
            "half": data[:half],
            "flip": bytes([*data[:half], data[half] ^ 1, *data[half + 1 :]]),
            "stale": (tmp_path / "older" / name).read_bytes(),
        }
        file.write_bytes(replacement[damage])
    with pytest.raises((CorruptObject, UnsafeObject), match="model"):
        load_model(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model["header"]["method"].update(n_bits=17),
        lambda model: model.update(digest="0" * 64),
        lambda model: model.pop("header"),
        lambda model: model.update(arrays=[]),
        lambda model: model["arrays"].pop("counts"),
        lambda model: model["arrays"]["mean"].update(shape=[10**12]),
        lambda model: model["arrays"]["mean"].update(shape=["8"]),
        lambda model: model["arrays"]["mean"].update(dtype="object"),
        lambda model: model["arrays"].update(mean=None),
        lambda model: model["arrays"].update({"../outside": {"dtype": "float64", "shape": [8]}}),
        lambda model: model["arrays"].update({"/etc/passwd": {"dtype": "float64", "shape": [8]}}),
    ],
)
def test_a_changed_header_is_refused(path, change):
    edit(path, change)
    with pytest.raises(CorruptObject):
        load_model(path)


def test_a_newer_format_is_refused_with_advice(path):
    edit(path, lambda model: model.update(format_version=2))
    with pytest.raises(StorageError, match="format version 2, this bitfleet reads 1"):
        load_model(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: meta.update(codecs=[{"name": "numcodecs.pickle", "configuration": {}}]),
        lambda meta: meta.update(data_type="object"),
        lambda meta: meta.update(zarr_format=2),
        lambda meta: meta.update(shape=[10**15]),
    ],
)
def test_arrays_outside_the_white_list_are_refused_before_decoding(path, change):
    meta = json.loads((path / "mean/zarr.json").read_text())
    change(meta)
    (path / "mean/zarr.json").write_text(json.dumps(meta))
    with pytest.raises((UnsafeObject, CorruptObject), match="mean"):
        load_model(path)


def test_a_linked_array_is_refused(path, tmp_path):
    shutil.move(path / "mean", tmp_path / "mean")
    (path / "mean").symlink_to(tmp_path / "mean")
    with pytest.raises(UnsafeObject, match="symbolic link"):
        load_model(path)


def test_what_is_no_model_is_an_error(tmp_path):
    with pytest.raises(CorruptObject, match="missing"):
        load_model(tmp_path)
    zarr.create_group(str(tmp_path / "group"), zarr_format=3)
    with pytest.raises(CorruptObject, match="is no bitfleet model"):
        load_model(tmp_path / "group")


def test_a_dataset_in_place_of_a_model_is_told_so(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 2), np.float32))
    ingest(tmp_path / "x.npy", tmp_path / "x.zarr")
    with pytest.raises(DataRefused, match=r"is a dataset, expected a model or a finished run"):
        load_model(tmp_path / "x.zarr")
