"""`max_distortion` equals brute force over all pairs, to the bit for every block size, order and executor."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline.all_pairs import block_pairs, n_pairs, pair_rows, windows
from bitfleet.pipeline.distortion import violators
from bitfleet.tasks.distortion import FITS, calibrate
from bitfleet.tasks.kernels.pack import pack_bits
from bitfleet.tasks.protocols import LeafPlan
from scipy.spatial.distance import pdist

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distributed import Client


def all_pairs(bits: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances and Hamming distances of all pairs, first row first."""
    h = np.round(pdist(bits.astype(np.float64), "cityblock")).astype(int)
    return pdist(X.astype(np.float64)), h


def extremes(c: np.ndarray, h: np.ndarray, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.full(n_bits + 1, np.inf), np.full(n_bits + 1, -np.inf)
    np.minimum.at(low, h, c)
    np.maximum.at(high, h, c)
    return low, high


def brute_force(bits: np.ndarray, X: np.ndarray, power: int = 1) -> tuple[np.ndarray, np.ndarray]:
    c, h = all_pairs(bits, X)
    return extremes(c**power, h, bits.shape[1])


def same_bits(first: bf.Distortion, second: bf.Distortion) -> None:
    assert (first.delta, first.scale, first.n_pairs) == (second.delta, second.scale, second.n_pairs)
    for name in ("low", "high", "low_pair", "high_pair", "calibration"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes(), name


@pytest.fixture(scope="module")
def digits(root: Path) -> np.ndarray:
    with np.load(root / "pipeline" / "demo" / "digits.npz") as file:
        X = (file["X"][:1500] / 255.0).astype(np.float32)
    X -= X.mean(axis=0)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def bits(digits: np.ndarray) -> np.ndarray:
    return bf.ITQ(n_bits=30, n_iter=10, random_state=0).fit(digits).transform(digits)


@pytest.fixture(scope="module")
def truth(digits: np.ndarray, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return all_pairs(bits, digits)


@pytest.fixture(scope="module")
def expected(digits: np.ndarray, bits: np.ndarray) -> bf.Distortion:
    return bf.max_distortion(bits, digits)


@pytest.mark.parametrize("fit", FITS)
def test_digits_equal_brute_force(
    digits: np.ndarray, bits: np.ndarray, truth: tuple, expected: bf.Distortion, fit: str
) -> None:
    low, high = extremes(*truth, 30)
    found = expected.refit(fit)
    assert found.certified
    assert found.n_pairs == 1500 * 1499 // 2
    np.testing.assert_allclose(found.low, low, rtol=0, atol=1e-7)
    np.testing.assert_allclose(found.high, high, rtol=0, atol=1e-7)
    assert abs(found.delta - calibrate(low, high, fit).delta) < 1e-7
    for side, pair in ((found.low, found.low_pair), (found.high, found.high_pair)):
        for h in np.flatnonzero(np.isfinite(side)):
            i, j = pair[h]
            assert i < j
            assert (bits[i] != bits[j]).sum() == h
            assert abs(np.linalg.norm(digits[i].astype(float) - digits[j]) - side[h]) < 1e-12


@pytest.mark.parametrize("block_rows", [100, 333, 2000])
def test_block_size_changes_no_bit(
    digits: np.ndarray, bits: np.ndarray, expected: bf.Distortion, block_rows: int
) -> None:
    same_bits(bf.max_distortion(bits, digits, block_rows=block_rows), expected)


def test_order_of_rows_changes_only_the_numbers_of_rows(
    digits: np.ndarray, bits: np.ndarray, expected: bf.Distortion
) -> None:
    order = np.random.default_rng(1).permutation(len(digits))
    found = bf.max_distortion(pack_bits(bits[order] != 0), digits[order], n_bits=30, block_rows=256)
    assert (found.delta, found.scale) == (expected.delta, expected.scale)
    np.testing.assert_array_equal(found.high, expected.high)
    some = np.isfinite(expected.low)
    np.testing.assert_array_equal(np.sort(order[found.low_pair[some]], axis=1), expected.low_pair[some])


def test_numpy_kernels_give_the_same_bits(
    digits: np.ndarray, bits: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = digits[:300], bits[:300]
    compiled = bf.max_distortion(some[1], some[0])
    for module in ("screening", "euclidean"):
        monkeypatch.setattr(f"bitfleet.tasks.kernels.{module}.loops", lambda: None)
    same_bits(bf.max_distortion(some[1], some[0]), compiled)


def test_violators_are_those_of_brute_force(
    digits: np.ndarray, bits: np.ndarray, truth: tuple, expected: bf.Distortion
) -> None:
    c, h = truth
    first, second = np.triu_indices(len(digits), 1)
    for delta, offset in ((0.8, 0.0), (0.4, 0.3)):
        found = violators(bits, digits, 0.09, delta, offset, block_rows=500)
        out = np.abs(0.09 * h + offset - c) > delta
        assert out.sum() > 5
        np.testing.assert_array_equal(found["pair"], np.stack([first[out], second[out]], axis=1))
    with pytest.raises(ValueError, match="at most 10 violators"):
        violators(bits, digits, 0.09, 0.4, most=10)
    assert not len(violators(bits, digits, expected.scale, expected.delta * (1 + 1e-12))["bits"])


@pytest.mark.parametrize(
    ("n_bits", "kind"), [(7, "normal"), (40, "binary"), (100, "sparse"), (16, "wide"), (70, "tiny")]
)
def test_other_codes_and_rows_equal_brute_force(n_bits: int, kind: str) -> None:
    """One word and several, ties everywhere, equal weights, lengths of all sizes, far from the origin."""
    rng = np.random.default_rng(n_bits)
    X = rng.normal(size=(400, 20))
    B = rng.integers(0, 2, (400, n_bits))
    if kind == "binary":
        X = (X > 0.5).astype(np.float32)
    if kind == "sparse":
        B = np.argsort(rng.random((400, n_bits)), axis=1) < 8
    if kind == "wide":
        X *= 10.0 ** rng.uniform(-6, 6, (400, 1))
    if kind == "tiny":
        X = 1e-120 * X + 1e-110
    low, high = brute_force(B, X)
    found = bf.max_distortion(B, X, block_rows=150)
    scale = high.max()
    np.testing.assert_allclose(found.low / scale, low / scale, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.high / scale, high / scale, rtol=0, atol=1e-12)
    squared = bf.max_distortion(B, X, target="sqeuclidean").delta
    np.testing.assert_allclose(squared, calibrate(*brute_force(B, X, 2)).delta, rtol=1e-9)


def test_rows_of_uneven_spread_are_settled_by_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many features of equal weight: few coordinates say little, much is left open and read again."""
    monkeypatch.setattr("bitfleet.tasks.extremes.MOST_OPEN", 50)
    rng = np.random.default_rng(3)
    X = np.sign(rng.normal(size=(300, 64)))
    B = (X[:, :6] > 0).astype(int)
    found = bf.max_distortion(B, X, block_rows=100)
    low, high = brute_force(B, X)
    np.testing.assert_allclose(found.low, low, atol=1e-12)
    np.testing.assert_allclose(found.high, high, atol=1e-12)


def test_degenerate_rows() -> None:
    two = bf.max_distortion(np.array([[0, 1], [1, 1]]), np.array([[0.0, 0.0], [3.0, 4.0]]))
    assert (two.delta, two.scale, two.n_pairs) == (0.0, 5.0, 1)
    equal = bf.max_distortion(np.zeros((40, 3), int), np.ones((40, 5)))
    assert (equal.delta, equal.scale, equal.constant) == (0.0, 0.0, 0.0)
    assert two.warnings == equal.warnings == ()  # M* is infinite, and says nothing
    X = np.zeros((60, 90), np.float32)  # fewer rows than features, zero rows, constant features, duplicates
    X[:30, :4] = np.random.default_rng(0).normal(size=(30, 4))
    X[10:20] = X[:10]
    B = np.random.default_rng(1).integers(0, 2, (60, 9))
    found = bf.max_distortion(B, X, block_rows=20)
    assert abs(found.delta - calibrate(*brute_force(B, X)).delta) < 1e-7
    shown = bf.max_distortion(np.zeros((60, 9), int), X)
    assert shown.delta == shown.high[0]
    assert shown.scale == 0.0


@pytest.mark.parametrize(
    ("codes", "vectors", "message"),
    [
        (np.zeros((3, 4), int), np.zeros((4, 2)), "3 codes and 4 rows"),
        (np.zeros((1, 4), int), np.zeros((1, 2)), "at least two rows"),
        (np.full((3, 4), 7), np.zeros((3, 2)), "zeros and ones"),
        (np.zeros((3, 4), int), np.array([[0.0], [np.nan], [1.0]]), "NaN"),
        (np.zeros(3, int), np.zeros((3, 2)), "two dimensions"),
    ],
)
def test_what_does_not_fit_is_refused(codes: np.ndarray, vectors: np.ndarray, message: str) -> None:
    with pytest.raises((bf.ConfigError, bf.DataRefused), match=message):
        bf.max_distortion(codes, vectors)
    with pytest.raises(bf.ConfigError, match="scale, affine, monotone"):
        bf.max_distortion(codes, vectors, fit="linear")


def test_warns_of_what_is_worse_than_a_constant_and_of_too_few_bits(expected: bf.Distortion) -> None:
    assert expected.delta > expected.constant
    assert expected.n_bits < expected.critical_bits
    assert "T =" in expected.warnings[0]
    assert "M* =" in expected.warnings[1]
    assert 0 < expected.bound < expected.delta
    assert not expected.estimated
    assert [line for line in expected.refit("monotone").warnings if "T =" in line] == []
    assert expected.summary()["lower_bound"] == expected.bound


def test_sample_is_below_and_says_for_how_many_pairs_it_holds(
    digits: np.ndarray, bits: np.ndarray, truth: tuple, expected: bf.Distortion
) -> None:
    found = bf.max_distortion(bits, digits, "affine", pairs=4000, seed=3)
    assert not found.certified
    assert found.n_pairs == 4000
    assert found.delta < expected.refit("affine").delta
    assert 0.99 < found.coverage < 1
    c, h = truth
    assert (np.abs(found.calibration[h] - c) <= found.delta).mean() >= found.coverage
    # 1 - (1 - ε)^n of one variable, and d variables need more pairs than that
    assert bf.max_distortion(bits, digits, "monotone", pairs=31).coverage == 0


def test_workers_give_the_same_bits_and_a_pass_goes_on(
    digits: np.ndarray, bits: np.ndarray, expected: bf.Distortion, tmp_path: Path,
    clusters: Callable[[int], Client], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    same_bits(bf.max_distortion(bits, digits, block_rows=600, scheduler=clusters(2)), expected)
    given: dict[str, Any] = {"block_rows": 400, "checkpoint": tmp_path / "pass"}
    from bitfleet.cluster.serial import SerialExecutor

    plain, done = SerialExecutor.reduce, []

    def fails(self: SerialExecutor, reader: Any, addresses: Any, *rest: Any, **named: Any) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(sum(n_pairs(address) for address in addresses))
        return plain(self, reader, addresses, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(SerialExecutor, "reduce", fails)
        with pytest.raises(KeyboardInterrupt):
            bf.max_distortion(bits, digits, **given)
    counted: list[int] = []

    def counts(self: SerialExecutor, reader: Any, addresses: Any, *rest: Any, **named: Any) -> Any:
        counted.append(sum(n_pairs(address) for address in addresses))
        return plain(self, reader, addresses, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(SerialExecutor, "reduce", counts)
        same_bits(bf.max_distortion(bits, digits, **given), expected)
        assert sum(done) + sum(counted) == expected.n_pairs  # nothing committed is done again
        n_passes = len(counted)
        same_bits(bf.max_distortion(bits, digits, **given), expected)
        assert len(counted) == n_passes
    with pytest.raises(bf.IdentityMismatch):
        bf.max_distortion(bits ^ 1, digits, block_rows=300, checkpoint=tmp_path / "pass")


def test_codes_and_data_in_files(
    digits: np.ndarray, tmp_path: Path, clusters: Callable[[int], Client]
) -> None:
    np.save(tmp_path / "x.npy", digits[:600])
    data = bf.ingest(tmp_path / "x.npy", tmp_path / "x.zarr", chunk_rows=128)
    model = bf.train(data, tmp_path / "run", "itq", n_bits=20, n_iter=3)
    codes = bf.encode(model, data, tmp_path / "codes.zarr")
    expected = bf.max_distortion(model.encode(digits[:600]), digits[:600], n_bits=20)
    same_bits(bf.max_distortion(tmp_path / "codes.zarr", tmp_path / "x.zarr"), expected)
    same_bits(bf.max_distortion(codes, data, scheduler=clusters(2), block_rows=250), expected)
    np.save(tmp_path / "y.npy", digits[600:1200])
    with pytest.raises(bf.ConfigError, match="codes of other data"):
        bf.max_distortion(codes, bf.ingest(tmp_path / "y.npy", tmp_path / "y.zarr"))


@pytest.mark.parametrize("n_rows", [2, 300, 60_000, 240_000, 5_000_000])
def test_windows_hold_every_pair_once_and_at_most_a_tenth(n_rows: int) -> None:
    plan = LeafPlan(n_rows, pair_rows(n_rows))
    if n_rows > 1_000_000:
        plan = LeafPlan(n_rows, 65_536)
    addresses = block_pairs(plan)
    cut = windows(addresses)
    assert [address for window in cut for address in window] == addresses
    every = n_rows * (n_rows - 1) // 2
    assert sum(map(n_pairs, addresses)) == every
    if n_rows >= 60_000:
        assert max(sum(map(n_pairs, window)) for window in cut) <= every / 10


@pytest.mark.long
def test_a_killed_pass_recomputes_at_most_a_tenth(root: Path, tmp_path: Path) -> None:
    """SIGKILL in the midst of a pass, twice; what follows ends in the bits of a pass left alone."""
    with np.load(root / "pipeline" / "demo" / "digits.npz") as file:
        X = file["X"].astype(np.float32)
    B = X @ np.random.default_rng(0).normal(size=(784, 30)).astype(np.float32) > 0
    np.savez(tmp_path / "given.npz", X=X, B=B)
    script = (
        f"import numpy as np, bitfleet as bf; given = np.load({str(tmp_path / 'given.npz')!r});"
        f"bf.max_distortion(given['B'], given['X'], checkpoint={str(tmp_path / 'pass')!r})"
    )
    manifests = tmp_path / "pass" / "manifests"
    for wanted in (4, 9):
        driver = subprocess.Popen([sys.executable, "-c", script])
        while not manifests.is_dir() or len(list(manifests.glob("*.json"))) < wanted:
            assert driver.poll() is None
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    plan = LeafPlan(len(X), pair_rows(len(X)))
    done = max(map(int, (path.stem for path in manifests.glob("*.json"))))
    assert 9 <= done + 1 < 17
    cut = windows(block_pairs(plan))
    assert max(sum(map(n_pairs, window)) for window in cut) <= len(X) * (len(X) - 1) // 2 / 10
    found = bf.max_distortion(B, X, checkpoint=tmp_path / "pass")
    same_bits(found, bf.max_distortion(B, X))
