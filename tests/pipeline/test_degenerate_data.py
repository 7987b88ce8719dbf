"""What `docs/degenerate_data.md` says of data without variance, without rows, or out of range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
import scipy.linalg
import zarr
from sklearn.base import clone

if TYPE_CHECKING:
    from pathlib import Path

ESTIMATORS = {
    "lsh": bf.LSH(n_bits=16, random_state=0),
    "itq": bf.ITQ(n_bits=16, n_iter=3, random_state=0),
    "nibh": bf.NIBH(n_bits=16, n_iter=2, n_steps=3, random_state=0),
    "nibh calibrated": bf.NIBH(n_bits=16, preset="calibrated", n_iter=2, n_steps=3, random_state=0),
    "nibh_cg": bf.NIBHCG(n_bits=16, n_iter=3, n_warm=2, n_polish=1, n_moves=5, random_state=0),
    "fruit_fly": bf.FruitFly(n_bits=16, n_active=4, random_state=0),
    "pursuit": bf.PursuitHash(n_bits=16, n_active=4, n_epochs=2, n_refine=1, n_balance=2, random_state=0),
    "sparse_coding": bf.SparseCoding(n_bits=16, n_active=4, n_iter=2, random_state=0),
    "posh": bf.POSH(n_bits=16, n_active=4, n_epochs=2, random_state=0),
    "posh union": bf.POSH(n_bits=16, n_active=4, n_epochs=2, schedule="union", random_state=0),
    "posh paper": bf.POSH(n_bits=16, n_active=4, n_epochs=2, schedule="paper", batch_size=8, random_state=0),
}
DTYPES = ["float32", "float64"]


@pytest.fixture(params=ESTIMATORS)
def estimator(request: pytest.FixtureRequest) -> Any:
    return clone(ESTIMATORS[request.param])


def checked(estimator: Any, rows: np.ndarray) -> np.ndarray:
    """Fit, check that no NaN comes of it anywhere, and return the codes as bits."""
    fitted = estimator.fit(rows)
    assert all(np.isfinite(array).all() for array in fitted.model_.state.arrays.values())
    numbers = [value for value in fitted.model_.state.scalars.values() if isinstance(value, float)]
    assert np.isfinite(numbers).all()
    bits = fitted.transform(rows)
    assert bits.shape == (len(rows), 16)
    assert set(np.unique(bits)) <= {0, 1}
    if hasattr(estimator, "n_active"):
        assert (bits.sum(axis=1) == 4).all()
    labels = np.arange(len(rows)) % 2
    metrics = ("map@5", "map_min@5", "precision@5", "recall1@1")
    found = bf.evaluate(fitted, (rows, labels), (rows[:3], labels[:3]), metrics)
    assert np.isfinite(found["value"].values).all()
    assert np.isfinite(found["per_query"].values).all()
    return bits


def of_the_mean(estimator: Any) -> list[int]:
    """The code of a row that is the mean."""
    return [1] * 4 + [0] * 12 if hasattr(estimator, "n_active") else [1] * 16


def ordinary(dtype: str, n_features: int = 10) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(40, n_features)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_features_that_are_constant(estimator: Any, dtype: str) -> None:
    rows = ordinary(dtype)
    rows[:, [0, 4, 9]] = 0.1
    assert len(np.unique(checked(estimator, rows), axis=0)) > 20
    for value in (0.0, 0.1, 1e30):
        bits = checked(estimator, np.full((40, 10), value, dtype))
        np.testing.assert_array_equal(bits, [of_the_mean(estimator)] * 40)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_repeat_or_are_zero(estimator: Any, dtype: str) -> None:
    bits = checked(estimator, np.repeat(ordinary(dtype)[:2], 20, axis=0))
    np.testing.assert_array_equal(bits, np.repeat(bits[[0, 20]], 20, axis=0))
    assert (bits[0] != bits[20]).any()
    rows = ordinary(dtype)
    rows[::3] = 0
    assert len(np.unique(checked(estimator, rows)[::3], axis=0)) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_few_rows(estimator: Any, dtype: str) -> None:
    if getattr(estimator, "schedule", "") == "paper":
        for n_rows in (1, 5):
            with pytest.raises(ValueError, match=f"learns after every 8 rows, but there are {n_rows}; take"):
                estimator.fit(ordinary(dtype)[:n_rows])
        estimator.set_params(batch_size=1)
    assert len(np.unique(checked(estimator, ordinary(dtype)[:5]), axis=0)) > 1
    assert checked(estimator, ordinary(dtype)[:1]).tolist() == [of_the_mean(estimator)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_few_and_many_features(estimator: Any, dtype: str) -> None:
    assert len(np.unique(checked(estimator, ordinary(dtype, 3)), axis=0)) > 7
    assert len(np.unique(checked(estimator, ordinary(dtype, 50)), axis=0)) > 15
    components = estimator.model_.state.arrays.get("components")
    if isinstance(estimator, bf.LSH):
        assert components is None
    else:
        wanted = 50 if isinstance(estimator, bf.NIBH | bf.NIBHCG) else 16
        assert components.shape == (50, 4 if hasattr(estimator, "n_active") else wanted)
    one = ordinary(dtype, 1)
    bits = checked(estimator, one)
    sides = one[:, 0] > one.mean()
    for side in (sides, ~sides):  # all that a linear code can see of one number is its side of the mean
        assert len(np.unique(bits[side], axis=0)) == 1


def test_numbers_near_the_limits(estimator: Any) -> None:
    rows = ordinary("float64")
    expected = checked(estimator, rows)
    for exponent in (-200, 200) if getattr(estimator, "schedule", "") != "paper" else ():  # its M starts as W
        np.testing.assert_array_equal(checked(estimator, np.ldexp(rows, exponent)), expected)
    checked(estimator, np.ldexp(rows, -900))  # squares are zero
    huge = np.ldexp(rows, 700)
    if isinstance(estimator, bf.LSH | bf.FruitFly | bf.PursuitHash):
        np.testing.assert_array_equal(estimator.fit(huge).transform(huge), expected)
        with pytest.raises(ValueError, match="squared ones overflow float64; rescale the vectors"):
            bf.evaluate(estimator, huge, huge[:3], ["recall1@1"])
    elif isinstance(estimator, bf.SparseCoding):
        with pytest.raises(ValueError, match="the vectors hold NaN, infinity or huge numbers"):
            estimator.fit(huge)
    else:
        with pytest.raises(ValueError, match="the covariance overflows float64; rescale the vectors"):
            estimator.fit(huge)


def test_atoms_of_sparse_coding() -> None:
    def atoms(rows: np.ndarray) -> np.ndarray:
        weights: np.ndarray = estimator.fit(rows).model_.state.arrays["weights"]
        return weights

    estimator = clone(ESTIMATORS["sparse_coding"])
    rows = ordinary("float64")
    found = atoms(rows)
    assert estimator.model_.state.scalars["scale"] == pytest.approx(
        np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean())
    )
    np.testing.assert_allclose(atoms(np.ldexp(rows, -900)), found)  # codes too, see above
    assert estimator.model_.state.scalars["scale"] == 1
    rows[:, [0, 4]] = 0.1
    assert (np.abs(atoms(rows)[:, [0, 4]]) < 1e-12).all()
    np.testing.assert_allclose(np.linalg.norm(atoms(np.zeros((40, 10))), axis=1), 0.3)
    assert estimator.model_.state.scalars["objective"] == 1
    twice = atoms(np.repeat(ordinary("float64")[:2], 20, axis=0))
    directions = twice / np.linalg.norm(twice, axis=1, keepdims=True)
    assert len(np.unique(directions.round(9), axis=0)) == 2
    few = atoms(ordinary("float64")[:5])
    idle = estimator.transform(ordinary("float64")[:5]).sum(axis=0) == 0
    assert idle.any()
    np.testing.assert_allclose(np.linalg.norm(few[idle], axis=1), 0.3)


def test_no_rows_and_no_features(estimator: Any, tmp_path: Path) -> None:
    rows = ordinary("float32")
    with pytest.raises(ValueError, match="0 sample"):
        estimator.fit(rows[:0])
    with pytest.raises(ValueError, match="0 feature"):
        estimator.fit(rows[:, :0])
    params = {k: v for k, v in estimator.get_params().items() if k != "random_state"}
    with pytest.raises(bf.ConfigError, match="at least one row of at least one feature, got 0 rows of 10"):
        bf.train(rows[:0], tmp_path / "run", estimator._method, **params)
    assert not (tmp_path / "run" / "config.json").exists()
    model = estimator.fit(rows).model_
    assert model.encode(rows[:0]).shape == (0, 2)
    assert bf.encode(model, rows[:0], tmp_path / "codes.zarr").n_rows == 0
    for pair in ((rows[:0], rows), (rows, rows[:0])):
        with pytest.raises(bf.ConfigError, match="have no rows: there is nothing to evaluate"):
            bf.evaluate(model, *pair, "recall@5")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["nibh", "nibh_cg"])
def test_distortion_of_few_points_and_of_equal_ones(name: str, dtype: str) -> None:
    """Two points, duplicates, zero rows, all equal: what is reported is what `max_distortion` certifies."""
    rows = ordinary(dtype, 6)
    repeated = rows.copy()
    repeated[10:30] = repeated[:20]
    repeated[35:] = 0
    for some in (rows[:2], rows[:5], repeated, np.full((9, 6), 0.1, dtype), rows[:1]):
        estimator = clone(ESTIMATORS[name])
        bits = checked(estimator, some)
        assert np.isfinite(estimator.calibration_).all()
        if len(some) == 1:
            assert estimator.distortion_ == 0
            continue
        found = bf.max_distortion(bits, some)
        np.testing.assert_allclose(
            estimator.distortion_, found.delta, atol=1e-6 if dtype == "float32" else 1e-9
        )
        assert found.delta == 0 or len(some) > 2


def test_nan_is_refused_before_any_factorisation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By estimators, by readers of arrays and lazily; and by `max_distortion`, by row."""

    def never(*args: object, **named: object) -> None:
        raise AssertionError("NaN came to a factorisation")

    for function in ("svd", "eigh", "qr"):
        monkeypatch.setattr(np.linalg, function, never)
        monkeypatch.setattr(scipy.linalg, function, never)
    rows = ordinary("float32")
    rows[17, 3] = np.nan
    for name in ("nibh", "nibh_cg"):
        with pytest.raises(ValueError, match="NaN"):
            clone(ESTIMATORS[name]).fit(rows)
        with pytest.raises(ValueError, match="NaN or infinity"):
            clone(ESTIMATORS[name]).fit(zarr.array(rows))
        with pytest.raises(bf.DataRefused, match="17"):
            bf.train(rows, tmp_path / name, name, n_bits=4)
    with pytest.raises(bf.DataRefused, match="17"):
        bf.max_distortion(np.zeros((40, 4), int), rows)
