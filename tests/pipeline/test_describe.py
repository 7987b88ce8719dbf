"""How codes use their bits, against NumPy's covariance and correlation of the bits themselves."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline.cli import app
from bitfleet.tasks.kernels.pack import pack_bits
from typer.testing import CliRunner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(400, 20)).astype(np.float32)


def assert_describes(found: bf.CodeStatistics, bits: np.ndarray) -> None:
    p, cov = bits.mean(axis=0), np.cov(bits.T, bias=True)
    eigenvalues = np.linalg.eigvalsh(cov)
    varied = p[(p > 0) & (p < 1)]
    assert (found.n_rows, found.n_bits) == bits.shape
    assert found.n_live_bits == bits.any(axis=0).sum()
    assert found.n_constant_bits == bits.shape[1] - len(varied)
    np.testing.assert_allclose(found.usage, p, rtol=1e-14)
    np.testing.assert_allclose(found.effective_bits, p.sum() ** 2 / (p**2).sum())
    np.testing.assert_allclose(found.busiest_bit, p.max())
    np.testing.assert_allclose(found.entropy, sum(-q * np.log2(q) - (1 - q) * np.log2(1 - q) for q in varied))
    np.testing.assert_allclose(found.participation_ratio, eigenvalues.sum() ** 2 / (eigenvalues**2).sum())
    touched = (bits.astype(int) @ bits.sum(axis=0)).mean()  # entries of the lists of each code's ones
    np.testing.assert_allclose(found.postings_per_query, touched)
    alive = (p > 0) & (p < 1)
    expected = np.zeros((len(p), len(p)))
    expected[np.ix_(alive, alive)] = np.corrcoef(bits[:, alive].T)
    np.testing.assert_allclose(found.correlation, expected, atol=1e-12)


def test_dense_codes() -> None:
    rng = np.random.default_rng(0)
    bits = (rng.normal(size=(500, 30)) + rng.normal(size=30) > 0).astype(np.uint8)
    bits[:, 3], bits[:, 4], bits[:, 6] = 0, 1, bits[:, 5]
    assert_describes(bf.describe_codes(pack_bits(bits), n_bits=30), bits)


def test_copies_are_even_but_no_directions() -> None:
    once = np.random.default_rng(1).integers(0, 2, (4000, 8), dtype=np.uint8)
    found = bf.describe_codes(pack_bits(np.repeat(once, 4, axis=1)))
    assert found.effective_bits > 31
    assert 7.5 < found.participation_ratio <= 8


def test_sparse_codes_from_places_packed_or_stored(
    vectors: np.ndarray, tmp_path: Path, clusters: Callable
) -> None:
    hasher = bf.POSH(n_bits=60, n_active=5, n_epochs=2, random_state=0).fit(vectors)
    packed, bits = hasher.encode(vectors), hasher.transform(vectors)
    places = np.nonzero(bits)[1].reshape(-1, 5)
    codes = bf.encode(hasher, vectors, tmp_path / "codes.zarr")
    for found in (
        bf.describe_codes(packed, n_bits=60),
        bf.describe_codes(packed, n_bits=60, n_active=5),
        bf.describe_codes(places, n_bits=60),
        bf.describe_codes(codes),
        bf.describe_codes(codes.path, scheduler=clusters(2)),
    ):
        assert_describes(found, bits)
        assert found.to_dict() == bf.describe_codes(packed, n_bits=60).to_dict()


def test_codes_that_are_all_equal_say_nothing() -> None:
    found = bf.describe_codes(np.full((3, 1), 7, np.uint8))
    assert (found.n_live_bits, found.n_constant_bits, found.busiest_bit) == (3, 8, 1.0)
    assert (str(found.entropy), found.participation_ratio) == ("0.0", 0.0)  # and not minus zero


def test_the_command_line(vectors: np.ndarray, tmp_path: Path) -> None:
    hasher = bf.ITQ(n_bits=16, n_iter=2, random_state=0).fit(vectors)
    codes = bf.encode(hasher, vectors, tmp_path / "codes.zarr")
    told = json.loads(CliRunner().invoke(app, ["describe", str(codes.path), "--json"]).stdout)
    assert told == {"codes": str(codes.path), **bf.describe_codes(codes).to_dict()}


def test_what_cannot_be_described() -> None:
    with pytest.raises(bf.ConfigError, match="at least one code"):
        bf.describe_codes(np.empty((0, 4), np.uint8))
    with pytest.raises(bf.ConfigError, match="a cluster reads codes from files"):
        bf.describe_codes(np.ones((3, 4), np.uint8), scheduler="local")
    with pytest.raises(bf.ConfigError, match="expected 3 ones in every code"):
        bf.describe_codes(np.ones((3, 4), np.uint8), n_active=3)


def test_of_very_long_codes_pairs_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2, (200, 40), dtype=np.uint8)
    whole = bf.describe_codes(pack_bits(bits))
    places = np.argsort(rng.random((200, 40)), axis=1)[:, :3]
    sparse = bf.describe_codes(places, n_bits=40)
    monkeypatch.setattr("bitfleet.tasks.describe.PAIRS_BITS", 39)
    for codes, expected in ((pack_bits(bits), whole), (places, sparse)):
        found = bf.describe_codes(codes, n_bits=40)
        assert (found.correlation, found.participation_ratio) == (None, None)
        np.testing.assert_array_equal(found.usage, expected.usage)
        json.dumps(found.to_dict(), allow_nan=False)
        for name, value in expected.to_dict().items():
            assert name == "participation_ratio" or getattr(found, name) == value
    monkeypatch.undo()
    tracemalloc.start()
    bf.describe_codes(np.zeros((3, 12_500), np.uint8))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20  # 100,000 bits: pairs would take 75 GiB
