"""EigenfunctionSSH: the paper's objective solved row by row, its eigenproblem, labels by every entrance."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
import scipy.linalg
from bitfleet.tasks.eigenfunctions import laplacian_functions
from bitfleet.tasks.label_sums import LabelSums
from bitfleet.tasks.methods.base import front_of
from bitfleet.tasks.methods.eigenfunction_ssh import EigenfunctionSSH, curves_of, labellings
from bitfleet.tasks.protocols import Block

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six clouds, their classes, and labels of each tenth row."""
    rng = np.random.default_rng(0)
    truth = np.arange(600) % 6
    X = rng.normal(size=(6, 5))[truth] * 3 + rng.normal(size=(600, 5)) * 0.7
    return X, truth, np.where(rng.random(600) < 0.1, truth, -1)


def test_eigenfunctions_solve_the_papers_equation() -> None:
    counts = np.array([1, 5, 9, 30, 2, 0, 0, 7, 22, 4])
    values, functions = laplacian_functions(counts, 0.3, 0.5, 0.1)
    p = counts / counts.sum() + 0.1
    p /= p.sum()
    w = np.array([[np.exp(-((0.3 * (i - j)) ** 2) / (2 * 0.5**2)) for j in range(10)] for i in range(10)])
    pwp = np.diag(p) @ w @ np.diag(p)
    left = np.diag(pwp.sum(axis=0)) - pwp
    right = np.diag(p) @ np.diag((np.diag(p) @ w).sum(axis=0))
    expected, vectors = scipy.linalg.eigh(left, right)
    assert abs(expected[0]) < 1e-12  # the constant function
    assert np.ptp(vectors[:, 0]) < 1e-10
    np.testing.assert_allclose(values, expected[1:], atol=1e-12)
    for value, g in zip(values, functions, strict=True):
        np.testing.assert_allclose(left @ g, value * right @ g, atol=1e-12)


def test_label_functions_minimise_the_papers_objective(blobs: Any) -> None:
    X, _, y = blobs
    est = bf.EigenfunctionSSH(n_bits=10, n_functions=18, n_label_bits=8, random_state=0).fit(X, y)
    state = est.model_.state
    v = np.clip((X - X.mean(axis=0)) @ state.arrays["components"], state.arrays["low"], state.arrays["high"])
    a, n_bins = state.arrays, state.scalars["n_bins"]
    U = np.empty((600, 18))
    for j, place in enumerate(a["places"]):
        middles = a["least"][place] + a["step"][place] * (np.arange(n_bins) + 0.5)
        U[:, j] = np.interp(v[:, place], middles, a["values"][j])
    U -= U.mean(axis=0)
    U /= np.linalg.norm(U, axis=0)
    known = y >= 0
    signs = labellings(6, 8, 0)
    # as least squares: one row for each label, with a constant that costs nothing, one for each function
    rows = np.sqrt(1000.0) * np.column_stack([U[known], np.ones(known.sum())])
    smooth = np.column_stack([np.diag(np.sqrt(a["eigenvalues"])), np.zeros(18)])
    bits = est.transform(X)
    for j in range(8):
        aim = np.concatenate([np.sqrt(1000.0) * signs[j][y[known]], np.zeros(18)])
        alpha = np.linalg.lstsq(np.concatenate([rows, smooth]), aim)[0][:-1]
        f = U @ alpha
        clear = np.abs(f) > 1e-6 * np.abs(f).max()
        assert clear.mean() > 0.99
        np.testing.assert_array_equal(bits[clear, j], (f > 0)[clear])
    for j in range(2):
        clear = np.abs(U[:, j]) > 1e-9
        np.testing.assert_array_equal(bits[clear, 8 + j], (U[:, j] > 0)[clear])


def test_rows_without_a_label_get_the_codes_of_their_class(blobs: Any) -> None:
    X, truth, y = blobs
    est = bf.EigenfunctionSSH(n_bits=10, random_state=0).fit(X, y)
    assert est.n_label_bits_ == comb(6, 3) // 2 == 10
    assert est.n_labelled_ == np.count_nonzero(y >= 0)
    bits = est.transform(X)
    aims = (labellings(6, 10, 0) > 0)[:, truth].T
    assert (bits == aims)[y < 0].mean() > 0.95
    plain = bf.ITQ(n_bits=5, random_state=0).fit(X).transform(X)
    found = [_precision(codes, truth) for codes in (bits, plain)]
    assert found[0] > 0.93
    assert found[0] > found[1]


def _precision(bits: np.ndarray, truth: np.ndarray) -> float:
    """Share of the 50 nearest codes that are of the same class."""
    y = 2.0 * bits - 1
    order = np.argsort(-(y @ y.T), axis=1, kind="stable")[:, :50]
    return float((truth[order] == truth[:, None]).mean())


@pytest.mark.parametrize("n_classes", [1, 2, 3, 4, 5, 10, 40])
def test_labellings_are_distinct_halves(n_classes: int) -> None:
    half = n_classes // 2
    there = max(1, comb(n_classes, half) // (2 if n_classes % 2 == 0 else 1))
    signs = labellings(n_classes, 20, 7)
    assert len(signs) == min(20, there)
    assert set(signs.ravel()) <= {-1.0, 1.0}
    assert (signs[:, 0] == 1).all()
    assert (np.abs(signs.sum(axis=1)) == n_classes % 2).all()
    assert len(np.unique(signs, axis=0)) == len(signs)
    np.testing.assert_array_equal(signs, labellings(n_classes, 20, 7))


def test_sums_add_up_class_by_class(blobs: Any) -> None:
    X, truth, y = blobs
    state = bf.EigenfunctionSSH(n_bits=8, n_functions=12, random_state=0).fit(X, y).model_.state
    y = np.where(y >= 0, 10**12 * truth + 5, -7)  # any numbers; below 0 is none
    sums = LabelSums(front_of(state), curves_of(state))
    cuts = np.split(np.arange(600), [0, 3, 250, 256])
    total = sums.init()
    for part in cuts:
        total = sums.merge(total, sums.update(sums.init(), Block(part, X[part], y[part])))
    u = curves_of(state).of((X - state.arrays["mean"]) @ state.arrays["components"])
    np.testing.assert_array_equal(total["classes"], np.unique(y[y >= 0]))
    for i, name in enumerate(total["classes"]):
        np.testing.assert_allclose(total["class_sums"][i], u[y == name].sum(axis=0), atol=1e-9)
        assert total["class_counts"][i] == np.count_nonzero(y == name)
    np.testing.assert_allclose(total["gram"], u[y >= 0].T @ u[y >= 0], atol=1e-9)
    np.testing.assert_allclose(total["squares"], np.square(u).sum(axis=0), atol=1e-9)
    assert total["count"] == 600


def test_labels_come_in_by_every_entrance(blobs: Any, tmp_path: Path) -> None:
    da = pytest.importorskip("dask.array")
    X, _, y = blobs
    params: dict[str, Any] = {"n_bits": 8, "n_functions": 10}
    digest = bf.EigenfunctionSSH(**params, random_state=3).fit(X, y).model_.digest
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    dataset = bf.ingest(tmp_path / "rows.npz", tmp_path / "rows.zarr")
    name = "eigenfunction_ssh"
    found = {
        "data set": bf.train(dataset, tmp_path / "a", name, seed=3, **params),
        "pair": bf.train((X, y), tmp_path / "b", name, seed=3, **params),
        "dask": bf.train((da.from_array(X, chunks=170), y), tmp_path / "c", name, seed=3, **params),
        "path, no y": bf.EigenfunctionSSH(**params, random_state=3).fit(tmp_path / "rows.zarr").model_,
        "floats": bf.EigenfunctionSSH(**params, random_state=3).fit(X, y.astype(float)).model_,
        "checkpoint": bf.EigenfunctionSSH(**params, random_state=3)
        .fit(X, y, checkpoint=tmp_path / "d")
        .model_,
    }
    assert {what: model.digest for what, model in found.items()} == dict.fromkeys(found, digest)
    with pytest.raises(bf.IdentityMismatch, match="other vectors or labels"):
        bf.train((X, np.abs(y)), tmp_path / "b", name, seed=3, **params)


def test_no_labels_are_an_error_before_anything_is_written(blobs: Any, tmp_path: Path) -> None:
    X, _, y = blobs
    np.save(tmp_path / "rows.npy", X)
    bare = bf.ingest(tmp_path / "rows.npy", tmp_path / "rows.zarr")
    for data in (bare, X, tmp_path / "rows.zarr"):
        with pytest.raises(bf.ConfigError, match="learns from labels and the data have none"):
            bf.train(data, tmp_path / "run", "eigenfunction_ssh")
        assert not (tmp_path / "run" / "config.json").exists()
        assert not (tmp_path / "run" / "data.zarr").exists()
    est = bf.EigenfunctionSSH(n_bits=4)
    with pytest.raises(bf.ConfigError, match="learns from labels"):
        est.fit(bare)
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        est.fit(X)
    with pytest.raises(ValueError, match="all are -1, which means none"):
        est.fit(X, np.full(600, -1))
    with pytest.raises(ValueError, match="whole numbers"):
        est.fit(X, y + 0.5)
    with pytest.raises(ValueError, match=r"expected y of shape \(n,\)"):
        est.fit(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="so small that bins"):
        bf.EigenfunctionSSH(n_bits=4, sigma=1e-9).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        est.fit(X, y[:-1])
    with pytest.raises(bf.ConfigError, match="a data set brings its own labels"):
        est.fit(bare, y)
    with pytest.raises(bf.ConfigError, match="600 integer labels"):
        bf.train((X, y[:-1]), tmp_path / "run", "eigenfunction_ssh")


def test_one_class_and_labels_as_good_as_names(blobs: Any) -> None:
    X, truth, y = blobs
    one = bf.EigenfunctionSSH(n_bits=6, random_state=0).fit(X, np.where(truth == 2, 4, -1))
    assert one.classes_.tolist() == [4]
    assert one.n_label_bits_ == 1
    bits = one.transform(X)
    assert (bits[:, 0] == 1).all()  # of one class nothing is to be told apart
    assert (bits[:, 1:].min(axis=0) < bits[:, 1:].max(axis=0)).all()
    renamed = np.where(y >= 0, 1000 + 7 * y, -1)  # in the same order
    left, right = (bf.EigenfunctionSSH(n_bits=6, random_state=0).fit(X, labels) for labels in (y, renamed))
    np.testing.assert_array_equal(left.encode(X), right.encode(X))


def test_refusals() -> None:
    for params, message in (
        ({"weight": 0}, "weight"),
        ({"smoothing": 0}, "smoothing"),
        ({"sigma": -1}, "sigma"),
        ({"clip": 0.5}, "clip"),
        ({"n_label_bits": 0}, "n_label_bits"),
    ):
        with pytest.raises(ValueError, match=message):
            EigenfunctionSSH(**params)  # type: ignore[arg-type]
