"""Codes are the same bytes whatever the tiles, the kind of input, the place of the model and the executor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bitfleet as bf
import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from bitfleet.pipeline import arrays, encode
from bitfleet.pipeline.config import build_method, method_names
from bitfleet.pipeline.estimators import BinaryHasher

if TYPE_CHECKING:
    from pathlib import Path

    from bitfleet.pipeline.model import Model

SMALL: dict[str, dict[str, Any]] = {"sparse": {"n_bits": 40, "n_active": 5}, "dense": {"n_bits": 13}}


def estimator(name: str) -> Any:
    public = [getattr(bf, each) for each in bf.__all__]
    hashers = [each for each in public if isinstance(each, type) and issubclass(each, BinaryHasher)]
    cls = {each._method: each for each in hashers}[name]
    kind = "sparse" if build_method(name, {}).sparse else "dense"
    return cls(**{} if name == "sign" else SMALL[kind], random_state=0)


@pytest.fixture(scope="module", params=method_names())
def model(request: pytest.FixtureRequest) -> Model:
    learner = estimator(request.param)
    labels = np.arange(203) % 3 if getattr(build_method(request.param, {}), "needs_labels", False) else None
    return learner.fit(rows(), labels).model_


def rows() -> np.ndarray:
    return np.random.default_rng(4).normal(size=(203, 9)).astype(np.float32)


def test_bits_and_packed_codes_agree(model: Model) -> None:
    bits, packed = model.transform(rows()), model.encode(rows())
    assert bits.dtype == packed.dtype == np.uint8
    assert bits.shape == (203, model.n_bits)
    assert set(np.unique(bits)) <= {0, 1}
    np.testing.assert_array_equal(np.packbits(bits, axis=1, bitorder="little"), packed)
    if model.method.sparse:
        assert (bits.sum(axis=1) == 5).all()


@pytest.mark.parametrize("tile", [1, 2, 7, 1000])
def test_tiles_do_not_show(model: Model, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.encode(rows())
    monkeypatch.setattr(arrays, "base_rows", lambda n_features: tile)
    np.testing.assert_array_equal(model.encode(rows()), expected)
    np.testing.assert_array_equal(model.encode(rows()[3:]), expected[3:])


def test_dask_in_dask_out(model: Model, tmp_path: Path) -> None:
    expected = model.encode(rows())
    given = da.from_array(rows(), chunks=((1, 2, 0, 200), (4, 5)))
    saved = bf.load(model.save(tmp_path / "m.zarr"))
    for one in (model, saved):
        codes, bits = one.encode(given), one.transform(given)
        assert isinstance(codes, da.Array)
        assert (codes.chunks, bits.chunks) == (
            ((1, 2, 0, 200), (expected.shape[1],)),
            (given.chunks[0], (one.n_bits,)),
        )
        assert codes.dtype == bits.dtype == np.uint8
        np.testing.assert_array_equal(codes.compute(), expected)
        np.testing.assert_array_equal(bits.compute(), one.transform(rows()))


def test_dask_blocks_of_unknown_length(model: Model) -> None:
    x = da.from_array(rows(), chunks=(50, 9))
    chosen = x[x[:, 0] > 0]
    codes = model.encode(chosen)
    np.testing.assert_array_equal(codes.compute(), model.encode(rows()[rows()[:, 0] > 0]))


def test_nothing_is_computed_before_it_is_asked_for(model: Model) -> None:
    def fail(block: np.ndarray) -> np.ndarray:
        raise RuntimeError("computed")

    given = da.from_array(rows(), chunks=(50, 9)).map_blocks(
        fail, dtype=np.float32, meta=np.empty((0, 0), "f4")
    )
    codes = model.encode(given)
    with pytest.raises(RuntimeError, match="computed"), dask.config.set(scheduler="sync"):
        codes.compute()


def test_other_kinds(model: Model, tmp_path: Path) -> None:
    expected = model.encode(rows())
    stored = zarr.create_array(str(tmp_path / "x.zarr"), shape=(203, 9), chunks=(20, 3), dtype="f4")
    stored[:] = rows()
    dataset = arrays.spool(rows(), tmp_path / "d.zarr")
    for given in (stored, dataset, dataset.path, str(dataset.path), np.asfortranarray(rows())):
        np.testing.assert_array_equal(model.encode(given), expected)


def test_no_rows(model: Model) -> None:
    codes = model.encode(rows()[:0])
    assert codes.shape == (0, -(-model.n_bits // 8))
    assert model.transform(rows()[:0]).shape == (0, model.n_bits)


def test_what_cannot_be_encoded(model: Model, tmp_path: Path) -> None:
    bad = rows()
    bad[100, 1] = np.inf
    with pytest.raises(bf.DataRefused, match="first in 100"):
        model.encode(bad)
    with pytest.raises(ValueError, match="encodes rows of 9 features, got 8"):
        model.encode(rows()[:, :8])
    with pytest.raises(ValueError, match="encodes rows of 9 features, got 8"):
        model.encode(da.from_array(rows()[:, :8]))
    with pytest.raises(ValueError, match="encodes rows of 9 features, got 8"):
        bf.encode(model, arrays.spool(rows()[:, :8], tmp_path / "d.zarr"))


@pytest.mark.parametrize("active", [False, True])
def test_codes_on_disk(model: Model, active: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if active and not model.method.sparse:
        with pytest.raises(bf.ConfigError, match="active=True needs sparse codes"):
            bf.encode(model, rows(), tmp_path / "c.zarr", active=True)
        assert list(tmp_path.iterdir()) == []
        return
    expected = model.encode(rows())
    monkeypatch.setattr(encode, "base_rows", lambda n_features: 64)
    codes = bf.encode(model, rows(), tmp_path / "c.zarr", active=active)
    assert (codes.n_rows, codes.chunk_rows, codes.n_bits) == (203, 64, model.n_bits)
    np.testing.assert_array_equal(codes.rows(0, 203), expected)
    assert (codes.model_digest, codes.source_digest) == (model.digest, arrays.content_digest(rows()))
    codes.verify()
    assert [p.name for p in tmp_path.iterdir()] == ["c.zarr"]
    if active:
        bits = np.zeros((203, model.n_bits), np.uint8)
        np.put_along_axis(bits, codes.active(0, 203).astype(np.int64), 1, axis=1)
        np.testing.assert_array_equal(bits, model.transform(rows()))
    with pytest.raises(bf.DestinationExists):
        bf.encode(model, rows(), tmp_path / "c.zarr")


def test_codes_of_a_dataset_name_their_source(model: Model, tmp_path: Path) -> None:
    dataset = arrays.spool(rows(), tmp_path / "d.zarr")
    codes = bf.encode(model.save(tmp_path / "m.zarr"), dataset.path, tmp_path / "c.zarr")
    assert codes.source_digest == dataset.digest
    assert codes.digest == bf.encode(model, rows(), tmp_path / "again.zarr").digest


def test_a_failed_encoding_leaves_nothing(model: Model, tmp_path: Path) -> None:
    bad = rows()
    bad[150] = np.nan
    with pytest.raises(bf.DataRefused):
        bf.encode(model, da.from_array(bad, chunks=(40, 9)), tmp_path / "c.zarr")
    assert list(tmp_path.iterdir()) == []


def test_a_scheduler_needs_a_destination(model: Model) -> None:
    with pytest.raises(bf.ConfigError, match="give dest="):
        bf.encode(model, rows(), scheduler="local")
