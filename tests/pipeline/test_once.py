"""Rows that come once: the codes of all by what all have taught, whatever is interrupted when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline import once
from bitfleet.tasks.kernels.pack import unpack_bits
from bitfleet.tasks.weighted_signs import weighted_signs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARAMS = {
    "n_bits": 8,
    "n_anchors": 60,
    "sketch_size": 8,
    "sketch_dtype": "float32",
}  # no more than 8 l anchors
SIZES = {"first_rows": 300, "block_rows": 512}


def rows(n: int = 1500, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(12, 6)) * 2
    return (centres[rng.integers(12, size=n)] + rng.normal(size=(n, 6))).astype(np.float32)


def pieces(X: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for i in range(0, len(X), size):
        yield X[i : i + size]


@pytest.mark.parametrize("sketch_size", [None, 8])
def test_codes_are_those_of_directions_of_all_rows(tmp_path: Path, sketch_size: int | None) -> None:
    X = rows()
    coded = bf.encode_once(
        pieces(X, 97), tmp_path / "codes", n_bits=8, n_anchors=80, sketch_size=sketch_size, **SIZES
    )
    assert coded.n_rows == len(X)
    assert coded.n_provisional == 0
    again = coded.model.encode(X)
    assert (coded.codes() != again).mean() < 1e-3  # scores that are zero but for rounding
    arrays = coded.model.state.arrays
    squares = np.square(X[:, None].astype(float) - arrays["anchors"].astype(float)).sum(axis=2)
    W = np.exp(-squares / coded.model.state.scalars["sigma"] ** 2) - arrays["affinity_mean"]
    vectors = np.linalg.svd(W, full_matrices=False).Vh[:8].T
    kept = np.linalg.norm(vectors.T @ arrays["weights"]) ** 2 / 8
    assert kept > (1 - 1e-6 if sketch_size is None else 0.95)
    assert not (tmp_path / "codes" / "affinities").exists()
    assert bf.search(tmp_path / "codes", X[:3], 1)[0].max() == 0
    assert bf.describe_codes(tmp_path / "codes").n_rows == len(X)


def test_what_is_interrupted_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = rows()
    whole = bf.encode_once([X], tmp_path / "whole", **PARAMS, **SIZES)

    def broken() -> Iterator[np.ndarray]:
        yield from pieces(X[:1200], 100)
        raise ConnectionError("the line is dead")

    dest = tmp_path / "codes"
    with pytest.raises(ConnectionError):
        bf.encode_once(broken(), dest, **PARAMS, **SIZES)
    with pytest.raises(bf.DataRefused, match="before the source has ended; 1,024 rows are kept"):
        bf.open_stream(dest)
    with pytest.raises(bf.ConfigError, match="rows 1024 to 1100 are missing"):
        bf.encode_once(pieces(X[1100:], 50), dest, first_row=1100, **PARAMS, **SIZES)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(once, "write_part", killed)  # all rows are kept, the codes are not made yet
    with pytest.raises(KeyboardInterrupt):
        bf.encode_once(pieces(X[900:], 50), dest, first_row=900, **PARAMS, **SIZES)
    monkeypatch.undo()
    found = bf.encode_once((), dest)
    np.testing.assert_array_equal(found.codes(), whole.codes())
    assert found.model.digest == whole.model.digest
    assert sorted(path.name for path in dest.iterdir()) == ["codes", "config.json", "manifests", "objects"]
    assert {path.name for path in (dest / "codes").iterdir()} == set(found.parts.names)
    again = bf.encode_once((), dest)  # finished: nothing to do
    assert again.model.digest == whole.model.digest


def test_bad_rows_and_parameters_are_refused(tmp_path: Path) -> None:
    X = rows(700)
    X[650, 2] = np.nan
    with pytest.raises(bf.DataRefused, match="first in 650"):
        bf.encode_once(pieces(X, 100), tmp_path / "codes", **PARAMS, **SIZES)
    assert (
        bf.encode_once([rows(700)[512:]], tmp_path / "codes", first_row=512, **PARAMS, **SIZES).n_rows == 700
    )
    for blocks, params, message in (
        ([], {}, "at least one block"),
        ([X[:0]], {}, "at least one row"),
        ([X], {"sketch_rows": "train"}, 'sketch_rows="all"'),
        ([X], {"block_rows": 0}, "block_rows >= 1"),
        ([X], {"mode": "online"}, "mode='streaming', the only one here"),
    ):
        with pytest.raises(bf.ConfigError, match=message):
            bf.encode_once(blocks, tmp_path / "other", **{**PARAMS, **params})
    with pytest.raises(bf.DataRefused, match="masked in 1 of 9 rows, first in row 3"):
        bf.encode_once(
            [np.ma.masked_array(rows(9), np.arange(54).reshape(9, 6) == 18)], tmp_path / "m", **PARAMS
        )
    with pytest.raises(bf.DataRefused, match=r"row 5: expected a block of numbers of shape \(n, 6\)"):
        bf.encode_once([rows(5), rows(5)[:, :2]], tmp_path / "third", **PARAMS)


def test_signs_near_zero_are_those_of_exact_sums() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 30)).astype(np.float32)
    weights = rng.normal(size=(30, 9))
    weights[:, 3] -= rows[7].astype(float) * (rows[7] @ weights[:, 3]) / np.sum(rows[7].astype(float) ** 2)
    bits = unpack_bits(weighted_signs(rows, weights), 9)
    np.testing.assert_array_equal(bits[:7], rows[:7].astype(float) @ weights >= 0)
    for part in (rows[7:8], rows[5:12]):  # row 7 is orthogonal to column 3
        place = 0 if len(part) == 1 else 2
        np.testing.assert_array_equal(unpack_bits(weighted_signs(part, weights), 9)[place], bits[7])
    zeros = np.zeros((2, 30), np.float32)
    assert unpack_bits(weighted_signs(zeros, weights), 9).all()
