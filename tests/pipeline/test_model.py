"""Models: what they are on disk, and that nothing else is believed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline.inspection import verify_path
from bitfleet.pipeline.model import Model, ModelReference, as_model, load
from bitfleet.storage import models
from bitfleet.tasks.protocols import RoundState


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(80, 10)).astype(np.float32)


@pytest.fixture(scope="module")
def model(vectors: np.ndarray) -> Model:
    return bf.ITQ(n_bits=6, n_iter=3, random_state=1).fit(vectors).model_


def test_a_saved_model_is_the_same_model(model: Model, vectors: np.ndarray, tmp_path: Path) -> None:
    path = model.save(tmp_path / "m.zarr")
    again = load(path)
    assert again.digest == model.digest
    assert again.method == model.method
    assert again.info == model.info
    assert again.path == path
    np.testing.assert_array_equal(again.encode(vectors), model.encode(vectors))


def test_the_digest_is_of_the_content(model: Model) -> None:
    assert replace(model, path=Path("elsewhere")).digest == model.digest
    arrays = {name: array.copy() for name, array in model.state.arrays.items()}
    arrays["mean"][0] = np.nextafter(arrays["mean"][0], 1)
    other = replace(model, state=RoundState(model.state.round, arrays, model.state.scalars))
    assert other.digest != model.digest
    scalars = {**model.state.scalars, "seed": 2}
    other = replace(model, state=RoundState(model.state.round, model.state.arrays, scalars))
    assert other.digest != model.digest


def test_nothing_is_overwritten(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.zarr")
    with pytest.raises(bf.DestinationExists):
        model.save(tmp_path / "m.zarr")


def test_a_changed_file_is_noticed(model: Model, tmp_path: Path) -> None:
    path = model.save(tmp_path / "m.zarr")
    chunk = max((p for p in (path / "weights").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(bytes(data))
    with pytest.raises(bf.CorruptObject):
        load(path)


def test_a_replaced_model_is_not_the_one_referred_to(model: Model, tmp_path: Path) -> None:
    path = model.save(tmp_path / "m.zarr")
    reference = ModelReference(str(path), "0" * 64)
    with pytest.raises(bf.CorruptObject, match="it was replaced"):
        reference.load()
    assert ModelReference(str(path), model.digest).load().round == model.state.round


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"format": "other"}, bf.CorruptObject, "is no bitfleet model"),
        ({"format_version": 2}, bf.ConfigError, "install the version that wrote it"),
        ({"method": {"name": "os.system"}}, bf.ConfigError, "unknown method 'os.system'"),
        ({"method": {"name": "itq", "n_bits": "rm"}}, bf.ConfigError, r"itq\.n_bits"),
        ({"method": []}, bf.CorruptObject, "broken header"),
        ({"info": {}}, bf.CorruptObject, "broken header"),
        ({"round": None}, bf.CorruptObject, "broken header"),
    ],
)
def test_foreign_headers_are_refused(
    model: Model, tmp_path: Path, change: dict, error: type[Exception], message: str
) -> None:
    header = json.loads(json.dumps(model.header)) | change
    models.save_model(tmp_path / "m.zarr", header, model.state.arrays)
    with pytest.raises(error, match=message):
        load(tmp_path / "m.zarr")


HEADER_CHANGES = {
    "method.n_bits": [5, 7, 2**62],
    "info.n_features": [9, "10", None],
    "info.n_rows": [0, -1, "80", True],
    "info.dtype": ["O", 5],
    "round": ["4", 1.5, -1, True],
    "scalars.phase": [[], {}],
    "scalars.n_rows": [81, "80", None],
    "scalars.n_features": [11],
    "scalars.first_round": ["x", None, 2**70],
    "scalars": [[], None, {}],
}


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, values in HEADER_CHANGES.items() for v in values])
def test_a_header_that_does_not_fit_is_refused(model: Model, tmp_path: Path, key: str, value: object) -> None:
    header = json.loads(json.dumps(model.header))
    *tables, name = key.split(".")
    place = header[tables[0]] if tables else header
    place[name] = value
    models.save_model(tmp_path / "m.zarr", header, model.state.arrays)  # its digest fits
    with pytest.raises(bf.CorruptObject, match="broken header or broken arrays"):
        load(tmp_path / "m.zarr")


SHAPES = {
    "longer": lambda a: np.concatenate([a, a[:1]]),
    "shorter": lambda a: a[:-1].copy(),
    "narrower": lambda a: np.ascontiguousarray(a[..., :-1]),
    "flat": lambda a: a.reshape(1, -1),
    "deeper": lambda a: a[None],
    "scalar": lambda a: np.array(1.0),
    "empty": lambda a: a[:0].copy(),
    "not finite": lambda a: np.full_like(a, np.nan),
    "absent": lambda a: None,
}


@pytest.mark.parametrize("change", SHAPES)
@pytest.mark.parametrize("name", ["mean", "components", "weights"])
def test_arrays_that_do_not_fit_are_refused(model: Model, tmp_path: Path, name: str, change: str) -> None:
    changed = SHAPES[change](model.state.arrays[name])
    arrays = {k: a for k, a in {**model.state.arrays, name: changed}.items() if a is not None}
    models.save_model(tmp_path / "m.zarr", model.header, arrays)
    with pytest.raises(bf.CorruptObject, match="broken header or broken arrays"):
        load(tmp_path / "m.zarr")


def test_an_unfinished_run_has_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(bf.ConfigError, match="no model yet; go on with: bitfleet resume"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(tmp_path / "none")


def test_what_is_taken_for_a_model(model: Model, vectors: np.ndarray, tmp_path: Path) -> None:
    path = model.save(tmp_path / "m.zarr")
    estimator = bf.ITQ(n_bits=6, n_iter=3, random_state=1)
    with pytest.raises(TypeError, match="a fitted estimator, got ITQ"):
        as_model(estimator)
    estimator.fit(vectors)
    for given in (model, path, str(path), estimator):
        assert as_model(given).digest == model.digest


@pytest.fixture
def finished(vectors: np.ndarray, tmp_path: Path) -> Path:
    bf.train(vectors, tmp_path / "run", "itq", n_bits=6, n_iter=3)
    return tmp_path / "run"


@pytest.mark.parametrize("other", ["seed", "data"])
def test_a_model_of_another_run_is_not_taken_for_this_ones(
    finished: Path, vectors: np.ndarray, tmp_path: Path, other: str
) -> None:
    right = load(finished)
    given = {"seed": (vectors, 1), "data": (vectors[::-1] * 2, 0)}[other]
    bf.train(given[0], tmp_path / "other", "itq", seed=given[1], n_bits=6, n_iter=3)
    shutil.rmtree(finished / "model.zarr")
    shutil.copytree(tmp_path / "other" / "model.zarr", finished / "model.zarr")
    for read in (load, bf.resume, as_model):
        with pytest.raises(bf.CorruptObject, match="not that of this run; remove it and save the run's own"):
            read(finished)
    assert any("not that of this run" in line for line in verify_path(finished))
    shutil.rmtree(finished / "model.zarr")
    assert bf.resume(finished).digest == right.digest
    assert verify_path(finished) == []


def test_a_model_outlives_the_checkpoint(finished: Path) -> None:
    right = load(finished).digest
    newest = sorted((finished / "manifests").iterdir())[-1]
    attempt = json.loads(newest.read_text())["attempt"]
    shutil.rmtree(finished / "objects" / attempt)
    assert load(finished).digest == right
    newest.unlink()
    assert load(finished).digest == right
