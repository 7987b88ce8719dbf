"""Estimators beyond scikit-learn's checks: kinds of input, seeds, runs, and the way through a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bitfleet as bf
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from bitfleet.pipeline import arrays
from bitfleet.storage.run import RunDirectory
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

if TYPE_CHECKING:
    from pathlib import Path

ESTIMATORS = [
    bf.LSH(n_bits=12, random_state=0),
    bf.ITQ(n_bits=6, n_iter=3, random_state=0),
    bf.KNNH(n_bits=6, n_iter=2, n_neighbors=5, random_state=0),
    bf.FruitFly(n_bits=30, n_active=3, random_state=0),
    bf.BioHash(n_bits=30, n_active=3, n_epochs=2, random_state=0),
    bf.SphericalHash(n_bits=30, n_active=3, n_epochs=2, random_state=0),
    bf.POSH(n_bits=30, n_active=3, n_epochs=2, random_state=0),
]
ROWS = np.random.default_rng(5).normal(size=(120, 8)).astype(np.float32)


@pytest.fixture(params=ESTIMATORS, ids=lambda e: type(e).__name__)
def estimator(request: pytest.FixtureRequest) -> Any:
    return clone(request.param)


def zarr_array(folder: Path) -> Any:
    array = zarr.create_array(str(folder / "x.zarr"), shape=ROWS.shape, chunks=(50, 3), dtype=ROWS.dtype)
    array[:] = ROWS
    return array


def test_every_kind_of_input_gives_the_same_model(estimator: Any, tmp_path: Path) -> None:
    expected = estimator.fit(ROWS).model_.digest
    mask = da.ones(len(ROWS), chunks=30, dtype=bool)
    kinds = {
        "column major": np.asfortranarray(ROWS),
        "strided": np.repeat(ROWS, 2, axis=0)[::2],
        "dask": da.from_array(ROWS, chunks=((1, 50, 69), (3, 5))),
        "dask, unknown chunks": da.from_array(ROWS, chunks=(30, 8))[mask],
        "zarr": zarr_array(tmp_path),
        "DataArray": xr.DataArray(ROWS.T.copy(), dims=("feature", "sample")),
        "DataFrame": pd.DataFrame(ROWS, columns=list("abcdefgh")),
        "Dataset": arrays.spool(ROWS, tmp_path / "d.zarr"),
        "path": str(tmp_path / "d.zarr"),
    }
    found = {kind: clone(estimator).fit(given).model_.digest for kind, given in kinds.items()}
    assert found == dict.fromkeys(kinds, expected)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int64", "bool"])
def test_dtypes(estimator: Any, dtype: str) -> None:
    rows = (ROWS * 10).astype(dtype)
    before = rows.copy()
    bits = estimator.fit(rows).transform(rows)
    assert estimator.model_.info.dtype == ("float64" if dtype == "float64" else "float32")
    assert bits.dtype == np.uint8
    np.testing.assert_array_equal(rows, before)
    same = clone(estimator).fit(rows.astype(estimator.model_.info.dtype))
    assert same.model_.digest == estimator.model_.digest
    np.testing.assert_array_equal(same.transform(rows), bits)


def test_dask_in_dask_out(estimator: Any) -> None:
    estimator.fit(ROWS)
    given = da.from_array(ROWS, chunks=(50, 8))
    assert isinstance(estimator.transform(given), da.Array)
    assert isinstance(estimator.encode(given), da.Array)
    np.testing.assert_array_equal(estimator.transform(given).compute(), estimator.transform(ROWS))
    with pytest.raises(ValueError, match=r"X has 7 features, but \w+ is expecting 8"):
        estimator.transform(given[:, :7])


def test_through_a_file(estimator: Any, tmp_path: Path) -> None:
    codes = estimator.fit(ROWS).encode(ROWS)
    model = bf.load(estimator.save(tmp_path / "m.zarr"))
    np.testing.assert_array_equal(model.encode(ROWS), codes)
    np.testing.assert_array_equal(model.transform(ROWS), estimator.transform(ROWS))


def test_mean_is_of_the_rows_given(estimator: Any) -> None:
    estimator.fit(ROWS)
    np.testing.assert_allclose(estimator.mean_, ROWS.mean(axis=0, dtype=np.float64), rtol=1e-9, atol=1e-9)
    estimator.fit(ROWS, preprocess_on=ROWS[:40] + 5)
    np.testing.assert_allclose(estimator.mean_, (ROWS[:40] + 5).mean(axis=0, dtype=np.float64), rtol=1e-9)
    estimator.set_params(center=False).fit(ROWS)
    np.testing.assert_array_equal(estimator.mean_, np.zeros(8))


def test_seeds(estimator: Any) -> None:
    first = clone(estimator).set_params(random_state=1).fit(ROWS)
    assert first.seed_ == 1
    assert clone(first).fit(ROWS).model_.digest == first.model_.digest
    assert clone(first).set_params(random_state=2).fit(ROWS).model_.digest != first.model_.digest
    drawn = [clone(first).set_params(random_state=None).fit(ROWS).seed_ for _ in range(2)]
    assert drawn[0] != drawn[1]
    drawn_by_hand = int(np.random.RandomState(3).randint(2**31 - 1))
    generator = np.random.RandomState(3)
    assert clone(first).set_params(random_state=generator).fit(ROWS).seed_ == drawn_by_hand
    with pytest.raises(ValueError, match="random_state >= 0"):
        clone(first).set_params(random_state=-1).fit(ROWS)


def test_signs_take_every_kind_of_input_and_learn_nothing(tmp_path: Path) -> None:
    expected = (ROWS >= 0).astype(np.uint8)
    for given in (ROWS, da.from_array(ROWS, chunks=(50, 3)), zarr_array(tmp_path), pd.DataFrame(ROWS)):
        estimator = bf.Sign().fit(given)
        np.testing.assert_array_equal(np.asarray(estimator.transform(given)), expected)
    np.testing.assert_array_equal(estimator.mean_, np.zeros(8))
    loaded = bf.load(estimator.save(tmp_path / "m.zarr"))
    np.testing.assert_array_equal(loaded.transform(ROWS), expected)
    assert bf.Sign(n_bits=3).fit(ROWS, checkpoint=tmp_path / "run").encode(ROWS).shape == (120, 1)
    np.testing.assert_allclose(bf.Sign(center=True).fit(ROWS).mean_, ROWS.mean(axis=0), atol=1e-6)
    with pytest.raises(bf.ConfigError, match="each of the 8 features or components, got n_bits=9"):
        bf.Sign(n_bits=9).fit(ROWS)


def test_units_without_rows_are_counted() -> None:
    for estimator in (
        bf.SphericalHash(n_bits=200, n_active=3, n_epochs=4, random_state=0),
        bf.BioHash(n_bits=200, n_active=3, n_epochs=4, random_state=0),
    ):
        dead = estimator.fit(ROWS).n_dead_units_
        assert 200 - 120 <= dead < 200
        assert dead == estimator.model_.state.scalars["n_dead_units"]
    assert 1 < estimator.mean_length_ == estimator.model_.state.scalars["mean_length"]
    reseeded = bf.SphericalHash(n_bits=60, n_active=3, dead_units="reseed", random_state=0)
    assert (
        reseeded.fit(ROWS).n_dead_units_
        < clone(reseeded).set_params(dead_units="zero").fit(ROWS).n_dead_units_
    )


def test_bits_in_use_are_reported() -> None:
    estimator = bf.POSH(n_bits=64, n_active=3, n_epochs=2, random_state=0).fit(ROWS)
    assert 3 <= estimator.effective_bits_ <= estimator.n_live_bits_ < 64
    assert estimator.effective_bits_ == estimator.model_.state.scalars["effective_bits"]


def test_in_a_pipeline_with_names_for_the_bits() -> None:
    pipeline = make_pipeline(StandardScaler(), bf.ITQ(n_bits=3, n_iter=2, random_state=0))
    frame = pipeline.set_output(transform="pandas").fit_transform(pd.DataFrame(ROWS))
    assert list(frame.columns) == ["itq0", "itq1", "itq2"]
    assert (frame.dtypes == np.uint8).all()


def test_validation_happens_in_fit() -> None:
    for estimator, message in [
        (bf.ITQ(n_bits=0), "n_bits"),
        (bf.ITQ(n_bits="8"), r"itq\.n_bits: .* got '8'"),
        (bf.POSH(n_bits=4, n_active=4), "n_active"),
        (bf.FruitFly(density=2.0), "density"),
        (bf.POSH(schedule="fast"), "schedule"),
    ]:
        with pytest.raises(bf.ConfigError, match=message):
            estimator.fit(ROWS)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[s]", "U8", "S8"])
def test_dates_and_text_are_no_vectors(estimator: Any, dtype: str) -> None:
    with pytest.raises(TypeError, match="real numbers"):
        estimator.fit(ROWS.astype(int).astype(dtype))


def test_a_lazy_vector_is_refused_like_any_other(estimator: Any) -> None:
    with pytest.raises(ValueError, match="two dimensions"):
        estimator.fit(da.from_array(ROWS[0]))
    estimator.fit(ROWS)
    with pytest.raises(ValueError, match="two dimensions"):
        estimator.model_.encode(da.from_array(ROWS[0]))


@pytest.mark.parametrize("lazy", [False, True])
def test_nonfinite_input(estimator: Any, lazy: bool) -> None:
    bad = ROWS.copy()
    bad[50, 2] = np.nan
    given = da.from_array(bad, chunks=(30, 8)) if lazy else bad
    with pytest.raises(ValueError, match="NaN"):
        estimator.fit(given)
    estimator.fit(ROWS)
    with pytest.raises(ValueError, match="NaN"):
        np.asarray(estimator.transform(given))


def test_fitting_onto_a_checkpoint(estimator: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    expected = clone(estimator).fit(ROWS).model_.digest
    estimator.fit(ROWS, checkpoint=run)
    assert estimator.model_.digest == expected
    assert estimator.model_.path == run / "model.zarr"
    assert (run / "data.zarr" / "zarr.json").exists()
    again = clone(estimator).fit(da.from_array(ROWS, chunks=(40, 2)), checkpoint=run)
    assert again.model_.digest == expected
    with pytest.raises(bf.IdentityMismatch, match="holds other vectors"):
        clone(estimator).fit(ROWS + 1, checkpoint=run)
    with pytest.raises(bf.IdentityMismatch, match=r"method\.n_bits"):
        clone(estimator).set_params(n_bits=20).fit(ROWS, checkpoint=run)
    with pytest.raises(bf.IdentityMismatch, match=r"seed: stored 0, given 8"):
        clone(estimator).set_params(random_state=8).fit(ROWS, checkpoint=run)
    unseeded = clone(estimator).set_params(random_state=None).fit(ROWS, checkpoint=run)
    assert (unseeded.seed_, unseeded.model_.digest) == (0, expected)
    assert RunDirectory.open(run).config["seed"] == 0


def test_a_distant_scheduler_needs_a_checkpoint() -> None:
    with pytest.raises(bf.ConfigError, match="give checkpoint="):
        bf.LSH().fit(ROWS, scheduler="tcp://10.255.255.1:8786")


def test_degenerate_data_gives_codes_and_never_nan(estimator: Any) -> None:
    cases = {
        "constant features": np.ones((20, 5), np.float32),
        "duplicated rows": np.repeat(ROWS[:2], 10, axis=0),
        "zero rows": np.zeros((20, 5), np.float32),
        "fewer rows than bits": ROWS[:2],
        "one row": ROWS[:1],
        "one feature": ROWS[:, :1],
        "more features than bits": np.random.default_rng(0).normal(size=(50, 60)),
    }
    for name, rows in cases.items():
        fitted = clone(estimator).fit(rows)
        bits = fitted.transform(rows)
        assert bits.shape == (len(rows), estimator.n_bits), name
        assert all(np.isfinite(a).all() for a in fitted.model_.state.arrays.values()), name
        if hasattr(estimator, "n_active"):
            assert (bits.sum(axis=1) == estimator.n_active).all(), name
    with pytest.raises(ValueError, match="0 sample"):
        clone(estimator).fit(ROWS[:0])
